//! vLLM's OpenTelemetry traces, as the collector's file exporter writes them: OTLP JSON, an export per line, one document, or a list.
//! Read event by event and folded at once: memory grows with what is kept, not with the file. Uses `error`, the records of
//! `ingest`, `request`.
//!
//! | span or event | becomes |
//! |---|---|
//! | event `step.BATCH_SUMMARY` | a [`StepRecord`](super::StepRecord) |
//! | events `step.REQUEST_SNAPSHOT` of the same `step.id` | its requests, where their sums agree with the summary |
//! | span `llm_core` with `journey.*` events | the engine's times of a [`RequestRow`](super::RequestRow) |
//! | span `llm_request` with `api.*` events | the server's times of the same row, joined by the request's id |
//! | span `llm_request` without events, `gen_ai.latency.*` | arrival, first response and departure, as unix times |
//!
//! Events may come without `api.`, `journey.` and `step.`. `ts.monotonic` is nanoseconds where it is an integer and seconds where it
//! is a floating-point number below 10⁹; anything else is a bad value.

mod attributes;
mod document;
mod events;
mod journey;
mod layers;
mod position;
mod runs;
mod snapshots;
mod source;
mod step_event;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::de::DeserializeSeed;

use self::document::{Document, Sink};
use self::position::{Position, Tracked};
use self::source::{Identity, Source};
use super::Ingested;
use super::file_name;
use ridgepoint::{Error, Result};

const BUFFER_BYTES: usize = 1 << 18;
/// Fewer spans with strange clocks are broken spans.
const MIN_STRANGE_SPANS: u64 = 3;

/// Reads a trace.
///
/// # Errors
/// `ErrorKind::Io`; `ErrorKind::Parse` with line and byte where the file is not OTLP JSON, is cut short, or holds neither steps nor
/// requests; `ErrorKind::Invalid` where `ts.monotonic` is in no known unit.
///
/// # Source
/// OpenTelemetry protocol 1.x, its JSON encoding; names of spans, events and attributes from vLLM's journey and step tracing.
pub fn read(path: &Path) -> Result<Ingested> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    read_from(&path.display().to_string(), &file_name(path), BufReader::with_capacity(BUFFER_BYTES, file))
}

/// Reads a trace from anywhere; `name` names the run.
pub(crate) fn read_from(origin: &str, name: &str, reader: impl BufRead) -> Result<Ingested> {
    let position = Position::start();
    let mut reader = Tracked::new(reader, &position);
    let io = |error| Error::io(origin, error);
    let begin = reader.peek().map_err(io)?;
    if let Some(what) = packed(begin) {
        return Err(Error::parse(
            origin,
            format!("is {what}: unpack it first, or export with `format: json` and no compression"),
        ));
    }
    if begin.starts_with(b"\xef\xbb\xbf") {
        reader.skip(3);
    }
    let mut sources = Sources::default();
    while reader.skip_blanks().map_err(io)? {
        let mut parser = serde_json::Deserializer::from_reader(&mut reader);
        let document = Document { sink: &mut sources, position: &position };
        document.deserialize(&mut parser).map_err(|error| fault(origin, &position, &error))?;
    }
    let Sources { sources, other_signals, .. } = sources;
    check_clocks(origin, &sources)?;
    let mut ingested = runs::runs(name, sources);
    if other_signals > 0 {
        ingested.notes.push(format!("{other_signals} exports of metrics or logs: left aside"));
    }
    if ingested.steps_read == 0 && ingested.requests_read == 0 {
        return Err(Error::parse(
            origin,
            format!(
                "no step.BATCH_SUMMARY event and no llm_request or llm_core span in {} bytes: start vLLM with \
                 --otlp-traces-endpoint and step or journey tracing{}",
                position.bytes(),
                ingested.notes.first().map(|note| format!(" ({note})")).unwrap_or_default()
            ),
        ));
    }
    Ok(ingested)
}

/// What the first bytes of a file say that can't be JSON.
fn packed(begin: &[u8]) -> Option<&'static str> {
    if begin.starts_with(b"\x1f\x8b") {
        Some("compressed by gzip")
    } else if begin.starts_with(b"\x28\xb5\x2f\xfd") || begin.get(4..8) == Some(b"\x28\xb5\x2f\xfd") {
        Some("compressed by zstd")
    } else if begin.starts_with(b"\xff\xfe") || begin.starts_with(b"\xfe\xff") {
        Some("UTF-16, not UTF-8")
    } else {
        None
    }
}

fn fault(origin: &str, position: &Position, error: &serde_json::Error) -> Error {
    if error.is_io() && !position.too_long() {
        return Error::io(origin, std::io::Error::other(document::bare(error)));
    }
    let cause = if error.is_eof() {
        "the file ends within a value: is it cut short?".to_owned()
    } else {
        document::bare(error)
    };
    let origin = format!("{origin}: line {}, byte {}", position.line(), position.bytes());
    Error::parse(origin, format!("is not OTLP JSON: {cause}"))
}

/// Sources by who speaks.
#[derive(Default)]
struct Sources {
    sources: Vec<(Identity, Source)>,
    index: HashMap<Identity, usize>,
    other_signals: u64,
}

impl Sink for Sources {
    fn source(&mut self, identity: Identity, source: Source) {
        match self.index.entry(identity) {
            Entry::Occupied(entry) => {
                if let Some((_, known)) = self.sources.get_mut(*entry.get()) {
                    known.merge(source);
                }
            }
            Entry::Vacant(entry) => {
                self.sources.push((entry.key().clone(), source));
                entry.insert(self.sources.len() - 1);
            }
        }
    }

    fn other_signal(&mut self) {
        self.other_signals += 1;
    }
}

/// Clocks that disagree in most spans are no broken spans but another unit.
fn check_clocks(origin: &str, sources: &[(Identity, Source)]) -> Result<()> {
    let strange = sources.iter().filter(|(_, source)| {
        source.clocks.disagreeing >= MIN_STRANGE_SPANS && source.clocks.disagreeing > source.clocks.agreeing
    });
    let problem = |(identity, source): &(Identity, Source)| {
        let ratio = source.clocks.first_ratio.unwrap_or_default();
        format!(
            "ts.monotonic of service '{}' advances {ratio:.3e} times as fast as the events' timeUnixNano: its unit is neither \
             ns (integers) nor s (floating point)",
            identity.service
        )
    };
    let problems: Vec<String> = strange.map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Error::invalid(origin, problems)) }
}
