//! The events of a span: steps and snapshots are folded at once, those of a journey gathered for their span. Uses `document`,
//! `source`, `journey`, `step_event`.

use std::fmt;

use opentelemetry_proto::tonic::trace::v1::span::Event;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::attributes::{Attributes, Fault};
use super::document::{Element, Walk, bare};
use super::journey::Moments;
use super::source::Source;
use super::step_event;
use crate::ingest::Reason;

/// What the events of a span came to.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) moments: Moments,
    pub(super) has_steps: bool,
}

/// The events of a span, each read and folded on its own.
pub(super) struct Events<'a, 'p> {
    pub(super) walk: Walk<'p>,
    pub(super) source: &'a mut Source,
    pub(super) gathered: &'a mut Gathered,
}

impl<'de> DeserializeSeed<'de> for Events<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the list of a span's events")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(raw) = list.next_element_seed(Element(&self.walk))? {
            self.event(raw.get());
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

impl Events<'_, '_> {
    fn event(&mut self, raw: &str) {
        let event = match serde_json::from_str::<Event>(raw) {
            Ok(event) => event,
            Err(error) => return self.broken(raw, bare(&error)),
        };
        let attributes = Attributes(&event.attributes);
        match event.name.strip_prefix("step.").unwrap_or(&event.name) {
            "BATCH_SUMMARY" => {
                self.gathered.has_steps = true;
                match step_event::summary(attributes) {
                    Ok(step) => self.source.steps.push(step),
                    Err(fault) => self.source.step_faults.fault(&fault),
                }
            }
            "REQUEST_SNAPSHOT" => {
                self.gathered.has_steps = true;
                match step_event::snapshot(attributes) {
                    Ok((snapshot, hit)) => {
                        self.source.snapshots.push(snapshot);
                        if let Some((id, cached)) = hit {
                            self.source.cache_hit(id, cached);
                        }
                    }
                    Err(fault) => self.source.snapshot_faults.fault(&fault),
                }
            }
            _ => {
                self.gathered.moments.take(&event);
            }
        }
    }

    /// Well-formed JSON that is no event; its name may still say what it was meant to be.
    fn broken(&mut self, raw: &str, message: String) {
        let name = serde_json::from_str::<Named>(raw).unwrap_or_default().name;
        match name.strip_prefix("step.").unwrap_or(&name) {
            "BATCH_SUMMARY" => {
                self.gathered.has_steps = true;
                self.source.step_faults.add(Reason::BadValue, message);
            }
            "REQUEST_SNAPSHOT" => {
                self.gathered.has_steps = true;
                self.source.snapshot_faults.add(Reason::BadValue, message);
            }
            _ => self.gathered.moments.fault(Fault::Bad(message)),
        }
    }
}

#[derive(Default, serde::Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}
