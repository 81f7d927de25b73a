//! guidellm's report.
//!
//! # Source
//! guidellm, `src/guidellm/schemas` and `src/guidellm/benchmark/schemas`: `benchmarks[].requests.successful[]` with
//! `info.timings` in seconds of the client's clock; `metadata.version` 2.

use std::path::Path;

use serde_json::Value;

use super::{Row, Rows, time_ns, tokens, with_requests};
use crate::ingest::format::Format;
use crate::ingest::json_stream::{JsonVisitor, visit_json};
use crate::ingest::{Capture, Reason, RequestRow, Run, file_name};
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
/// A file that cannot be read, is not JSON or is cut short, or has no requests.
pub fn read(path: &Path) -> Result<Capture> {
    let mut report = Report::default();
    visit_json(path, &mut report)?;
    let mut capture = Capture::default();
    if let Some(version) = report.version.filter(|version| (version - VERSION).abs() > 0.0) {
        let note = format!("the report is of version {version}, its names are read as those of version {VERSION}");
        capture.notes.push(note);
    }
    let several = report.benchmarks.len() > 1;
    let name = file_name(path);
    for (index, rows) in report.benchmarks.into_iter().enumerate() {
        let experiment = if several { format!("{name}/{index}") } else { name.clone() };
        rows.finish(Run { experiment, model: report.model.clone(), ..Run::default() }, &mut capture);
    }
    with_requests(path, capture, "benchmarks[].requests is empty; let guidellm keep its samples in the report")
}

/// What is read of a report; the requests of the benchmark in progress are in `rows`.
#[derive(Default)]
struct Report {
    version: Option<f64>,
    model: Option<String>,
    benchmarks: Vec<Rows>,
    rows: Rows,
    position: usize,
}

impl JsonVisitor for Report {
    const PATHS: &'static [&'static str] = &[
        "metadata.version",
        "args.model",
        "benchmarks.requests.successful[]",
        "benchmarks.requests.errored[]",
        "benchmarks.requests.incomplete[]",
    ];

    fn value(&mut self, path: &'static str, value: Value) {
        match path {
            "metadata.version" => self.version = value.as_f64(),
            "args.model" => self.model = value.as_str().map(str::to_owned),
            "benchmarks.requests.errored[]" => self.rows.add(Err(Reason::Failed)),
            "benchmarks.requests.incomplete[]" => self.rows.add(Err(Reason::Incomplete)),
            _ => {
                self.rows.add(row(self.position, &value));
                self.position += 1;
            }
        }
    }

    fn end(&mut self, path: &str) {
        if path == "benchmarks" {
            self.benchmarks.push(std::mem::take(&mut self.rows));
            self.position = 0;
        }
    }
}

fn row(position: usize, request: &Value) -> Row {
    let timings = &request["info"]["timings"];
    let id = request["request_id"].as_str().map_or_else(|| position.to_string(), str::to_owned);
    Ok(RequestRow {
        request_id: id,
        arrived_ns: time_ns(&timings["request_start"])?,
        first_response_ns: time_ns(&timings["first_token_iteration"])?,
        departed_ns: time_ns(&timings["request_end"])?,
        num_prompt_tokens: tokens(&request["prompt_tokens"])?,
        num_output_tokens: tokens(&request["output_tokens"])?,
        ..RequestRow::default()
    })
}
