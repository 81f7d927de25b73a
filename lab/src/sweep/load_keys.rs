//! `[load]` of a grid: which keys go together, and the load that one value of each makes.

use std::sync::Arc;

use ridgepoint::input::{Keys, Log};
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::requests::{Format, RequestFile};
use ridgepoint_replay::workload::{GeneratedLoad, load_arguments};
use serde_json::{Map, Value};

use super::load::{LoadPoint, Source};

/// Keys of the file of requests. They have one value for the whole grid.
pub(super) const FILE_KEYS: [&str; 3] = ["profile", "requests", "requests_format"];

/// Keys that change slower than the others, the slowest first.
const SLOWEST: [&str; 8] =
    ["num_requests", "num_sessions", "turns", "prefix_len", "think_time_s", "input_len", "output_len", "burstiness"];

/// What all loads of a grid share.
pub(super) struct Loads {
    pub(super) source: Source,
    /// The keys that may have several values, the slowest first, with defaults where a grid does not say.
    pub(super) keys: Vec<(String, Value)>,
    /// The key that names the file of requests, if there is one.
    file: Option<&'static str>,
}

impl Loads {
    /// Reads what the loads share. With `is_capacity` the rates are searched for, and none may be given.
    pub(super) fn read(section: &Keys<'_>, is_capacity: bool) -> Self {
        let rows = load_arguments();
        let name_of = |key: &str| rows.name_of(key).unwrap_or_default();
        let has = |name: &str| section.entries().any(|(key, value)| !value.is_null() && name_of(key) == name);
        let given: Vec<&str> =
            ["profile", "requests", "concurrency", "request_rate"].into_iter().filter(|key| has(key)).collect();
        let fits = matches!(
            (given.as_slice(), is_capacity),
            ([_] | ["requests", "request_rate" | "concurrency"], false) | ([] | ["requests"], true)
        );
        if !fits {
            let found = if given.is_empty() { "no load".to_owned() } else { given.join(" and ") };
            section.log.problem(format!(
                "[load] has {found}: give one of request_rate, concurrency, requests or profile (the times of requests are \
                 scaled to a request_rate given with them); with [slo], which finds the highest rate, give requests or none"
            ));
        }
        let source = source(section, is_capacity || has("request_rate"), has("concurrency"));
        let file = given.first().copied().filter(|key| FILE_KEYS.contains(key));
        let mut keys: Vec<(String, Value)> =
            section.entries().map(|(key, value)| (key.clone(), value.clone())).collect();
        // Defaults are part of a load's settings, so that a grid may later list other values as well.
        if !has("seed") && (file != Some("requests") || source.lacks_arrivals()) {
            keys.push(("seed".to_owned(), 0.into()));
        }
        if !has("burstiness") && (file.is_none() || source.lacks_arrivals()) && !has("concurrency") {
            keys.push(("burstiness".to_owned(), 1.into()));
        }
        keys.sort_by_key(|(key, _)| SLOWEST.iter().position(|slow| *slow == name_of(key)).unwrap_or(SLOWEST.len()));
        Loads { source, keys, file }
    }

    /// Reads the load that one value of each key makes; `None` only after a problem.
    pub(super) fn point(&self, map: &Map<String, Value>, log: &Log) -> Option<LoadPoint> {
        let given = load_arguments().read("load", map, log);
        let generated = GeneratedLoad::from_given(&given);
        let keys = given.keys(log);
        if self.file == Some("requests") && !self.source.lacks_arrivals() {
            keys.refuse("seed", "changes nothing: the requests of a file are not drawn");
        }
        // A rate that is searched for needs no more than its load.
        if self.file.is_none() && !keys.has("request_rate") && !keys.has("concurrency") {
            let number = if keys.has("turns") { "num_sessions" } else { "num_requests" };
            keys.require(&["input_len", "output_len", number]);
        }
        Some(LoadPoint { generated, seed: given.get("seed").unwrap_or(0) })
    }
}

/// Reads the file of requests, if there is one.
fn source(keys: &Keys<'_>, needs_rate: bool, has_concurrency: bool) -> Source {
    let names = Format::ALL.map(Format::name).join(", ");
    let format = keys.read("requests_format", format_args!("one of {names}"), |value| value.as_str()?.parse().ok());
    let failed = |key: &str, error| keys.log.problem(format!("[load] {key}: {error}"));
    if let Some(path) = keys.text("profile") {
        match Profile::read(path.as_ref()) {
            Ok(profile) => return Source::Profile(Arc::new(profile)),
            Err(error) => failed("profile", error),
        }
    } else if let Some(path) = keys.text("requests") {
        match RequestFile::read(path.as_ref(), format) {
            Ok(file) if file.lacks_arrivals && !needs_rate && !has_concurrency => keys.log.problem(format!(
                "[load] requests: {path} does not say when its requests arrive: give request_rate or concurrency"
            )),
            Ok(file) if !file.lacks_arrivals && has_concurrency => keys.log.problem(format!(
                "[load] requests: {path} says when its requests arrive: leave out concurrency, or the column of the arrivals"
            )),
            Ok(file) if !file.lacks_arrivals && needs_rate && file.list().mean_rate_per_s().is_none() => keys.log.problem(format!(
                "[load] requests: {path} sends everything at once, so its times cannot be scaled to a rate"
            )),
            Ok(file) => return Source::Requests(Arc::new(file)),
            Err(error) => failed("requests", error),
        }
    } else {
        keys.refuse("requests_format", "says what kind of file `requests` is, and there is none");
    }
    Source::Generated
}

#[cfg(test)]
#[path = "load_keys_tests.rs"]
mod tests;
