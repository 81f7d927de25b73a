//! `[load]` of a grid: which keys go together, and the load that one value of each makes.

use std::sync::Arc;

use ridgepoint::input::{Keys, NumberRange};
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::requests::{Format, RequestFile};
use ridgepoint_replay::workload::{MAX_RATE_PER_S, MAX_REQUESTS, MAX_TOKENS, NormalLengths};
use serde_json::Value;

use super::load::{LoadPoint, SessionPoint, Source};

/// Requests per request in flight of a closed loop whose number of requests is not given.
const ROUNDS: u64 = 10;

/// Keys of the file of requests. They have one value for the whole grid.
pub(super) const FILE_KEYS: [&str; 3] = ["profile", "requests", "requests_format"];

/// Keys that change slower than the others, the slowest first.
const SLOWEST: [&str; 8] = [
    "num_requests",
    "num_sessions",
    "turns",
    "prefix_len_tokens",
    "think_time_s",
    "input_len_tokens",
    "output_len_tokens",
    "burstiness",
];

/// Keys of sessions.
const SESSION_KEYS: [&str; 4] = ["turns", "num_sessions", "prefix_len_tokens", "think_time_s"];

/// Longest mean think time, s.
const MAX_THINK_S: f64 = 1e8;

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
        let given: Vec<&str> = ["profile", "requests", "concurrency", "request_rate_per_s"]
            .into_iter()
            .filter(|key| section.has(key))
            .collect();
        let fits = matches!(
            (given.as_slice(), is_capacity),
            ([_] | ["requests", "request_rate_per_s"], false) | ([] | ["requests"], true)
        );
        if !fits {
            let found = if given.is_empty() { "no load".to_owned() } else { given.join(" and ") };
            section.log.problem(format!(
                "[load] has {found}: give one of request_rate_per_s, concurrency, requests or profile (the times of requests are \
                 scaled to a request_rate_per_s beside them); with [slo], which finds the highest rate, give requests or none"
            ));
        }
        let source = source(section, is_capacity || section.has("request_rate_per_s"));
        let file = given.first().copied().filter(|key| FILE_KEYS.contains(key));
        let mut keys: Vec<(String, Value)> =
            section.entries().map(|(key, value)| (key.clone(), value.clone())).collect();
        // Defaults are part of a load's settings, so that a grid may later list other values beside them.
        if !section.has("seed") && file != Some("requests") {
            keys.push(("seed".to_owned(), 0.into()));
        }
        if !section.has("burstiness") && file.is_none() && !section.has("concurrency") {
            keys.push(("burstiness".to_owned(), 1.into()));
        }
        keys.sort_by_key(|(key, _)| SLOWEST.iter().position(|slow| slow == key).unwrap_or(SLOWEST.len()));
        Loads { source, keys, file }
    }

    /// Reads the load that one value of each key makes; `None` only after a problem.
    pub(super) fn point(&self, keys: Keys<'_>) -> Option<LoadPoint> {
        keys.ignore(&FILE_KEYS);
        let rate_per_s =
            keys.number("request_rate_per_s", NumberRange::above_zero(MAX_RATE_PER_S, "requests per second"));
        let concurrency = keys.whole("concurrency", 1..=u32::try_from(MAX_REQUESTS / ROUNDS).unwrap_or(u32::MAX));
        let burstiness = keys.read("burstiness", "a number from 0.001 to 1000; 1 is Poisson", |value| {
            value.as_f64().filter(|shape| (0.001..=1000.0).contains(shape))
        });
        let num_requests = keys.whole("num_requests", 1..=MAX_REQUESTS);
        let turns = keys.whole("turns", 1..=MAX_TOKENS);
        let num_sessions = keys.whole("num_sessions", 1..=MAX_REQUESTS);
        let prefix_len_tokens = keys.whole("prefix_len_tokens", 0..=MAX_TOKENS);
        let think_time_s = keys.number("think_time_s", NumberRange::from_zero(MAX_THINK_S, "s"));
        let seed = keys.whole("seed", 0..=i64::MAX as u64).unwrap_or(0);
        let length = |key| {
            let expected = format_args!(
                "a whole number of tokens from 1 to {MAX_TOKENS}, or {{ min, max, mean, std_dev }} with min <= mean <= max"
            );
            keys.read(key, expected, read_lengths)
        };
        let lengths = length("input_len_tokens").zip(length("output_len_tokens"));
        if let Some(file) = self.file {
            for key in
                ["input_len_tokens", "output_len_tokens", "num_requests", "burstiness"].into_iter().chain(SESSION_KEYS)
            {
                keys.refuse(key, "has no place beside a file of requests, which has its own");
            }
            if file == "requests" {
                keys.refuse("seed", "changes nothing: the requests of a file are not drawn");
            }
        } else {
            keys.require(&["input_len_tokens", "output_len_tokens"]);
            if concurrency.is_some() {
                let reason = "has no place beside concurrency, which sends a request when another one finishes";
                keys.refuse("burstiness", reason);
            } else {
                keys.require(&[if turns.is_none() { "num_requests" } else { "num_sessions" }]);
            }
            if keys.has("turns") {
                keys.refuse("num_requests", "has no place beside turns: give num_sessions, each of so many turns");
            } else {
                for key in ["num_sessions", "think_time_s"] {
                    keys.refuse(key, "is of sessions: give turns");
                }
            }
        }
        let session = (turns.is_some() || prefix_len_tokens.is_some()).then(|| SessionPoint {
            turns: turns.unwrap_or(1),
            prefix_len_tokens: prefix_len_tokens.unwrap_or(0),
            think_time_s: think_time_s.unwrap_or(0.0),
        });
        let rounds = concurrency.map(|concurrency| ROUNDS * u64::from(concurrency));
        keys.finish();
        Some(LoadPoint {
            rate_per_s,
            concurrency,
            burstiness: burstiness.unwrap_or(1.0),
            lengths,
            num_requests: num_sessions.or(num_requests).or(rounds),
            session,
            seed,
        })
    }
}

/// Reads the file of requests, if there is one.
fn source(keys: &Keys<'_>, needs_rate: bool) -> Source {
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
            Ok(file) if needs_rate && file.list().mean_rate_per_s().is_none() => keys.log.problem(format!(
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

fn read_lengths(value: &Value) -> Option<NormalLengths> {
    let tokens = |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|count| (1..=MAX_TOKENS).contains(count));
    let Value::Object(table) = value else { return tokens(value).map(NormalLengths::fixed) };
    let (min, max) = (tokens(table.get("min")?)?, tokens(table.get("max")?)?);
    let (mean, std_dev) = (table.get("mean")?.as_f64()?, table.get("std_dev")?.as_f64()?);
    let is_possible = table.len() == 4 && (f64::from(min)..=f64::from(max)).contains(&mean);
    let is_possible = is_possible && (0.0..=f64::from(MAX_TOKENS)).contains(&std_dev);
    is_possible.then_some(NormalLengths { min, max, mean, std_dev })
}

#[cfg(test)]
#[path = "load_keys_tests.rs"]
mod tests;
