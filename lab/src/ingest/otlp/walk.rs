//! Walks OTLP JSON down to single events, so that neither a file nor a span is ever held whole. OpenTelemetry's own types parse
//! the leaves: resources, scopes, members of spans, events.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::value::RawValue;

use super::attributes::{Attributes, Fault};
use super::request_span::{RequestTimestamps, request_span};
use super::source::{Identity, Source, Trace};
use super::step_events;
use ridgepoint::internals::error::cut;

/// Longest event, span member or resource, bytes. Each is held as a whole, one at a time.
const MAX_ELEMENT_BYTES: u64 = 16 << 20;

/// Members of a span that are parsed; its links, state and flags are skipped.
const SPAN_MEMBERS: [&str; 6] = ["traceId", "spanId", "parentSpanId", "name", "startTimeUnixNano", "attributes"];

/// The bytes that the element in progress may still take. The reader counts them, the walker sets them.
#[derive(Debug)]
pub(super) struct ByteLimit(Cell<u64>);

impl ByteLimit {
    pub(super) fn none() -> Self {
        ByteLimit(Cell::new(u64::MAX))
    }
}

/// A reader that fails with [`io::ErrorKind::FileTooLarge`] when an element exceeds its limit.
pub(super) struct LimitedReader<'a, R> {
    pub(super) reader: R,
    pub(super) limit: &'a ByteLimit,
}

impl<R: Read> Read for LimitedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        let left = self.limit.0.get().checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "one event or span header of more than 16 MiB")
        })?;
        self.limit.0.set(left);
        Ok(read)
    }
}

/// The message of a JSON error without its position.
pub(super) fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(cause, _)| cause.to_owned())
}

/// The objects of OTLP JSON, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Export,
    Resource,
    Scope,
    Span,
    Event,
}

/// What a value at a level has to be; null is an empty object or list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A whole document: an export or a list of exports, and not null.
    Document,
    Object,
    List,
}

/// Folds documents into a trace, event by event.
pub(super) struct Walker<'a> {
    limit: &'a ByteLimit,
    trace: Trace,
    // The resource, scope and span in progress.
    resource: Resource,
    source: Source,
    scope: InstrumentationScope,
    members: Vec<(&'static str, Box<RawValue>)>,
    timestamps: RequestTimestamps,
    has_steps: bool,
}

impl<'a> Walker<'a> {
    pub(super) fn new(limit: &'a ByteLimit) -> Self {
        Walker {
            limit,
            trace: Trace::default(),
            resource: Resource::default(),
            source: Source::default(),
            scope: InstrumentationScope::default(),
            members: Vec::new(),
            timestamps: RequestTimestamps::default(),
            has_steps: false,
        }
    }

    /// Reads one export request, or a list of them.
    pub(super) fn document<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        Node { walker: self, level: Level::Export, shape: Shape::Document }.deserialize(deserializer)
    }

    /// The trace read so far.
    pub(super) fn finish(self) -> Trace {
        self.trace
    }

    /// Reads the member `key` of an object at `level`.
    fn member<'de, A: MapAccess<'de>>(&mut self, level: Level, key: &str, map: &mut A) -> Result<(), A::Error> {
        let below = match (level, key) {
            (Level::Export, "resourceSpans") => Level::Resource,
            (Level::Export, "resourceMetrics" | "resourceLogs" | "resourceProfiles") => {
                self.trace.other_signals += 1;
                return skip(map);
            }
            (Level::Export, other) => {
                return Err(A::Error::custom(format!(
                    "unknown key '{}' where OTLP JSON has `resourceSpans`: write traces with the collector's file \
                     exporter and its `format: json`",
                    cut(other)
                )));
            }
            (Level::Resource, "scopeSpans") => Level::Scope,
            (Level::Resource, "resource") => {
                self.resource = self.leaf(map)?;
                return Ok(());
            }
            (Level::Resource, "instrumentationLibrarySpans") => {
                return Err(A::Error::custom(
                    "`instrumentationLibrarySpans` is OTLP from before 0.15: export with a newer collector",
                ));
            }
            (Level::Scope, "spans") => Level::Span,
            (Level::Scope, "scope") => {
                self.scope = self.leaf(map)?;
                return Ok(());
            }
            (Level::Span, "events") => Level::Event,
            (Level::Span, key) => {
                let Some(name) = SPAN_MEMBERS.iter().find(|name| **name == key) else { return skip(map) };
                let raw = map.next_value_seed(Whole(self.limit))?;
                if raw.get() != "null" {
                    self.members.push((name, raw));
                }
                return Ok(());
            }
            _ => return skip(map),
        };
        map.next_value_seed(Node { walker: self, level: below, shape: Shape::List })
    }

    /// Parses a member as one of OpenTelemetry's types; null is its default.
    fn leaf<'de, T: DeserializeOwned + Default, A: MapAccess<'de>>(&self, map: &mut A) -> Result<T, A::Error> {
        let raw = map.next_value_seed(Whole(self.limit))?;
        let value = serde_json::from_str::<Option<T>>(raw.get());
        value.map(Option::unwrap_or_default).map_err(|error| A::Error::custom(bare(&error)))
    }

    /// Takes the object that has just ended.
    fn end(&mut self, level: Level) {
        match level {
            Level::Resource => {
                let resource = std::mem::take(&mut self.resource);
                self.trace.add(Identity::of(Attributes(&resource.attributes)), std::mem::take(&mut self.source));
            }
            Level::Scope => {
                let scope = std::mem::take(&mut self.scope);
                if scope.name.starts_with("vllm") && !scope.version.is_empty() {
                    self.source.scope_version.get_or_insert(scope.version);
                }
            }
            Level::Span => self.end_span(),
            Level::Export | Level::Event => {}
        }
    }

    fn event(&mut self, raw: &str) {
        let (name, event) = match serde_json::from_str::<Event>(raw) {
            Ok(event) => (event.name.clone(), Ok(event)),
            // The name of an event that cannot be parsed still says what it was meant to be.
            Err(error) => (serde_json::from_str::<Named>(raw).unwrap_or_default().name, Err(Fault::bad(bare(&error)))),
        };
        match name.strip_prefix("step.").unwrap_or(&name) {
            "BATCH_SUMMARY" => {
                self.has_steps = true;
                match event.and_then(|event| step_events::summary(Attributes(&event.attributes))) {
                    Ok(step) => self.source.steps.push(step),
                    Err(fault) => self.trace.step_faults.add(fault),
                }
            }
            "REQUEST_SNAPSHOT" => {
                self.has_steps = true;
                match event.and_then(|event| step_events::snapshot(Attributes(&event.attributes))) {
                    Ok((snapshot, hit)) => {
                        self.source.snapshots.push(snapshot);
                        if let Some((id, cached)) = hit {
                            self.source.cache_hit(id, cached);
                        }
                    }
                    Err(fault) => self.trace.snapshot_faults.add(fault),
                }
            }
            _ => self.timestamps.take(event),
        }
    }

    fn end_span(&mut self) {
        let timestamps = std::mem::take(&mut self.timestamps);
        let has_steps = std::mem::take(&mut self.has_steps);
        let members: Vec<String> =
            self.members.drain(..).map(|(key, raw)| format!("\"{key}\":{}", raw.get())).collect();
        let span = match serde_json::from_str::<Span>(&format!("{{{}}}", members.join(","))) {
            Ok(span) => span,
            // Steps need nothing of their span.
            Err(error) if has_steps => {
                self.trace.request_faults.first.get_or_insert(bare(&error));
                return;
            }
            Err(error) => return self.trace.request_faults.add(Fault::bad(bare(&error))),
        };
        if !timestamps.is_request(&span.name) {
            self.trace.other_spans += u64::from(!has_steps);
            return;
        }
        self.trace.events_without_clock += timestamps.without_clock();
        let clocks =
            timestamps.durations_ns().map_or(Ok(()), |(wall, monotonic)| self.source.clocks.check(wall, monotonic));
        match clocks.and_then(|()| request_span(&span, timestamps)) {
            Ok(request) => self.source.requests.push(request),
            Err(fault) => self.trace.request_faults.add(fault),
        }
    }
}

#[derive(Default, serde::Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

/// A value at a level of the document, read into the walker.
struct Node<'w, 'a> {
    walker: &'w mut Walker<'a>,
    level: Level,
    shape: Shape,
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.level == Level::Event && self.shape == Shape::Object {
            let raw = Whole(self.walker.limit).deserialize(deserializer)?;
            self.walker.event(raw.get());
            return Ok(());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.shape {
            Shape::Document => "an object with `resourceSpans`, or a list of such objects",
            Shape::Object => "an object of OTLP JSON",
            Shape::List => "a list of OTLP JSON",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.shape == Shape::List {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        while let Some(key) = map.next_key::<String>()? {
            self.walker.member(self.level, &key, &mut map)?;
        }
        self.walker.end(self.level);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.shape == Shape::Object {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let Node { walker, level, .. } = self;
        while list.next_element_seed(Node { walker: &mut *walker, level, shape: Shape::Object })?.is_some() {}
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        if self.shape == Shape::Document { Err(E::invalid_type(Unexpected::Unit, &self)) } else { Ok(()) }
    }
}

/// A value held whole, as its text, within the limit of an element.
struct Whole<'a>(&'a ByteLimit);

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = Box<RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Box<RawValue>, D::Error> {
        self.0.0.set(MAX_ELEMENT_BYTES);
        let raw = <Box<RawValue> as serde::Deserialize>::deserialize(deserializer)?;
        self.0.0.set(u64::MAX);
        Ok(raw)
    }
}
