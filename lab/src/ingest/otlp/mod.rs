//! vLLM's OpenTelemetry traces, as the collector's file exporter writes them: OTLP JSON with an export per line, one document, or
//! a list. The file is read event by event and folded at once, so memory grows with the rows that are kept, not with the file.
//!
//! | span or event | becomes |
//! |---|---|
//! | event `step.BATCH_SUMMARY` | a [`StepRecord`](super::StepRecord) |
//! | events `step.REQUEST_SNAPSHOT` of the same `step.id` | the requests of that step, if their sums agree with the summary |
//! | span `llm_core` with `journey.*` events | the engine's times of a [`RequestRow`](super::RequestRow) |
//! | span `llm_request` with `api.*` events | the server's times of the same row, joined by the request's id |
//! | span `llm_request` without events, `gen_ai.latency.*` | arrival, first response and departure, as unix times |
//!
//! The prefixes `api.`, `journey.` and `step.` may be absent. `ts.monotonic` is nanoseconds if it is an integer, and seconds if it
//! is a floating-point number below 10⁹; anything else is a bad value.

mod attributes;
mod layers;
mod request_span;
mod runs;
mod snapshots;
mod source;
mod step_events;
mod walk;

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind as IoKind};
use std::path::Path;

use ridgepoint::{Error, Location, Result};

use self::source::{Identity, Source};
use self::walk::{ByteLimit, LimitedReader, Walker, bare};
use super::format::Format;
use super::{Ingested, file_name};

/// OpenTelemetry's JSON.
pub(super) const FORMAT: Format = Format {
    name: "otlp",
    about: "OpenTelemetry's JSON, as the collector's file exporter writes it",
    holds_steps: true,
    is_it: |head| ["resourceSpans", "resourceMetrics", "resourceLogs"].into_iter().any(|key| head.has(key)),
    read,
};

const BUFFER_BYTES: usize = 1 << 18;

/// Reads a trace.
///
/// # Errors
/// A file that cannot be read; with line and column, a file that is not OTLP JSON, is cut short, or holds neither steps nor requests;
/// `ts.monotonic` in an unknown unit.
///
/// # Source
/// OpenTelemetry protocol 1.x, its JSON encoding; names of spans, events and attributes from vLLM's journey and step tracing.
pub fn read(path: &Path) -> Result<Ingested> {
    let io = |error| Error::io(path, error);
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(path).map_err(io)?);
    if reader.fill_buf().map_err(io)?.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    let limit = ByteLimit::none();
    let mut parser = serde_json::Deserializer::from_reader(LimitedReader { reader, limit: &limit });
    let mut walker = Walker::new(&limit);
    // `end` fails where another document follows.
    while parser.end().is_err() {
        walker.document(&mut parser).map_err(|error| fault(path, &error))?;
    }
    let trace = walker.finish();
    check_clocks(path, &trace.sources)?;
    let ingested = runs::runs(&file_name(path), trace);
    if ingested.steps_read == 0 && ingested.requests_read == 0 {
        let note = ingested.notes.first().map(|note| format!(" ({note})")).unwrap_or_default();
        return Err(Error::parse(
            path,
            format!(
                "has no step.BATCH_SUMMARY event and no llm_request or llm_core span: start vLLM with --otlp-traces-endpoint and \
                 step or journey tracing{note}"
            ),
        ));
    }
    Ok(ingested)
}

fn fault(path: &Path, error: &serde_json::Error) -> Error {
    match error.io_error_kind() {
        None | Some(IoKind::FileTooLarge) => {}
        Some(kind) => return Error::io(path, kind.into()),
    }
    let cause = if error.is_eof() { "the file ends within a value: is it cut short?".to_owned() } else { bare(error) };
    let at = Location::of(path.display().to_string()).line(error.line() as u64).column(error.column() as u64);
    Error::parse(at, format!("is not OTLP JSON: {cause}"))
}

/// Refuses a trace whose clocks disagree in most spans: its unit is another one.
fn check_clocks(path: &Path, sources: &[(Identity, Source)]) -> Result<()> {
    let problem = |(identity, source): &(Identity, Source)| {
        let ratio = source.clocks.wrong_unit()?;
        Some(format!(
            "ts.monotonic of service '{}' advances {ratio:.3e} times as fast as the events' timeUnixNano: its unit is neither ns \
             (integers) nor s (floating point)",
            identity.service
        ))
    };
    let problems: Vec<String> = sources.iter().filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Error::invalid(path, problems)) }
}
