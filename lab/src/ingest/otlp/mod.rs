//! vLLM's OpenTelemetry traces, as the collector's file exporter writes them: OTLP JSON with an export per line, one document, or
//! a list. The file is read event by event, and each is folded at once, so memory grows with the kept rows alone.
//!
//! | span or event | becomes |
//! |---|---|
//! | event `step.BATCH_SUMMARY` | a [`StepRecord`](super::StepRecord) |
//! | events `step.REQUEST_SNAPSHOT` of the same `step.id` | the requests of that step, if their sums agree with the summary |
//! | span `llm_core` with `journey.*` events | the engine's times of a [`RequestRow`](super::RequestRow) |
//! | span `llm_request` with `api.*` events | the server's times of the same row, joined by the request's id |
//! | span `llm_request` without events, `gen_ai.latency.*` | times of a request as unix times, also the engine's |
//!
//! The prefixes `api.`, `journey.` and `step.` may be absent. `ts.monotonic` is nanoseconds if it is an integer, and seconds if it
//! is a floating-point number below 10⁹; anything else is a bad value.

mod attributes;
mod fold;
mod names;
mod request_join;
mod request_span;
mod runs;
mod snapshots;
mod trace;
mod walk;

use std::path::Path;

use ridgepoint::{Error, Result};
use serde::de::DeserializeSeed;

use self::fold::TraceBuilder;
use self::walk::{Objects, OtlpObject};
use super::format::Format;
use super::json_stream::for_each_document;
use super::step_csv::check_nanoseconds;
use super::{Capture, file_name};

/// OpenTelemetry's JSON.
pub(super) const FORMAT: Format = Format {
    name: "otlp",
    about: "OpenTelemetry's JSON, as the collector's file exporter writes it",
    holds_steps: true,
    is_it: |head, _| ["resourceSpans", "resourceMetrics", "resourceLogs"].into_iter().any(|key| head.has(key)),
    read,
};

/// Reads a trace.
///
/// # Errors
/// A file that cannot be read; with line and column, a file that is not OTLP JSON or is cut short; a file that holds neither steps
/// nor requests.
///
/// # Source
/// OpenTelemetry protocol 1.x, its JSON encoding; names of spans, events and attributes from vLLM's journey and step tracing.
pub fn read(path: &Path) -> Result<Capture> {
    let mut fold = TraceBuilder::default();
    for_each_document(path, |parser, count| {
        Objects { handler: &mut fold, node: OtlpObject::Export, count }.deserialize(parser)
    })?;
    let capture = runs::capture(&file_name(path), fold.trace);
    if capture.steps_read() == 0 && capture.requests_read() == 0 {
        let message = "has no step.BATCH_SUMMARY event and no llm_request or llm_core span: start vLLM with \
                       --otlp-traces-endpoint and step or journey tracing, and write the traces with the collector's file \
                       exporter and its `format: json`";
        return Err(Error::parse(path, message));
    }
    check_nanoseconds(&capture, &path.display().to_string(), "step.ts_start_ns")?;
    Ok(capture)
}
