//! guidellm's report.
//!
//! # Source
//! guidellm, `src/guidellm/schemas` and `src/guidellm/benchmark/schemas`: `benchmarks[].requests.successful[]` with
//! `info.timings` in seconds of the client's clock; `metadata.version` 2.
#![expect(clippy::indexing_slicing, reason = "a missing key of a JSON value is null")]

use std::path::Path;

use ridgepoint::input::Distinct;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{CheckedRow, CheckedRows, time_ns, tokens, with_requests};
use crate::ingest::format::Format;
use crate::ingest::json_stream::{for_each_element, for_each_object};
use crate::ingest::{Capture, DropReason, RequestRow, Run, file_name, named_runs};
use ridgepoint::Result;

/// guidellm's report.
pub(in crate::ingest) const FORMAT: Format = Format {
    name: "guidellm",
    about: "guidellm's JSON report",
    holds_steps: false,
    is_it: |head, _| head.has("benchmarks") || (head.has("metadata") && head.has("args")),
    read,
};

/// Version of the report whose names are read.
const VERSION: f64 = 2.0;

/// Reads a report, one run per benchmark in it.
///
/// # Errors
/// A file that cannot be read, is not JSON or is cut short, or has no requests.
pub fn read(path: &Path) -> Result<Capture> {
    let mut reports: Vec<Report> = Vec::new();
    for_each_object(path, |object| reports.push(object))?;
    let mut capture = Capture::default();
    for (name, report) in named_runs(&file_name(path), reports) {
        add(report, &name, &mut capture);
    }
    with_requests(path, capture, "benchmarks[].requests is empty; let guidellm keep its samples in the report")
}

fn add(report: Report, name: &str, capture: &mut Capture) {
    if let Some(version) = report.metadata.0["version"].as_f64().filter(|version| (version - VERSION).abs() > 0.0) {
        let note = format!("the report is of version {version}, its names are read as those of version {VERSION}");
        capture.notes.push(note);
    }
    // Since 0.8 the model is in the configuration of the back end.
    let model = [&report.args.0["model"], &report.config.0["spec"]["backend"]["model"]];
    let model = model.into_iter().find_map(Value::as_str).map(str::to_owned);
    for (experiment, benchmark) in named_runs(name, report.benchmarks) {
        let RequestsByOutcome { successful: SoundRows(mut rows), errored, incomplete } =
            benchmark.requests.map(|of| *of).unwrap_or_default();
        errored.iter().for_each(|_| rows.add(Err(DropReason::Failed)));
        incomplete.iter().for_each(|_| rows.add(Err(DropReason::Incomplete)));
        rows.finish(Run { experiment, model: model.clone(), ..Run::default() }, |row| row.arrived_ns, capture);
    }
}

/// What is read of a report.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Report {
    metadata: Distinct,
    args: Distinct,
    config: Distinct,
    #[serde(deserialize_with = "benchmarks")]
    benchmarks: Vec<Benchmark>,
}

/// Most benchmarks of a report: guidellm runs one after the other, for seconds each.
const MOST_BENCHMARKS: usize = 10_000;

#[derive(Deserialize)]
struct Benchmark {
    requests: Option<Box<RequestsByOutcome>>,
}

fn benchmarks<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<Benchmark>, D::Error> {
    let mut found = Vec::new();
    for_each_element(deserializer, |benchmark| {
        found.push(benchmark);
        let is_too_many = found.len() > MOST_BENCHMARKS;
        if is_too_many { Err(format!("a report has at most {MOST_BENCHMARKS} benchmarks")) } else { Ok(()) }
    })?;
    Ok(found)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RequestsByOutcome {
    successful: SoundRows,
    errored: Vec<IgnoredAny>,
    incomplete: Vec<IgnoredAny>,
}

/// The rows of the requests of a list, made one by one: a list of requests that say nothing takes no memory.
#[derive(Default)]
struct SoundRows(CheckedRows);

impl<'de> Deserialize<'de> for SoundRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let (mut rows, mut position) = (CheckedRows::default(), 0);
        for_each_element(deserializer, |request: Request| {
            rows.add(row(position, &request));
            position += 1;
            Ok(())
        })?;
        Ok(SoundRows(rows))
    }
}

/// A request; the texts of prompt and answer are not kept.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Request {
    request_id: Option<String>,
    prompt_tokens: Value,
    output_tokens: Value,
    info: Distinct,
}

fn row(position: usize, request: &Request) -> CheckedRow {
    let timings = &request.info.0["timings"];
    let row = RequestRow {
        request_id: request
            .request_id
            .clone()
            .filter(|id| !id.is_empty())
            .unwrap_or_else(|| position.to_string())
            .into(),
        arrived_ns: time_ns(&timings["request_start"])?,
        first_response_ns: time_ns(&timings["first_token_iteration"])?,
        departed_ns: time_ns(&timings["request_end"])?,
        num_prompt_tokens: tokens(&request.prompt_tokens)?,
        num_output_tokens: tokens(&request.output_tokens)?,
        ..RequestRow::default()
    };
    Ok((row, None))
}
