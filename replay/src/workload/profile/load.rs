//! `load` of a profile: the stages, and the limit on requests in flight.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use ridgepoint::input::{Keys, NumberRange, shown};
use ridgepoint::units::NS_PER_S;
use serde_json::Value;

use super::INFERENCE_PERF;
use crate::workload::limits::{MAX_DURATION_S, MAX_RATE_PER_S, MAX_REQUESTS, MAX_STAGES, MAX_TIME_NS};
use crate::workload::staged::StageLoad;

/// Default limit on the requests in flight of one worker of inference-perf.
///
/// # Source
/// inference-perf 0.3.0, `config.py`, `LoadConfig`.
const WORKER_MAX_CONCURRENCY: u64 = 100;
/// Default limit on the connections of one worker; the same source.
const WORKER_MAX_CONNECTIONS: u64 = 2500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadType {
    Constant,
    Poisson,
    Concurrent,
}

/// The contents of `load`.
#[derive(Debug)]
pub(super) struct ProfileLoad {
    pub(super) stages: Vec<StageLoad>,
    pub(super) interval_ns: u64,
    pub(super) max_in_flight: Option<u64>,
}

/// Reads `load`; problems go to its log. `scrape_interval_s` is the least pause that metrics ask for.
pub(super) fn read(load: Keys<'_>, scrape_interval_s: Option<f64>) -> ProfileLoad {
    let kind = load.or_default("type", load.text("type"), "constant", INFERENCE_PERF);
    let kind = match kind {
        "constant" => Some(LoadType::Constant),
        "poisson" => Some(LoadType::Poisson),
        "concurrent" => Some(LoadType::Concurrent),
        other => {
            let way_out = if other == "trace_replay" { "; give the trace itself as a file of requests" } else { "" };
            load.problem("type", format!("is not supported: use constant, poisson or concurrent{way_out}"));
            None
        }
    };
    load.refuse("sweep", "is not supported, because its stages depend on the measured server: write the stages out");
    load.refuse("trace", "is not supported: give the trace itself as a file of requests");
    load.refuse("circuit_breakers", "is not supported, because it ends stages early: remove it");
    load.refuse("request_timeout", "is not supported, because it cancels requests: remove it");

    let interval_s = load.number("interval", NumberRange::from_zero(MAX_DURATION_S, "s")).unwrap_or(1.0);
    let interval_s = scrape_interval_s.map_or(interval_s, |scrape_s| scrape_s.max(interval_s));
    let max_in_flight = max_in_flight(&load, kind);
    let stages = stages(&load, kind);
    check_total_time(&load, &stages, interval_s);
    load.finish();
    ProfileLoad { stages, interval_ns: (interval_s * NS_PER_S as f64).round() as u64, max_in_flight }
}

/// Returns the limit on the requests in flight of all workers together. The default of `num_workers` is the number of cores of
/// the client's machine, which a profile does not contain.
fn max_in_flight(load: &Keys<'_>, kind: Option<LoadType>) -> Option<u64> {
    let workers = load.whole("num_workers", 1..=1_u64 << 20);
    let each = load.whole("worker_max_concurrency", 1..=1_u64 << 20);
    let connections = load.whole("worker_max_tcp_connections", 1..=1_u64 << 20).unwrap_or(WORKER_MAX_CONNECTIONS);
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

fn stages(load: &Keys<'_>, kind: Option<LoadType>) -> Vec<StageLoad> {
    load.require(&["stages"]);
    let list = load.read("stages", format_args!("a list of 1 to {MAX_STAGES} stages"), |value| {
        value.as_array().filter(|list| (1..=MAX_STAGES as usize).contains(&list.len()))
    });
    let mut stages = Vec::new();
    for (index, value) in list.into_iter().flatten().enumerate() {
        let stage = Keys::new(&load.path_of(&format!("stages[{index}]")), value, load.log);
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

/// Checks that the load ends before the clock of a replay, 64 bits of ns, overflows.
fn check_total_time(load: &Keys<'_>, stages: &[StageLoad], interval_s: f64) {
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

fn rate_stage(stage: &Keys<'_>, kind: LoadType, value: &Value) -> Option<StageLoad> {
    let rate = stage.number("rate", NumberRange::above_zero(MAX_RATE_PER_S, "requests per second"));
    let duration = stage.number("duration", NumberRange::above_zero(MAX_DURATION_S, "s"));
    stage.require(&["rate", "duration"]);
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

fn concurrent_stage(stage: &Keys<'_>) -> Option<StageLoad> {
    let num_requests = stage.whole("num_requests", 1..=MAX_REQUESTS);
    let level = stage.whole("concurrency_level", 1..=u32::MAX);
    stage.require(&["num_requests", "concurrency_level"]);
    for key in ["rate", "duration"] {
        stage.refuse(key, "belongs to load.type constant or poisson: remove it, or change the type");
    }
    Some(StageLoad::Concurrent { concurrency_level: level?, num_requests: num_requests? })
}
