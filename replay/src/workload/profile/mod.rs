//! inference-perf's `profile.yaml`: a load in stages. Keys that do not shape the load are known by name and ignored; any other
//! key is an error.

mod data;
mod load;

use std::path::Path;

use ridgepoint::input::{FileKind, Keys, Log, NumberRange, read_text};
use ridgepoint::{Error, Result};
use serde_json::Value;

use super::arrivals::ArrivalPattern;
use super::prompts::{PromptStream, Prompts};
use super::sessions::{GeneratedSessions, SessionShape, SessionStarts};
use super::staged::{StageLoad, StagedLoad, most_requests};
use super::summary::Summary;
use super::{Workload, WorkloadRequest, limits};
use crate::input::parse_yaml;

/// The owner of the defaults in notes.
const INFERENCE_PERF: &str = "inference-perf's";

/// A checked profile.
///
/// With `enable_multi_turn_chat: true` it is read as inference-perf up to 0.2.0 does, and a note says so: that key and the newer names of
/// `num_groups` and `num_prompts_per_group` are ignored, as measured runs of such profiles show. Prompts that grow with their conversation are
/// the type `sessions`, an addition to inference-perf's.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Path or name of the profile.
    pub origin: String,
    /// Stages, in order.
    pub stages: Vec<StageLoad>,
    /// The prompts; of sessions, the new tokens of a turn.
    pub prompts: Prompts,
    /// The sessions of the stage, in place of single requests.
    sessions: Option<GeneratedSessions>,
    /// `load.interval` in ns: the pause between stages, in addition to the time to close one and start the next.
    pub interval_ns: u64,
    /// Most requests in flight of a constant or poisson stage, `num_workers × worker_max_concurrency`; `None` without
    /// `num_workers`. Further requests are sent as soon as one is finished.
    pub max_in_flight: Option<u64>,
    /// Notes for users: defaults, and settings that are not replayed.
    pub notes: Vec<String>,
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// `ErrorKind::Io` for a file that can't be read, `ErrorKind::Parse` for one that is not text or longer than 16 MiB, and
    /// those of [`parse`](Self::parse).
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&path.display().to_string(), &read_text(FileKind::Profile, path)?)
    }

    /// Parses the text of a profile, YAML or JSON, that errors call `origin`.
    ///
    /// # Errors
    /// `ErrorKind::Parse` for other text. `ErrorKind::Invalid` with all problems: unknown keys, keys that change the load in a
    /// way that is not replayed, and rates, durations, lengths and counts out of range.
    pub fn parse(origin: &str, text: &str) -> Result<Self> {
        let parsed = parse_yaml(origin, text)?;
        if parsed.is_null() {
            return Err(Error::parse(origin, "is empty: a profile has `load` and `data`"));
        }
        let log = Log::default();
        let (load, data) = read(&parsed, &log);
        let sessions = data.as_ref().and_then(|(prompts, turns)| sessions(&load, prompts, (*turns)?, &log));
        let ((prompts, _), notes) = log.finish(origin, data)?;
        Ok(Profile {
            origin: origin.to_owned(),
            stages: load.stages,
            prompts,
            sessions,
            interval_ns: load.interval_ns,
            max_in_flight: load.max_in_flight,
            notes,
        })
    }

    /// Returns the number of requests, which does not depend on the seed.
    pub fn num_requests(&self) -> u64 {
        if let Some(sessions) = &self.sessions {
            return sessions.num_requests();
        }
        self.stages.iter().map(StageLoad::num_requests).sum()
    }

    /// Returns the load. Arrivals, lengths and the order of prompts are drawn from `seed`.
    pub fn workload(&self, seed: u64) -> Box<dyn Workload + Send> {
        if let Some(sessions) = &self.sessions {
            return Box::new(sessions.clone().with_seed(seed).workload());
        }
        Box::new(StagedLoad::new(&self.stages, &self.prompts, self.interval_ns, self.max_in_flight, seed))
    }

    /// Returns the summary of the load of this seed.
    pub fn summary(&self, seed: u64) -> Summary {
        if let Some(sessions) = &self.sessions {
            return sessions.summary();
        }
        let prompts = PromptStream::new(&self.prompts, seed, most_requests(&self.stages));
        Summary::of((0..).zip(&self.stages).flat_map(|(stage, load)| {
            let sent = (0..load.num_requests()).zip(prompts.stage());
            sent.map(move |(_, request)| WorkloadRequest { stage, ..request })
        }))
    }
}

/// The sessions of a profile, whose one stage says when they start: its rate, its length and its level of concurrency count sessions.
fn sessions(load: &load::ProfileLoad, prompts: &Prompts, turns: data::Turns, log: &Log) -> Option<GeneratedSessions> {
    let ([stage], Prompts::Random { input, output }) = (load.stages.as_slice(), prompts) else {
        if !load.stages.is_empty() {
            log.problem("load.stages must have one stage for data.type sessions, which can last beyond a stage");
        }
        return None;
    };
    if load.max_in_flight.is_some() {
        log.note("load.num_workers holds no turn of a session back");
    }
    let starts = match *stage {
        StageLoad::Constant { rate_per_s, .. } | StageLoad::Poisson { rate_per_s, .. } => {
            SessionStarts::Rate { pattern: ArrivalPattern::Poisson, per_s: rate_per_s }
        }
        StageLoad::Concurrent { concurrency_level, .. } => SessionStarts::Concurrency(concurrency_level),
    };
    let data::Turns { turns, prefix_len, think_time_s } = turns;
    let shape = SessionShape { turns, prefix_len, input: *input, output: *output, think_time_s };
    let faults =
        |error: Error| error.problems().iter().for_each(|fault| log.problem(format!("data.sessions: {fault}")));
    let sessions = GeneratedSessions::new(starts, stage.num_requests(), shape, 0).map_err(faults).ok()?;
    sessions.lockstep().iter().for_each(|note| log.note(note));
    Some(sessions)
}

/// Reads all sections; no prompts mean a problem.
fn read(profile: &Value, log: &Log) -> (load::ProfileLoad, Option<(Prompts, Option<data::Turns>)>) {
    let top = Keys::new("", profile, log);
    top.require(&["load", "data"]);
    let scrape_interval_s = without_influence(&top);
    let load = load::read(top.section_or_empty("load"), scrape_interval_s);
    let prompts = data::read(top.section_or_empty("data"), most_requests(&load.stages));
    let server = top.section_or_empty("server");
    server.ignore(&["type", "model_name", "base_url", "api_key"]);
    if server.flag("ignore_eos") == Some(false) {
        server.problem(
            "ignore_eos",
            "leaves the length of outputs to the model: set it to true, or give the measured requests as a list",
        );
    }
    server.finish();
    top.refuse("circuit_breakers", "is not supported, because it ends stages early: remove it");
    top.finish();
    (load, prompts)
}

/// Reads the sections about protocol, measurement and storage. Returns the least pause between stages that Prometheus asks
/// for, s.
///
/// # Source
/// inference-perf 0.3.0, `config.py`, `main.py`.
fn without_influence(top: &Keys<'_>) -> Option<f64> {
    top.ignore(&["tokenizer", "storage"]);
    let api = top.section_or_empty("api");
    api.ignore(&["streaming", "headers"]);
    if api.text("type").is_some_and(|kind| kind != "completion") {
        api.log.note("api.type is not completion: tokens that a chat template adds to prompts are not counted");
    }
    let report = top.section_or_empty("report");
    report.ignore(&["request_lifecycle"]);
    let reported = report.section_or_empty("prometheus");
    reported.ignore(&["summary"]);
    let per_stage = reported.flag("per_stage") == Some(true);
    let metrics = top.section_or_empty("metrics");
    let scrapes = metrics.text("type") == Some("prometheus") && metrics.has("prometheus");
    let scraped = metrics.section_or_empty("prometheus");
    scraped.ignore(&["url", "filters", "google_managed"]);
    let range = NumberRange::above_zero(limits::MAX_DURATION_S, "s");
    let interval_s = scraped.number("scrape_interval", range).unwrap_or(15.0);
    [api, report, reported, metrics, scraped].into_iter().for_each(Keys::finish);
    (per_stage && scrapes).then_some(interval_s)
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
