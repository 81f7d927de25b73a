//! Folds a trace, value by value, into the records of the processes that emitted it.

use std::num::NonZeroU64;
use std::rc::Rc;

use ridgepoint::units::NS_PER_S;

use super::attributes::{Attributes, Fault};
use super::request_span::{Span, SpanEvent, SpanOfRequest, event_kind, request_span};
use super::snapshots::snapshot;
use super::trace::{Identity, Process, Trace, step_record};
use super::walk::{Field, Handler, OtlpObject};
use crate::ingest::kv_events::event::{Event, EventBatch, is_kv_event};
use crate::ingest::kv_transfers::TransferEvent;
use crate::ingest::token_jsonl::hash;

/// The trace so far, and the objects that the walk is in.
#[derive(Default)]
pub(super) struct TraceBuilder {
    pub(super) trace: Trace,
    /// What the current resource emitted; which process that is may be reported last.
    process: Process,
    resource: Attributes,
    scope_name: String,
    scope_version: String,
    span: Span,
    /// Whether the span has events of steps, and events that only requests have.
    has_steps: bool,
    has_requests: bool,
    event_name: String,
    event_wall_ns: Option<u64>,
    event: Attributes,
    /// Whose attributes follow.
    owner: Owner,
    attribute_key: Option<String>,
    /// An attribute's text, and whether it is a floating-point number.
    attribute: Option<(String, bool)>,
    /// The model that the last request named.
    model: Option<Rc<str>>,
}

#[derive(Default)]
enum Owner {
    #[default]
    Resource,
    Span,
    Event,
}

impl Handler for TraceBuilder {
    fn begin(&mut self, node: OtlpObject) {
        match node {
            OtlpObject::ResourceSpans => {
                self.process = Process::default();
                self.resource.clear();
            }
            OtlpObject::Resource => self.owner = Owner::Resource,
            OtlpObject::ScopeSpans => {
                self.scope_name.clear();
                self.scope_version.clear();
            }
            OtlpObject::Span => {
                self.owner = Owner::Span;
                self.span = Span::default();
                (self.has_steps, self.has_requests) = (false, false);
            }
            OtlpObject::Event => {
                self.owner = Owner::Event;
                self.event_name.clear();
                self.event_wall_ns = None;
                self.event.clear();
            }
            OtlpObject::Attribute => (self.attribute_key, self.attribute) = (None, None),
            OtlpObject::Export | OtlpObject::Scope | OtlpObject::AttributeValue => {}
        }
    }

    fn text(&mut self, field: Field, text: &str) {
        let id = || u64::from_str_radix(text, 16).ok().and_then(NonZeroU64::new);
        // 0 stands for no time.
        let time_ns = || text.parse().ok().filter(|ns| *ns > 0);
        match field {
            Field::ScopeName => self.scope_name.push_str(text),
            Field::ScopeVersion => self.scope_version.push_str(text),
            Field::SpanName => self.span.name.push_str(text),
            Field::SpanId => self.span.span_id = id(),
            Field::ParentSpanId => self.span.parent_span_id = id(),
            Field::SpanStart => self.span.start_ns = time_ns(),
            Field::EventName => self.event_name.push_str(text),
            Field::EventTime => self.event_wall_ns = time_ns(),
            Field::AttributeKey => self.attribute_key = Some(text.to_owned()),
            Field::AttributeValue | Field::AttributeDouble => {
                self.attribute.get_or_insert_with(|| (text.to_owned(), field == Field::AttributeDouble));
            }
        }
    }

    fn end(&mut self, node: OtlpObject) {
        match node {
            OtlpObject::Attribute => self.end_attribute(),
            OtlpObject::Event => {
                self.end_event();
                self.owner = Owner::Span;
            }
            OtlpObject::Span => self.end_span(),
            OtlpObject::ScopeSpans => {
                if self.scope_name.starts_with("vllm") && !self.scope_version.is_empty() {
                    self.process.scope_version.get_or_insert_with(|| self.scope_version.clone());
                }
            }
            OtlpObject::ResourceSpans => {
                self.trace.names.add_resource(&self.resource);
                let process = std::mem::take(&mut self.process);
                self.trace.add(Process { identity: Identity::of(&self.resource), ..process });
            }
            OtlpObject::Export | OtlpObject::Resource | OtlpObject::Scope | OtlpObject::AttributeValue => {}
        }
    }
}

/// An event of the KV cache, which has the attributes of its transfer.
fn kv_event<'a>(name: &'a str, attributes: &'a Attributes) -> Result<Event<'a>, Fault> {
    let (from, to) = (attributes.text("kv.src"), attributes.text("kv.dst"));
    let id = attributes.text("transfer.id").map(|id| hash(&id.into()));
    let (blocks, step) = (attributes.whole("kv.num_blocks")?, attributes.whole("scheduler.step")?);
    let has_failed = attributes.text("kv.success") == Some("false");
    let is_exact = attributes.text("transfer.is_exact") == Some("true");
    Ok(Event {
        name,
        medium: attributes.text("kv.medium"),
        num_blocks: blocks.unwrap_or(0),
        block_size: attributes.whole("kv.block_size")?.filter(|size| *size > 0),
        transfer: TransferEvent::new(id, from, to).map(|of| TransferEvent { blocks, step, has_failed, is_exact, ..of }),
        ..Event::default()
    })
}

impl TraceBuilder {
    fn end_attribute(&mut self) {
        let Some((key, (text, is_double))) = self.attribute_key.take().zip(self.attribute.take()) else { return };
        let owner = match self.owner {
            Owner::Resource => &mut self.resource,
            Owner::Span => &mut self.span.attributes,
            Owner::Event => &mut self.event,
        };
        owner.add(&key, &text, is_double);
    }

    fn end_event(&mut self) {
        let name = self.event_name.as_str();
        let names = &mut self.trace.names;
        match name.strip_prefix("step.").unwrap_or(name) {
            "BATCH_SUMMARY" => {
                self.has_steps = true;
                names.add_attributes(&self.event);
                self.process.steps.extend(self.trace.step_faults.sound(step_record(&self.event)));
            }
            "REQUEST_SNAPSHOT" => {
                self.has_steps = true;
                names.add_attributes(&self.event);
                let read = self.trace.snapshot_faults.sound(snapshot(&self.event));
                let Some((snapshot, hit)) = read else { return };
                self.process.snapshots.push(snapshot);
                if let Some((id, cached)) = hit {
                    // The first hit counts: after a preemption a request's own tokens are cache hits.
                    self.process.cache_hits.entry(id).or_insert(cached);
                }
            }
            name if is_kv_event(name) => {
                self.has_steps = true;
                names.add_attributes(&self.event);
                match kv_event(name, &self.event) {
                    Ok(event) => {
                        let seconds = self.event_wall_ns.map(|ns| ns as f64 / NS_PER_S as f64);
                        let step = event.transfer.and_then(|of| of.step);
                        self.trace.kv_events.add(EventBatch { seconds, step, events: vec![event] });
                    }
                    Err(fault) => self.trace.kv_faults.add(fault),
                }
            }
            _ => {
                let Some(kind) = event_kind(name) else { return names.add_event(name) };
                names.add_attributes(&self.event);
                self.has_requests |= name.contains('.');
                let (attributes, wall_ns) = (self.event.clone(), self.event_wall_ns);
                self.span.events.push(SpanEvent { kind, attributes, wall_ns, monotonic_ns: None });
            }
        }
    }

    fn end_span(&mut self) {
        if self.has_requests || self.span.name == "llm_request" || self.span.name == "llm_core" {
            self.trace.names.add_attributes(&self.span.attributes);
            let read = request_span(&mut self.span, &mut self.model);
            match self.trace.request_faults.sound(read) {
                Some(SpanOfRequest::Request(request)) => self.process.requests.push(*request),
                Some(SpanOfRequest::Server(span)) => self.process.server_spans.push(span),
                None => {}
            }
        } else if self.has_steps {
            self.trace.names.add_attributes(&self.span.attributes);
        } else {
            self.trace.names.add_span(&self.span.name);
        }
    }
}
