//! `[load]` of a grid, read and multiplied out.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use ridgepoint::internals::input::{Keys, NumberRange};
use ridgepoint::workload::profile::Profile;
use ridgepoint::workload::requests::{Format, RequestFile};
use ridgepoint::workload::{MAX_RATE_PER_S, MAX_REQUESTS, MAX_TOKENS, NormalLengths};
use serde_json::Value;

use super::grid::Setting;
use super::keys::list;
use super::load::{Level, LoadPoint, Source, mean_rate_per_s};

/// Requests per request in flight of a closed loop whose number of requests is not given.
const ROUNDS: u64 = 10;

/// Reads `[load]`. With `is_capacity` the rates are searched for, and none may be given. Problems go to the keys' log, and then the
/// loads are incomplete.
pub(super) fn read(keys: Keys<'_>, is_capacity: bool) -> (Source, Vec<Setting<LoadPoint>>) {
    let profile = keys.text("profile").map(PathBuf::from);
    let requests = keys.text("requests").map(PathBuf::from);
    let rate = NumberRange::above_zero(MAX_RATE_PER_S, "requests per second");
    let rates =
        list(&keys, "request_rate_per_s", &rate.to_string(), |value| number(value).filter(|of| rate.contains(*of)));
    let in_flight = 1..=MAX_REQUESTS / ROUNDS;
    let concurrencies = list(&keys, "concurrency", "a whole number of requests in flight, at least 1", |value| {
        whole(value, &in_flight).and_then(|count| u32::try_from(count).ok())
    });
    let kinds: Vec<&str> = ["profile", "requests", "concurrency"].into_iter().filter(|key| keys.has(key)).collect();
    let has_rate = keys.has("request_rate_per_s");
    let source = match (profile, requests) {
        (Some(path), None) => profile_of(path, &keys),
        (None, Some(path)) => requests_of(path, has_rate || is_capacity, &keys),
        _ => Source::Generated,
    };
    if !keys.has("requests") {
        refuse(&keys, "requests_format", "says what kind of file `requests` is, and there is none");
    }
    match (kinds.as_slice(), has_rate, is_capacity) {
        (["profile"], false, false) | (["requests"], _, false) | (["concurrency"], false, false) => {}
        ([], true, false) | ([] | ["requests"], false, true) => {}
        ([], false, false) => keys.log.problem(
            "[load] has no load: give request_rate_per_s, concurrency, requests or profile, or limits in [slo] to find the highest rate",
        ),
        (_, _, true) => keys.log.problem(
            "[load] has rates of its own beside [slo], which finds the highest: leave request_rate_per_s, concurrency and profile out \
             (requests may stay, its times are scaled), or leave [slo] out",
        ),
        _ => keys.log.problem(
            "[load] has more than one load: give one of request_rate_per_s, concurrency, requests or profile (requests may have a \
             request_rate_per_s: its times are scaled to the rate)",
        ),
    }
    let levels: Vec<Level> = match (is_capacity, has_rate, concurrencies.is_empty()) {
        (true, ..) => vec![Level::Capacity],
        (_, true, _) => rates.into_iter().map(Level::Rate).collect(),
        (_, _, false) => concurrencies.into_iter().map(Level::Concurrency).collect(),
        _ => vec![Level::AsRecorded],
    };
    let points = match kinds.first() {
        Some(&"profile" | &"requests") => of_file(levels, &keys),
        _ => of_lengths(levels, &keys),
    };
    keys.finish();
    let settings = settings(&source, points);
    (source, settings)
}

/// Records a key that has no place beside the others.
fn refuse(keys: &Keys<'_>, key: &str, reason: &str) {
    if keys.has(key) {
        keys.problem(key, reason);
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

fn whole(value: &Value, range: &RangeInclusive<u64>) -> Option<u64> {
    value.as_u64().filter(|count| range.contains(count))
}

fn profile_of(path: PathBuf, keys: &Keys<'_>) -> Source {
    match Profile::read(&path) {
        Ok(profile) => return Source::Profile(path, Arc::new(profile)),
        Err(error) => keys.log.problem(format!("[load] profile: {error}")),
    }
    Source::Generated
}

fn requests_of(path: PathBuf, needs_rate: bool, keys: &Keys<'_>) -> Source {
    let names = Format::ALL.map(Format::name).join(", ");
    let format = keys.read("requests_format", format!("one of {names}"), |value| value.as_str()?.parse().ok());
    match RequestFile::read(&path, format) {
        Ok(file) => {
            if needs_rate && mean_rate_per_s(&file.workload()).is_none() {
                keys.log.problem(format!(
                    "[load] requests: {} sends everything at once, so its times cannot be scaled to a rate",
                    path.display()
                ));
            }
            return Source::Requests(path, Arc::new(file));
        }
        Err(error) => keys.log.problem(format!("[load] requests: {error}")),
    }
    Source::Generated
}

fn seeds(keys: &Keys<'_>) -> Vec<u64> {
    let range = 0..=i64::MAX as u64;
    let seeds = list(keys, "seed", "a whole number from 0", |value| whole(value, &range));
    if seeds.is_empty() { vec![0] } else { seeds }
}

/// Loads whose requests are in a file. The seed shapes a profile, and nothing of a list.
fn of_file(levels: Vec<Level>, keys: &Keys<'_>) -> Vec<LoadPoint> {
    for key in ["input_len_tokens", "output_len_tokens", "num_requests", "burstiness"] {
        refuse(keys, key, "has no place beside a file of requests, which has its own");
    }
    let seeds = if keys.has("requests") {
        refuse(keys, "seed", "changes nothing: the requests of a file are not drawn");
        vec![0]
    } else {
        seeds(keys)
    };
    let point = |level, seed| LoadPoint { level, burstiness: 1.0, lengths: None, num_requests: None, seed };
    levels.into_iter().flat_map(|level| seeds.iter().map(move |seed| point(level, *seed))).collect()
}

fn of_lengths(levels: Vec<Level>, keys: &Keys<'_>) -> Vec<LoadPoint> {
    let expected = format!(
        "a whole number of tokens from 1 to {MAX_TOKENS}, or {{ min, max, mean, std_dev }} with min <= mean <= max"
    );
    let lengths = |key| {
        if !keys.has(key) {
            keys.problem(key, format!("is missing: give {expected}"));
        }
        list(keys, key, &expected, read_lengths)
    };
    let (inputs, outputs) = (lengths("input_len_tokens"), lengths("output_len_tokens"));
    let given = keys.whole("num_requests", 1..=MAX_REQUESTS);
    let is_closed = keys.has("concurrency");
    if !is_closed && !keys.has("num_requests") {
        keys.problem("num_requests", "is missing: give the number of requests that each replay sends");
    }
    if is_closed {
        refuse(keys, "burstiness", "has no place beside concurrency, which sends a request when another one finishes");
    }
    let mut burstiness = list(keys, "burstiness", "a number from 0.001 to 1000; 1 is Poisson", |value| {
        number(value).filter(|shape| (0.001..=1000.0).contains(shape))
    });
    if burstiness.is_empty() {
        burstiness.push(1.0);
    }
    let seeds = seeds(keys);
    let mut points = Vec::new();
    for input in &inputs {
        for output in &outputs {
            for burstiness in &burstiness {
                for level in &levels {
                    let rounds = match level {
                        Level::Concurrency(concurrency) => Some(ROUNDS * u64::from(*concurrency)),
                        _ => None,
                    };
                    points.extend(seeds.iter().map(|seed| LoadPoint {
                        level: *level,
                        burstiness: *burstiness,
                        lengths: Some((*input, *output)),
                        num_requests: given.or(rounds),
                        seed: *seed,
                    }));
                }
            }
        }
    }
    points
}

/// The loads with their keys and values.
fn settings(source: &Source, points: Vec<LoadPoint>) -> Vec<Setting<LoadPoint>> {
    let keys = |point: &LoadPoint| -> [String; 6] {
        let (input, output) = point.lengths.unzip();
        let length = |key: &str, of: Option<NormalLengths>| match of {
            None => String::new(),
            Some(of) if of.is_fixed() => format!("{key} {}", of.max),
            Some(of) => format!("{key} {}±{} ({} to {})", of.mean, of.std_dev, of.min, of.max),
        };
        [
            length("input_len_tokens", input),
            length("output_len_tokens", output),
            format!("burstiness {}", point.burstiness),
            match point.level {
                Level::Rate(rate) => format!("request_rate_per_s {rate}"),
                Level::Concurrency(concurrency) => format!("concurrency {concurrency}"),
                Level::Capacity | Level::AsRecorded => String::new(),
            },
            format!("seed {}", point.seed),
            match (point.num_requests, source.path()) {
                (Some(num_requests), _) => format!("num_requests {num_requests}"),
                (None, Some(path)) => path.display().to_string(),
                (None, None) => String::new(),
            },
        ]
    };
    let all: Vec<[String; 6]> = points.iter().map(keys).collect();
    // The number of requests follows from the concurrency.
    let varies: Vec<bool> = (0..6).map(|at| at < 5 && all.iter().any(|keys| keys[at] != all[0][at])).collect();
    let of = |(point, keys): (LoadPoint, &[String; 6])| {
        let keys: Vec<(String, bool)> =
            keys.iter().cloned().zip(varies.iter().copied()).filter(|(key, _)| !key.is_empty()).collect();
        Setting::new(point, &keys)
    };
    points.into_iter().zip(&all).map(of).collect()
}

fn read_lengths(value: &Value) -> Option<NormalLengths> {
    let max_tokens = 1..=u64::from(MAX_TOKENS);
    let tokens = |value: &Value| whole(value, &max_tokens).and_then(|count| u32::try_from(count).ok());
    let Value::Object(table) = value else { return tokens(value).map(NormalLengths::fixed) };
    let (min, max) = (tokens(table.get("min")?)?, tokens(table.get("max")?)?);
    let (mean, std_dev) = (number(table.get("mean")?)?, number(table.get("std_dev")?)?);
    let is_possible = table.len() == 4 && f64::from(min) <= mean && mean <= f64::from(max);
    let lengths = NormalLengths { min, max, mean, std_dev };
    (is_possible && (0.0..=f64::from(MAX_TOKENS)).contains(&std_dev)).then_some(lengths)
}

#[cfg(test)]
#[path = "load_keys_tests.rs"]
mod tests;
