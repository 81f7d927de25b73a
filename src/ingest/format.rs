//! Which kind of file it is, and its reader. Uses the readers.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::ingested::Ingested;
use super::{forward_pass, step_csv, step_table};
use crate::error::{Error, Result};

/// Kinds of files that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenTelemetry's JSON.
    Otlp,
    /// Scheduler steps as csv.
    StepCsv,
    /// vLLM's forward-pass metrics as JSON lines.
    ForwardPass,
    /// inference-perf's report of every request.
    InferencePerf,
    /// guidellm's report.
    Guidellm,
    /// The result of `vllm bench serve --save-detailed`.
    VllmBench,
    /// A step table.
    StepTable,
    /// A request table.
    RequestTable,
}

impl Format {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Otlp => "otlp",
            Format::StepCsv => "step-csv",
            Format::ForwardPass => "forward-pass",
            Format::InferencePerf => "inference-perf",
            Format::Guidellm => "guidellm",
            Format::VllmBench => "vllm-bench",
            Format::StepTable => "step-table",
            Format::RequestTable => "request-table",
        }
    }
}

/// The format of a file, by its first bytes.
///
/// # Errors
/// A file that can't be read or is of no known kind.
pub fn detect(path: &Path) -> Result<Format> {
    const HEAD_BYTES: u64 = 4096;
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| Error::io(path, error))?;
    let head = String::from_utf8_lossy(&head);
    let first = head.lines().next().unwrap_or("");
    if first.starts_with('{') && first.contains("\"timing_scope\"") {
        return Ok(Format::ForwardPass);
    }
    if first.contains("step.id") {
        return Ok(Format::StepCsv);
    }
    if first.contains("steps_to_next") {
        return Ok(Format::StepTable);
    }
    let message = "is of no known kind: step-csv, forward-pass, step-table".to_owned();
    Err(Error::Parse { origin: path.display().to_string(), message })
}

/// Reads a file of a format, or of the one that it looks like.
///
/// # Errors
/// Those of the format's reader.
pub fn read(path: &Path, format: Option<Format>) -> Result<Ingested> {
    match format.map_or_else(|| detect(path), Ok)? {
        Format::StepCsv => step_csv::read(path),
        Format::ForwardPass => forward_pass::read(path),
        Format::StepTable => step_table::read(path),
        other => Err(Error::InvalidArgument {
            what: "input format".to_owned(),
            value: other.name().to_owned(),
            reason: "has no reader yet".to_owned(),
        }),
    }
}
