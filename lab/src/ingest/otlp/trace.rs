//! Folds a trace, export by export, into the records of the processes that emitted it.
#![expect(clippy::indexing_slicing, reason = "a missing key of JSON is null; processes are numbered when added")]

use std::collections::HashMap;

use serde_json::Value;

use super::attributes::{Attributes, Fault, Faults, elements};
use super::request_span::{RequestSpan, event_kind, request_span};
use super::snapshots::{Snapshot, snapshot};
use crate::ingest::StepRecord;
use crate::ingest::step::contradiction;

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
    fn of(resource: &Attributes) -> Self {
        Identity {
            service: resource.first_text(&["service.name"]).unwrap_or_default(),
            model: resource.model(),
            instance: INSTANCE_KEYS.iter().filter_map(|key| resource.text(key)).collect::<Vec<&str>>().join("/"),
            version: resource.first_text(&["service.version"]),
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
}

impl Trace {
    /// Adds the records of an export.
    pub(super) fn add(&mut self, export: &Value) {
        for resource in elements(&export["resourceSpans"]) {
            let identity = Identity::of(&Attributes::of(&resource["resource"]));
            let at = self.processes.iter().position(|known| known.identity == identity).unwrap_or_else(|| {
                self.processes.push(Process { identity, ..Process::default() });
                self.processes.len() - 1
            });
            for scoped in elements(&resource["scopeSpans"]) {
                let text = |key: &str| scoped["scope"][key].as_str().unwrap_or_default();
                if text("name").starts_with("vllm") && !text("version").is_empty() {
                    self.processes[at].scope_version.get_or_insert(text("version").to_owned());
                }
                elements(&scoped["spans"]).for_each(|span| self.add_span(at, span));
            }
        }
    }

    fn add_span(&mut self, at: usize, span: &Value) {
        let process = &mut self.processes[at];
        let (mut has_steps, mut has_requests) = (false, false);
        for event in elements(&span["events"]) {
            let name = event["name"].as_str().unwrap_or_default();
            match name.strip_prefix("step.").unwrap_or(name) {
                "BATCH_SUMMARY" => {
                    has_steps = true;
                    process.steps.extend(self.step_faults.sound(step_record(&Attributes::of(event))));
                }
                "REQUEST_SNAPSHOT" => {
                    has_steps = true;
                    let read = self.snapshot_faults.sound(snapshot(&Attributes::of(event)));
                    let Some((snapshot, hit)) = read else { continue };
                    process.snapshots.push(snapshot);
                    if let Some((id, cached)) = hit {
                        // The first hit counts: after a preemption a request's own tokens are cache hits.
                        process.cache_hits.entry(id).or_insert(cached);
                    }
                }
                _ => has_requests |= name.contains('.') && event_kind(name).is_some(),
            }
        }
        if has_requests || span["name"] == "llm_request" || span["name"] == "llm_core" {
            process.requests.extend(self.request_faults.sound(request_span(span)));
        } else if !has_steps {
            self.other_spans += 1;
        }
    }
}

/// Reads the attributes of `step.BATCH_SUMMARY`.
fn step_record(attributes: &Attributes) -> Result<StepRecord, Fault> {
    let step = attributes.get()?;
    match contradiction(&step, &attributes.get()?) {
        Some((key, expected)) => Err(attributes.fault(key, &expected)),
        None => Ok(step),
    }
}
