//! guidellm's report. Uses `reports`.
//!
//! # Source
//! guidellm, `src/guidellm/schemas` and `src/guidellm/benchmark/schemas`: `benchmarks[].requests.successful[]` with
//! `info.timings` in seconds of the client's clock; `metadata.version` 2.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Number, Rows, no_rows, open, parse};
use crate::ingest::format::Format;
use crate::ingest::{Ingested, Reason, RequestRow, Run, file_name};
use ridgepoint::Result;

/// guidellm's report.
pub(in crate::ingest) const FORMAT: Format = Format {
    name: "guidellm",
    about: "guidellm's JSON report",
    holds_steps: false,
    is_it: |head| head.has("benchmarks") || (head.has("metadata") && head.has("args")),
    read,
};

/// Version of the report whose names are read.
const VERSION: f64 = 2.0;

/// Reads a report, one run per benchmark in it.
///
/// # Errors
/// `ErrorKind::Io`(ridgepoint::Error::Io); `ErrorKind::Parse`(ridgepoint::Error::Parse) where the file is cut short, is no such report, or has no
/// requests.
pub fn read(path: &Path) -> Result<Ingested> {
    let origin = path.display().to_string();
    let report: Report = parse(&origin, open(path)?)?;
    let mut ingested = Ingested::default();
    if let Some(Number::Value(version)) = report.metadata.map(|metadata| metadata.version)
        && (version - VERSION).abs() > 0.0
    {
        ingested
            .notes
            .push(format!("the report is of version {version}, its names are read as those of version {VERSION}"));
    }
    let several = report.benchmarks.len() > 1;
    let model = report.args.and_then(|args| args.model);
    for (index, benchmark) in report.benchmarks.into_iter().enumerate() {
        let mut rows = Rows::default();
        for (position, request) in benchmark.requests.successful.unwrap_or_default().into_iter().enumerate() {
            rows.add(row(position, request));
        }
        rows.leave_out(Reason::Failed, benchmark.requests.errored.unwrap_or_default().len());
        rows.leave_out(Reason::Incomplete, benchmark.requests.incomplete.unwrap_or_default().len());
        let name = file_name(path);
        let experiment = if several { format!("{name}/{index}") } else { name };
        rows.finish(Run { experiment, model: model.clone(), ..Run::default() }, &mut ingested);
    }
    if ingested.requests_read == 0 {
        return Err(no_rows(&origin, "benchmarks[].requests is empty: let guidellm keep its samples in the report"));
    }
    Ok(ingested)
}

#[derive(Deserialize)]
struct Report {
    metadata: Option<Metadata>,
    args: Option<Args>,
    benchmarks: Vec<Benchmark>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    version: Number,
}

#[derive(Deserialize)]
struct Args {
    model: Option<String>,
}

#[derive(Deserialize)]
struct Benchmark {
    #[serde(default)]
    requests: Requests,
}

#[derive(Default, Deserialize)]
struct Requests {
    successful: Option<Vec<Entry>>,
    errored: Option<Vec<IgnoredAny>>,
    incomplete: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct Entry {
    request_id: Option<String>,
    #[serde(default)]
    prompt_tokens: Number,
    #[serde(default)]
    output_tokens: Number,
    info: Option<Info>,
}

#[derive(Deserialize)]
struct Info {
    timings: Option<Timings>,
}

#[derive(Deserialize)]
struct Timings {
    #[serde(default)]
    request_start: Number,
    #[serde(default)]
    first_token_iteration: Number,
    #[serde(default)]
    request_end: Number,
}

fn row(position: usize, entry: Entry) -> std::result::Result<RequestRow, Reason> {
    let timings = entry.info.and_then(|info| info.timings).ok_or(Reason::Incomplete)?;
    Ok(RequestRow {
        request_id: entry.request_id.unwrap_or_else(|| position.to_string()),
        arrived_ns: timings.request_start.time_ns()?,
        first_response_ns: timings.first_token_iteration.time_ns()?,
        departed_ns: timings.request_end.time_ns()?,
        num_prompt_tokens: entry.prompt_tokens.tokens()?,
        num_output_tokens: entry.output_tokens.tokens()?,
        ..RequestRow::default()
    })
}
