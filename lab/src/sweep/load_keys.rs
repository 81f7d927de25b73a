//! `[load]` of a grid, read and multiplied out. Uses `section`, `load`.

use std::path::PathBuf;
use std::sync::Arc;

use toml::Value;

use super::load::{Level, LoadPoint, Source, mean_rate_per_s};
use super::section::{Section, count, number, text};
use ridgepoint::workload::profile::Profile;
use ridgepoint::workload::requests::{Format, RequestFile};
use ridgepoint::workload::{Lengths, MAX_RATE_PER_S, MAX_REQUESTS, MAX_TOKENS, NormalLengths};

/// Requests of a closed loop whose number is not given, per request in flight.
const ROUNDS: u64 = 10;

/// `[load]`, read.
#[derive(Debug, Clone)]
pub(super) struct Loads {
    pub(super) source: Source,
    pub(super) points: Vec<LoadPoint>,
}

/// Reads `[load]`; where `is_capacity`, the rates are looked for and none may be given. Faults go to the section's problems,
/// and then the loads are not all there.
pub(super) fn read(mut section: Section<'_>, is_capacity: bool) -> Loads {
    let path = |value: &Value| text(value).map(PathBuf::from);
    let profile = section.one("profile", "the path of a load profile", path);
    let requests = section.one("requests", "the path of a file of requests", path);
    let rate = format!("a rate above 0 and at most {MAX_RATE_PER_S} requests per second");
    let rates = section
        .list("request_rate_per_s", &rate, |value| number(value).filter(|rate| *rate > 0.0 && *rate <= MAX_RATE_PER_S));
    let concurrencies = section.list("concurrency", "a whole number of requests in flight, at least 1", |value| {
        count(value, 1, MAX_REQUESTS / ROUNDS).and_then(|count| u32::try_from(count).ok())
    });
    let kinds: Vec<&str> = ["profile", "requests", "concurrency"].into_iter().filter(|key| section.has(key)).collect();
    let has_rate = section.has("request_rate_per_s");
    let source = match (profile, requests) {
        (Some(path), None) => profile_of(path, &mut section),
        (None, Some(path)) => requests_of(path, has_rate || is_capacity, &mut section),
        _ => Source::Generated,
    };
    if !section.has("requests") {
        section.refuse("requests_format", "says what kind of file `requests` is, and there is none");
    }
    match (kinds.as_slice(), has_rate, is_capacity) {
        (["profile"], false, false) | (["requests"], _, false) | (["concurrency"], false, false) => {}
        ([], true, false) | ([] | ["requests"], false, true) => {}
        ([], false, false) => section.problem(
            "has no load: give request_rate_per_s, concurrency, requests or profile, or limits in [slo] for which the highest rate is found",
        ),
        (_, _, true) => section.problem(
            "has rates of its own beside [slo], which looks for the highest: leave request_rate_per_s, concurrency and profile out (requests may stay, its times are scaled), or leave [slo] out",
        ),
        _ => section.problem("has more than one load: give one of request_rate_per_s, concurrency, requests or profile (requests and request_rate_per_s may be together: times are scaled to the rate)"),
    }
    let levels: Vec<Level> = match (is_capacity, has_rate, concurrencies.is_empty()) {
        (true, ..) => vec![Level::Capacity],
        (_, true, _) => rates.into_iter().map(Level::Rate).collect(),
        (_, _, false) => concurrencies.into_iter().map(Level::Concurrency).collect(),
        _ => vec![Level::AsRecorded],
    };
    let points = match kinds.first() {
        Some(&"profile" | &"requests") => of_file(levels, &mut section),
        _ => of_lengths(levels, &mut section),
    };
    section.finish();
    Loads { source, points }
}

fn profile_of(path: PathBuf, section: &mut Section<'_>) -> Source {
    match Profile::read(&path) {
        Ok(profile) => return Source::Profile(path, Arc::new(profile)),
        Err(error) => section.problem(&format!("profile: {error}")),
    }
    Source::Generated
}

fn requests_of(path: PathBuf, needs_rate: bool, section: &mut Section<'_>) -> Source {
    let names = Format::ALL.map(Format::name).join(", ");
    let format = section.one("requests_format", &format!("one of {names}"), |value| value.as_str()?.parse().ok());
    match RequestFile::read(&path, format) {
        Ok(file) => {
            if needs_rate && mean_rate_per_s(&file.workload()).is_none() {
                section.problem(&format!(
                    "requests: {} sends everything at once, so its times can't be scaled to a rate",
                    path.display()
                ));
            }
            return Source::Requests(path, Arc::new(file));
        }
        Err(error) => section.problem(&format!("requests: {error}")),
    }
    Source::Generated
}

fn seeds(section: &mut Section<'_>) -> Vec<u64> {
    let seeds = section.list("seed", "a whole number from 0", |value| count(value, 0, i64::MAX as u64));
    if seeds.is_empty() { vec![0] } else { seeds }
}

/// Loads whose requests are in a file: the seed shapes a profile, and nothing of a list.
fn of_file(levels: Vec<Level>, section: &mut Section<'_>) -> Vec<LoadPoint> {
    for key in ["input_len_tokens", "output_len_tokens", "num_requests", "burstiness"] {
        section.refuse(key, "has no place beside a file of requests, which says it itself");
    }
    let seeds = if section.has("requests") {
        section.refuse("seed", "changes nothing: the requests of a file are not drawn");
        vec![0]
    } else {
        seeds(section)
    };
    let point = |level, seed| LoadPoint { level, burstiness: 1.0, lengths: None, num_requests: None, seed };
    levels.into_iter().flat_map(|level| seeds.iter().map(move |seed| point(level, *seed))).collect()
}

fn of_lengths(levels: Vec<Level>, section: &mut Section<'_>) -> Vec<LoadPoint> {
    let expected = format!(
        "a whole number of tokens from 1 to {MAX_TOKENS}, or {{ min, max, mean, std_dev }} with min <= mean <= max"
    );
    let mut lengths = |key| {
        if !section.has(key) {
            section.problem(&format!("{key} is missing: give {expected}"));
        }
        section.list(key, &expected, read_lengths)
    };
    let (inputs, outputs) = (lengths("input_len_tokens"), lengths("output_len_tokens"));
    let expected = format!("a whole number from 1 to {MAX_REQUESTS}");
    let given = section.one("num_requests", &expected, |value| count(value, 1, MAX_REQUESTS));
    let is_closed = section.has("concurrency");
    if !is_closed && !section.has("num_requests") {
        section.problem("num_requests is missing: give the number of requests that each replay sends");
    }
    if is_closed {
        section.refuse("burstiness", "has no place beside concurrency, which sends when a request is over");
    }
    let mut burstiness = section.list("burstiness", "a number from 0.001 to 1000; 1 is Poisson", |value| {
        number(value).filter(|shape| (0.001..=1000.0).contains(shape))
    });
    if burstiness.is_empty() {
        burstiness.push(1.0);
    }
    let seeds = seeds(section);
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

/// What tells each load from the others: the keys that differ, with its values.
pub(super) fn varied(points: &[LoadPoint]) -> Vec<String> {
    let parts = |point: &LoadPoint| -> [String; 5] {
        let (input, output) = point.lengths.unzip();
        let length = |key: &str, of: Option<Lengths>| match of {
            None => String::new(),
            Some(Lengths::Fixed(tokens)) => format!("{key} {tokens}"),
            Some(Lengths::Normal(of)) => format!("{key} {}±{} ({} to {})", of.mean, of.std_dev, of.min, of.max),
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
        ]
    };
    let all: Vec<[String; 5]> = points.iter().map(parts).collect();
    let differs = |at: usize| all.iter().any(|parts| parts.get(at) != all.first().and_then(|first| first.get(at)));
    let differing: Vec<bool> = (0..5).map(differs).collect();
    all.iter()
        .map(|parts| {
            let kept = parts.iter().zip(&differing).filter(|(_, differs)| **differs).map(|(part, _)| part.as_str());
            kept.collect::<Vec<_>>().join(", ")
        })
        .collect()
}

fn read_lengths(value: &Value) -> Option<Lengths> {
    let tokens = |value: &Value| count(value, 1, u64::from(MAX_TOKENS)).and_then(|count| u32::try_from(count).ok());
    let Value::Table(table) = value else { return tokens(value).map(Lengths::Fixed) };
    let (min, max) = (tokens(table.get("min")?)?, tokens(table.get("max")?)?);
    let (mean, std_dev) = (number(table.get("mean")?)?, number(table.get("std_dev")?)?);
    let is_possible = table.len() == 4 && f64::from(min) <= mean && mean <= f64::from(max);
    (is_possible && (0.0..=f64::from(MAX_TOKENS)).contains(&std_dev)).then_some(Lengths::Normal(NormalLengths {
        min,
        max,
        mean,
        std_dev,
    }))
}

#[cfg(test)]
#[path = "load_keys_tests.rs"]
mod tests;
