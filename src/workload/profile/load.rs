//! `load` of a profile: stages and how many requests may be in flight. Uses `section`, `limits`, `staged`.

use serde_json::Value;

use super::section::{NumberRange, Section, shown};
use crate::units::NS_PER_S;
use crate::workload::limits::{MAX_DURATION_S, MAX_RATE_PER_S, MAX_REQUESTS, MAX_STAGES, MAX_TIME_NS};
use crate::workload::staged::StageLoad;

/// Requests that one worker of inference-perf has in flight at most, where the profile does not say.
///
/// # Source
/// inference-perf 0.3.0, `config.py`, `LoadConfig`.
const WORKER_MAX_CONCURRENCY: u64 = 100;
/// Connections that one worker opens at most, where the profile does not say; the same source.
const WORKER_MAX_CONNECTIONS: u64 = 2500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadType {
    Constant,
    Poisson,
    Concurrent,
}

/// What `load` says.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) stages: Vec<StageLoad>,
    pub(super) interval_ns: u64,
    pub(super) max_in_flight: Option<u64>,
}

/// Reads `load`; problems go to its log. `scrape_interval_s` is the least pause that metrics ask for.
pub(super) fn read(load: Section<'_>, scrape_interval_s: Option<f64>) -> Load {
    let kind = match load.text_or("type", "constant") {
        "constant" => Some(LoadType::Constant),
        "poisson" => Some(LoadType::Poisson),
        "concurrent" => Some(LoadType::Concurrent),
        other => {
            let way_out = if other == "trace_replay" { "; give the trace itself as a file of requests" } else { "" };
            let reason = format!("is not supported: use constant, poisson or concurrent{way_out}");
            load.problem("type", &Value::from(other), &reason);
            None
        }
    };
    load.refuse("sweep", "is not supported, as its stages depend on the server measured: write the stages out");
    load.refuse("trace", "is not supported: give the trace itself as a file of requests");
    load.refuse("circuit_breakers", "is not supported, as it ends stages early: remove it");
    load.refuse("request_timeout", "is not supported, as it cancels requests: remove it");

    let interval_s = load.number("interval", NumberRange::from_zero(MAX_DURATION_S, "s")).unwrap_or(1.0);
    let interval_s = scrape_interval_s.map_or(interval_s, |scrape_s| scrape_s.max(interval_s));
    let max_in_flight = max_in_flight(&load, kind);
    let stages = stages(&load, kind);
    check_total_time(&load, &stages, interval_s);
    load.finish();
    Load { stages, interval_ns: (interval_s * NS_PER_S as f64).round() as u64, max_in_flight }
}

/// Requests that all workers together have in flight at most. Without `num_workers` there are as many as the client's
/// machine has cores, which a profile does not say.
fn max_in_flight(load: &Section<'_>, kind: Option<LoadType>) -> Option<u64> {
    let workers = load.count("num_workers", 1, 1 << 20);
    let each = load.count("worker_max_concurrency", 1, 1 << 20);
    let connections = load.count("worker_max_tcp_connections", 1, 1 << 20).unwrap_or(WORKER_MAX_CONNECTIONS);
    if kind == Some(LoadType::Concurrent) {
        return None;
    }
    if connections < each.unwrap_or(WORKER_MAX_CONCURRENCY) {
        load.log.problem(format!(
            "{} = {connections} is below {} = {}: requests that wait for a connection are not replayed; raise it",
            load.path_of("worker_max_tcp_connections"),
            load.path_of("worker_max_concurrency"),
            each.unwrap_or(WORKER_MAX_CONCURRENCY)
        ));
    }
    if let (None, Some(each)) = (workers, each) {
        load.log.note(format!(
            "{} = {each} limits each worker, but load.num_workers is not given: no limit is replayed",
            load.path_of("worker_max_concurrency")
        ));
    }
    workers.map(|workers| workers * each.unwrap_or(WORKER_MAX_CONCURRENCY))
}

fn stages(load: &Section<'_>, kind: Option<LoadType>) -> Vec<StageLoad> {
    let list = match load.get("stages") {
        Some(Value::Array(list)) if !list.is_empty() && list.len() <= MAX_STAGES as usize => list,
        Some(other) => {
            load.problem("stages", other, &format!("must be a list of 1 to {MAX_STAGES} stages"));
            return Vec::new();
        }
        None => {
            load.missing("stages", "a list of stages, as in [{rate: 5, duration: 60}]");
            return Vec::new();
        }
    };
    let mut stages = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let stage = Section::new(&load.path_of(&format!("stages[{index}]")), Some(value), load.log);
        match kind {
            _ if !value.is_object() => {}
            Some(LoadType::Concurrent) => stages.extend(concurrent_stage(&stage)),
            Some(kind) => stages.extend(rate_stage(&stage, kind, value)),
            None => stage.ignore(&["rate", "duration", "num_requests", "concurrency_level"]),
        }
        stage.finish();
    }
    let total = stages.iter().map(StageLoad::num_requests).fold(0, u64::saturating_add);
    if total > MAX_REQUESTS {
        load.log
            .problem(format!("{} send {total} requests, at most {MAX_REQUESTS} are possible", load.path_of("stages")));
    }
    stages
}

/// Keeps the clock of a replay, 64 bits of ns, from its end.
fn check_total_time(load: &Section<'_>, stages: &[StageLoad], interval_s: f64) {
    let duration_s = |stage: &StageLoad| match stage {
        StageLoad::Constant { duration_s, .. } | StageLoad::Poisson { duration_s, .. } => *duration_s,
        StageLoad::Concurrent { .. } => 0.0,
    };
    let pauses = stages.len().saturating_sub(1) as f64;
    let total_s = stages.iter().map(duration_s).sum::<f64>() + pauses * interval_s;
    let limit_s = (MAX_TIME_NS / NS_PER_S) as f64;
    if total_s > limit_s {
        load.log.problem(format!(
            "{} and the pauses between them take {total_s:.0} s, at most {limit_s} s are possible",
            load.path_of("stages")
        ));
    }
}

fn rate_stage(stage: &Section<'_>, kind: LoadType, value: &Value) -> Option<StageLoad> {
    let rate = stage.number("rate", NumberRange::positive(MAX_RATE_PER_S, "requests per second"));
    let duration = stage.number("duration", NumberRange::positive(MAX_DURATION_S, "s"));
    for (key, absent) in [("rate", stage.get("rate").is_none()), ("duration", stage.get("duration").is_none())] {
        if absent {
            stage.missing(key, "a constant or poisson load has it in every stage");
        }
    }
    for key in ["num_requests", "concurrency_level"] {
        stage.refuse(key, "belongs to load.type concurrent: remove it, or change the type");
    }
    let (rate_per_s, duration_s) = (rate?, duration?);
    let load = match kind {
        LoadType::Poisson => StageLoad::Poisson { rate_per_s, duration_s },
        _ => StageLoad::Constant { rate_per_s, duration_s },
    };
    if load.num_requests() == 0 {
        let name = stage.path_of("");
        let name = name.trim_end_matches('.');
        stage.log.problem(format!("{name} = {} sends no request: rate × duration must be at least 1", shown(value)));
    }
    Some(load)
}

fn concurrent_stage(stage: &Section<'_>) -> Option<StageLoad> {
    let num_requests = stage.count("num_requests", 1, MAX_REQUESTS);
    let level = stage.count("concurrency_level", 1, u64::from(u32::MAX));
    for key in ["num_requests", "concurrency_level"] {
        if stage.get(key).is_none() {
            stage.missing(key, "a concurrent load has it in every stage");
        }
    }
    for key in ["rate", "duration"] {
        stage.refuse(key, "belongs to load.type constant or poisson: remove it, or change the type");
    }
    Some(StageLoad::Concurrent { concurrency_level: u32::try_from(level?).ok()?, num_requests: num_requests? })
}
