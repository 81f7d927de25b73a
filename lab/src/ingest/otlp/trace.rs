//! Folds a trace, as it is read, into the records of the processes that emitted it.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::attributes::{Attributes, Faults};
use super::request_span::{RequestSpan, event_kind, request_span};
use super::snapshots::{Snapshot, snapshot};
use crate::ingest::StepRecord;
use crate::ingest::batch_summary::step_record;
use crate::ingest::json_stream::JsonVisitor;

/// Attributes of a resource that tell one process of a service from another.
const INSTANCE_KEYS: [&str; 6] =
    ["service.namespace", "service.instance.id", "k8s.pod.name", "container.id", "host.name", "process.pid"];

/// Identifies the process that emitted a span.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Identity {
    /// `service.name`; empty where the resource has none.
    pub(super) service: String,
    /// The resource's model.
    pub(super) model: Option<String>,
    /// The attributes that tell its processes apart, joined.
    pub(super) instance: String,
    /// `service.version`.
    pub(super) version: Option<String>,
}

impl Identity {
    fn of(resource: Attributes<'_>) -> Self {
        let instance: Vec<String> = INSTANCE_KEYS.iter().filter_map(|key| resource.name(key)).collect();
        Identity {
            service: resource.text("service.name").unwrap_or_default().to_owned(),
            model: resource.model(),
            instance: instance.join("/"),
            version: resource.text("service.version").map(str::to_owned),
        }
    }
}

/// The records of one process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) identity: Identity,
    pub(super) steps: Vec<StepRecord>,
    pub(super) snapshots: Vec<Snapshot>,
    /// Prompt tokens found in the cache, by request.
    pub(super) cache_hits: HashMap<String, u64>,
    pub(super) requests: Vec<RequestSpan>,
    /// Version of vLLM's instrumentation scope.
    pub(super) scope_version: Option<String>,
}

impl Process {
    pub(super) fn is_engine(&self) -> bool {
        !self.steps.is_empty() || self.requests.iter().any(|request| request.is_core)
    }

    fn merge(&mut self, other: Process) {
        self.steps.extend(other.steps);
        self.snapshots.extend(other.snapshots);
        for (id, cached) in other.cache_hits {
            self.cache_hits.entry(id).or_insert(cached);
        }
        self.requests.extend(other.requests);
        self.scope_version = self.scope_version.take().or(other.scope_version);
    }
}

/// A whole trace.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Processes in the order of their first mention.
    pub(super) processes: Vec<Process>,
    pub(super) step_faults: Faults,
    pub(super) snapshot_faults: Faults,
    pub(super) request_faults: Faults,
    /// Spans that are neither requests nor steps.
    pub(super) other_spans: u64,
    /// The resource in progress.
    process: Process,
    /// Members of the span in progress, its events of requests, and whether it has events of steps.
    span: Map<String, Value>,
    events: Vec<(&'static str, Value)>,
    has_steps: bool,
}

const RESOURCE: &str = "resourceSpans.resource";
const SCOPE: &str = "resourceSpans.scopeSpans.scope";
const EVENT: &str = "resourceSpans.scopeSpans.spans.events[]";

impl JsonVisitor for Trace {
    const PATHS: &'static [&'static str] = &[
        RESOURCE,
        SCOPE,
        EVENT,
        "resourceSpans.scopeSpans.spans.name",
        "resourceSpans.scopeSpans.spans.spanId",
        "resourceSpans.scopeSpans.spans.parentSpanId",
        "resourceSpans.scopeSpans.spans.startTimeUnixNano",
        "resourceSpans.scopeSpans.spans.attributes",
    ];

    fn value(&mut self, path: &'static str, value: Value) {
        match path {
            RESOURCE => self.process.identity = Identity::of(Attributes::of(&value)),
            SCOPE => {
                let is_vllm = value["name"].as_str().is_some_and(|name| name.starts_with("vllm"));
                let version = value["version"].as_str().filter(|version| is_vllm && !version.is_empty());
                let known = self.process.scope_version.take();
                self.process.scope_version = known.or_else(|| version.map(str::to_owned));
            }
            EVENT => self.event(value),
            member => {
                let key = member.rsplit('.').next().unwrap_or(member);
                self.span.insert(key.to_owned(), value);
            }
        }
    }

    fn end(&mut self, path: &str) {
        match path {
            "resourceSpans.scopeSpans.spans" => self.end_span(),
            "resourceSpans" => {
                let process = std::mem::take(&mut self.process);
                match self.processes.iter_mut().find(|known| known.identity == process.identity) {
                    Some(known) => known.merge(process),
                    None => self.processes.push(process),
                }
            }
            _ => {}
        }
    }
}

impl Trace {
    fn event(&mut self, event: Value) {
        let name = event["name"].as_str().unwrap_or_default();
        match name.strip_prefix("step.").unwrap_or(name) {
            "BATCH_SUMMARY" => {
                self.has_steps = true;
                self.process.steps.extend(self.step_faults.sound(step_record(&Attributes::of(&event))));
            }
            "REQUEST_SNAPSHOT" => {
                self.has_steps = true;
                if let Some((snapshot, hit)) = self.snapshot_faults.sound(snapshot(Attributes::of(&event))) {
                    self.process.snapshots.push(snapshot);
                    if let Some((id, cached)) = hit {
                        // The first hit counts: after a preemption a request's own tokens are cache hits.
                        self.process.cache_hits.entry(id).or_insert(cached);
                    }
                }
            }
            _ => self.events.extend(event_kind(name).map(|kind| (kind, event))),
        }
    }

    fn end_span(&mut self) {
        let span = Value::Object(std::mem::take(&mut self.span));
        let events = std::mem::take(&mut self.events);
        let has_steps = std::mem::take(&mut self.has_steps);
        let has_prefix = |event: &Value| event["name"].as_str().is_some_and(|name| name.contains('.'));
        let is_request = matches!(span["name"].as_str(), Some("llm_request" | "llm_core"));
        if is_request || events.iter().any(|(_, event)| has_prefix(event)) {
            let request = request_span(&span, &events);
            self.process.requests.extend(self.request_faults.sound(request));
        } else if !has_steps {
            self.other_spans += 1;
        }
    }
}
