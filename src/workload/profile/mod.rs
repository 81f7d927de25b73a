//! inference-perf's `profile.yaml`: a load in stages. Only what shapes the load is read; keys without influence on it are
//! known by name, and any other key is an error. Uses `staged`, `prompts`, `summary`,
//! `yaml`.

mod data;
mod load;
mod section;

use std::path::Path;

use serde_json::Value;

use super::prompts::{PromptStream, Prompts};
use super::staged::{StageLoad, StagedLoad};
use super::summary::Summary;
use super::{Workload, limits};
use crate::error::{Error, Result};
use crate::input;
use section::{Log, NumberRange, Section};

/// A checked profile.
///
/// `enable_multi_turn_chat` is accepted and changes nothing: in the measured runs that set it, prompts kept one length
/// over a whole run and requests did not wait for each other, so that all turns of a user are the same prompt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Path or name of the profile.
    pub origin: String,
    /// Stages, in order.
    pub stages: Vec<StageLoad>,
    /// What requests ask.
    pub prompts: Prompts,
    /// `load.interval` in ns: the wait between stages that comes on top of closing one and starting the next.
    pub interval_ns: u64,
    /// Most requests in flight of a constant or poisson stage, `num_workers × worker_max_concurrency`; `None` where
    /// `num_workers` is not given. Further ones are sent as soon as one is finished.
    pub max_in_flight: Option<u64>,
    /// What a user should know: defaults that were used, settings that are not replayed.
    pub notes: Vec<String>,
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// `ErrorKind::Io` where the file can't be read, `ErrorKind::Parse` where it is no text or longer than 16 MiB, else as
    /// [`parse`](Self::parse).
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&path.display().to_string(), &input::read_text(path)?)
    }

    /// Reads the text of a profile, YAML or JSON, that is called `origin` in messages.
    ///
    /// # Errors
    /// `ErrorKind::Parse` where the text is neither, `ErrorKind::Invalid` with all problems: unknown keys, keys that would change
    /// the load in a way that is not replayed, rates, durations, lengths and counts out of range.
    pub fn parse(origin: &str, text: &str) -> Result<Self> {
        let parsed = input::parse_yaml(origin, text)?;
        if parsed.is_null() {
            let message = "is empty: a profile has `load` and `data`".to_owned();
            return Err(Error::parse(origin, message));
        }
        let log = Log::default();
        let found = read(&parsed, &log);
        let (problems, notes) = log.into_parts();
        limits::check(origin, problems)?;
        let (load, prompts) = found;
        let Some(prompts) = prompts else {
            let problems = vec!["data does not say what requests ask".to_owned()];
            return Err(Error::invalid(origin, problems));
        };
        Ok(Profile {
            origin: origin.to_owned(),
            stages: load.stages,
            prompts,
            interval_ns: load.interval_ns,
            max_in_flight: load.max_in_flight,
            notes,
        })
    }

    /// The load; arrivals, lengths and the order of prompts are drawn from `seed`.
    pub fn staged_load(&self, seed: u64) -> StagedLoad {
        StagedLoad::new(&self.stages, &self.prompts, self.interval_ns, self.max_in_flight, seed)
    }

    /// The load, for whoever does not care of which kind it is.
    pub fn workload(&self, seed: u64) -> Box<dyn Workload + Send> {
        Box::new(self.staged_load(seed))
    }

    /// What the load of this seed comes to.
    pub fn summary(&self, seed: u64) -> Summary {
        let mut prompts = PromptStream::new(&self.prompts, seed);
        let positions = |(stage, load): (usize, &StageLoad)| (0..load.num_requests()).map(move |i| (stage as u32, i));
        Summary::of(self.stages.iter().enumerate().flat_map(positions).map(|(stage, position)| {
            if position == 0 {
                prompts.restart();
            }
            let prompt = prompts.next();
            (stage, prompt.num_prompt_tokens, prompt.num_output_tokens)
        }))
    }
}

/// Reads all sections, in the order in which their problems are told.
fn read(profile: &Value, log: &Log) -> (load::Load, Option<Prompts>) {
    let top = Section::new("", Some(profile), log);
    for key in ["load", "data"] {
        if top.get(key).is_none() {
            top.missing(key, "a profile says which requests are sent when");
        }
    }
    let scrape_interval_s = without_influence(&top);
    let load = load::read(top.section("load"), scrape_interval_s);
    let most_requests = load.stages.iter().map(StageLoad::num_requests).max().unwrap_or(0);
    let prompts = data::read(top.section("data"), most_requests);
    server(top.section("server"));
    top.refuse("circuit_breakers", "is not supported, as it ends stages early: remove it");
    top.finish();
    (load, prompts)
}

fn server(server: Section<'_>) {
    server.ignore(&["type", "model_name", "base_url", "api_key"]);
    if !server.flag("ignore_eos", true) {
        server.problem(
            "ignore_eos",
            &Value::Bool(false),
            "leaves it to the model how long outputs are: set it to true, or give the measured requests as a list",
        );
    }
    server.finish();
}

/// Sections that say how to talk, measure and store. Returns the least pause between stages that Prometheus asks for, s.
///
/// # Source
/// inference-perf 0.3.0, `config.py`, `main.py`.
fn without_influence(top: &Section<'_>) -> Option<f64> {
    let api = top.section("api");
    api.ignore(&["streaming", "headers"]);
    if api.text("type").is_some_and(|kind| kind != "completion") {
        api.log.note("api.type is not completion: tokens that a chat template adds to prompts are not counted".into());
    }
    api.finish();
    let tokenizer = top.section("tokenizer");
    tokenizer.ignore(&["pretrained_model_name_or_path", "trust_remote_code", "token"]);
    tokenizer.finish();
    let storage = top.section("storage");
    for key in ["local_storage", "google_cloud_storage", "simple_storage_service"] {
        let place = storage.section(key);
        place.ignore(&["path", "report_file_prefix", "bucket_name"]);
        place.finish();
    }
    storage.finish();

    let report = top.section("report");
    let lifecycle = report.section("request_lifecycle");
    lifecycle.ignore(&["summary", "per_stage", "per_request"]);
    lifecycle.finish();
    let prometheus = report.section("prometheus");
    prometheus.ignore(&["summary"]);
    let per_stage = prometheus.flag("per_stage", false);
    prometheus.finish();
    report.finish();

    let metrics = top.section("metrics");
    let scrapes = metrics.text("type") == Some("prometheus") && metrics.get("prometheus").is_some();
    let prometheus = metrics.section("prometheus");
    prometheus.ignore(&["url", "filters", "google_managed"]);
    let range = NumberRange::positive(limits::MAX_DURATION_S, "s");
    let interval_s = prometheus.number("scrape_interval", range).unwrap_or(15.0);
    prometheus.finish();
    metrics.finish();
    (per_stage && scrapes).then_some(interval_s)
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
