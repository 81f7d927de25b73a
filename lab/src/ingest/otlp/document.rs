//! OTLP JSON walked down to single events, so that neither a file nor a span is ever held whole. OpenTelemetry's own types read
//! what is at the ends: resources, scopes, headers of spans, events. Uses `position`, `source`, `journey`, `events`.

use std::fmt;

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::events::{Events, Gathered};
use super::journey::journey;
use super::position::Position;
use super::source::{Identity, Source};
use crate::ingest::Reason;

/// Takes what one resource said.
pub(super) trait Sink {
    fn source(&mut self, identity: Identity, source: Source);
    /// Metrics, logs or profiles, which other exporters write into the same file.
    fn other_signal(&mut self);
}

/// An object of the format: what to do with its members, and at its end.
trait Part {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
    fn end(&mut self) {}
}

/// Reads one object into a part; null is an object without members.
struct One<'a, P>(&'a mut P);

impl<'de, P: Part> DeserializeSeed<'de> for One<'_, P> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, P: Part> Visitor<'de> for One<'_, P> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of OTLP JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            self.0.member(&key, &mut map)?;
        }
        self.0.end();
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads a list of objects, one after the other into the same part.
struct Many<'a, P>(&'a mut P);

impl<'de, P: Part> DeserializeSeed<'de> for Many<'_, P> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, P: Part> Visitor<'de> for Many<'_, P> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of OTLP JSON")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(One(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A value held whole, as its text, within the limit of the position.
pub(super) struct Element<'a, 'p>(pub(super) &'a Walk<'p>);

impl<'de> DeserializeSeed<'de> for Element<'_, '_> {
    type Value = Box<RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Box<RawValue>, D::Error> {
        self.0.position.begin_element();
        let raw = <Box<RawValue> as serde::Deserialize>::deserialize(deserializer)?;
        self.0.position.end_element();
        Ok(raw)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Walk<'p> {
    position: &'p Position,
}

impl Walk<'_> {
    /// Reads a member with one of OpenTelemetry's types; null is its default.
    fn read<'de, T: DeserializeOwned + Default, A: MapAccess<'de>>(&self, map: &mut A) -> Result<T, A::Error> {
        let raw = map.next_value_seed(Element(self))?;
        serde_json::from_str::<Option<T>>(raw.get())
            .map(Option::unwrap_or_default)
            .map_err(|error| A::Error::custom(bare(&error)))
    }
}

/// The message of a parser without its place: it counts from the start of an element.
pub(super) fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(cause, _)| cause.to_owned())
}

/// An export request, or a list of them.
pub(super) struct Document<'a, S> {
    pub(super) sink: &'a mut S,
    pub(super) position: &'a Position,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Document<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Document<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `resourceSpans`, or a list of such")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let mut part = Export { sink: self.sink, walk: Walk { position: self.position } };
        One(&mut part).visit_map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        let mut part = Export { sink: self.sink, walk: Walk { position: self.position } };
        Many(&mut part).visit_seq(list)
    }
}

struct Export<'a, 'p, S> {
    sink: &'a mut S,
    walk: Walk<'p>,
}

impl<S: Sink> Part for Export<'_, '_, S> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "resourceSpans" => {
                let mut part = ResourcePart {
                    sink: self.sink,
                    walk: self.walk,
                    resource: Resource::default(),
                    source: Source::default(),
                };
                map.next_value_seed(Many(&mut part))
            }
            "resourceMetrics" | "resourceLogs" | "resourceProfiles" => {
                self.sink.other_signal();
                map.next_value::<IgnoredAny>().map(|_| ())
            }
            other => Err(A::Error::custom(format!(
                "unknown key '{}' where OTLP JSON has `resourceSpans`: write traces with the collector's file exporter and \
                 its `format: json`",
                ridgepoint::internals::error::cut(other)
            ))),
        }
    }
}

struct ResourcePart<'a, 'p, S> {
    sink: &'a mut S,
    walk: Walk<'p>,
    resource: Resource,
    source: Source,
}

impl<S: Sink> Part for ResourcePart<'_, '_, S> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "resource" => {
                self.resource = self.walk.read::<Resource, A>(map)?;
                Ok(())
            }
            "scopeSpans" => {
                let mut part =
                    ScopePart { walk: self.walk, source: &mut self.source, scope: InstrumentationScope::default() };
                map.next_value_seed(Many(&mut part))
            }
            "instrumentationLibrarySpans" => Err(A::Error::custom(
                "`instrumentationLibrarySpans` is OTLP from before 0.15: export with a newer collector",
            )),
            _ => map.next_value::<IgnoredAny>().map(|_| ()),
        }
    }

    fn end(&mut self) {
        let attributes: Vec<KeyValue> = std::mem::take(&mut self.resource).attributes;
        self.sink.source(Identity::of(&attributes), std::mem::take(&mut self.source));
    }
}

struct ScopePart<'a, 'p> {
    walk: Walk<'p>,
    source: &'a mut Source,
    scope: InstrumentationScope,
}

impl Part for ScopePart<'_, '_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "scope" => {
                self.scope = self.walk.read::<InstrumentationScope, A>(map)?;
                Ok(())
            }
            "spans" => {
                let mut part = SpanPart {
                    walk: self.walk,
                    source: self.source,
                    header: Vec::new(),
                    gathered: Gathered::default(),
                };
                map.next_value_seed(Many(&mut part))
            }
            _ => map.next_value::<IgnoredAny>().map(|_| ()),
        }
    }

    fn end(&mut self) {
        let scope = std::mem::take(&mut self.scope);
        if scope.name.starts_with("vllm") && !scope.version.is_empty() {
            self.source.scope_version.get_or_insert(scope.version);
        }
    }
}

/// Members of a span that are read; its links, state and flags are not.
const HEADER: [&str; 6] = ["traceId", "spanId", "parentSpanId", "name", "startTimeUnixNano", "attributes"];

struct SpanPart<'a, 'p> {
    walk: Walk<'p>,
    source: &'a mut Source,
    header: Vec<(&'static str, Box<RawValue>)>,
    gathered: Gathered,
}

impl Part for SpanPart<'_, '_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        if key == "events" {
            let events = Events { walk: self.walk, source: self.source, gathered: &mut self.gathered };
            return map.next_value_seed(events);
        }
        let Some(key) = HEADER.iter().find(|name| **name == key) else {
            return map.next_value::<IgnoredAny>().map(|_| ());
        };
        let raw = map.next_value_seed(Element(&self.walk))?;
        if raw.get() != "null" {
            self.header.push((key, raw));
        }
        Ok(())
    }

    fn end(&mut self) {
        let members: Vec<String> = self.header.drain(..).map(|(key, raw)| format!("\"{key}\":{}", raw.get())).collect();
        let span = serde_json::from_str::<Span>(&format!("{{{}}}", members.join(",")));
        let gathered = std::mem::take(&mut self.gathered);
        let span = match span {
            Ok(span) => span,
            Err(error) if gathered.has_steps => {
                // Steps need nothing of their span.
                self.source.request_faults.first.get_or_insert(bare(&error));
                return;
            }
            Err(error) => return self.source.request_faults.add(Reason::BadValue, bare(&error)),
        };
        if !gathered.moments.is_request(&span.name) {
            self.source.other_spans += u64::from(!gathered.has_steps);
            return;
        }
        self.source.events_without_clock += gathered.moments.without_clock();
        let clocks = gathered
            .moments
            .spans_ns()
            .map_or(Ok(()), |(wall_ns, monotonic_ns)| self.source.clocks.check(wall_ns, monotonic_ns));
        match clocks.and_then(|()| journey(&span, gathered.moments)) {
            Ok(journey) => self.source.journeys.push(journey),
            Err(fault) => self.source.request_faults.fault(&fault),
        }
    }
}
