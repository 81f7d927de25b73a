//! The records of the processes that emitted a trace.

use std::collections::HashMap;

use super::attributes::{Attributes, Fault, Faults};
use super::names::Names;
use super::request_span::{RequestSpan, ServerSpan};
use super::snapshots::Snapshot;
use crate::ingest::StepRecord;
use crate::ingest::kv_events::tally::Tally;
use crate::ingest::step::attribute_contradiction;

/// Attributes of a resource that distinguish the processes of a service.
const INSTANCE_KEYS: [&str; 6] =
    ["service.namespace", "service.instance.id", "k8s.pod.name", "container.id", "host.name", "process.pid"];

/// Identifies the process that emitted a span.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Identity {
    /// `service.name`; empty where the resource has none.
    pub(super) service: String,
    /// The resource's model.
    pub(super) model: Option<String>,
    /// The attributes that distinguish its processes, joined.
    pub(super) instance: String,
    /// `service.version`.
    pub(super) version: Option<String>,
}

impl Identity {
    pub(super) fn of(resource: &Attributes) -> Self {
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
    pub(super) server_spans: Vec<ServerSpan>,
    /// Version of vLLM's instrumentation scope.
    pub(super) scope_version: Option<String>,
}

impl Process {
    pub(super) fn is_engine(&self) -> bool {
        !self.steps.is_empty() || self.requests.iter().any(|request| request.origin.is_core)
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty() || !self.server_spans.is_empty()
    }

    /// Adds what the same process emitted later.
    fn merge(&mut self, mut later: Process) {
        self.steps.append(&mut later.steps);
        self.snapshots.append(&mut later.snapshots);
        self.requests.append(&mut later.requests);
        self.server_spans.append(&mut later.server_spans);
        self.scope_version = self.scope_version.take().or(later.scope_version);
        for (id, cached) in later.cache_hits {
            // The first hit counts: after a preemption a request's own tokens are cache hits.
            self.cache_hits.entry(id).or_insert(cached);
        }
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
    pub(super) kv_faults: Faults,
    /// Events of the KV cache.
    pub(super) kv_events: Tally,
    /// Names of which nothing is read.
    pub(super) names: Names,
}

impl Trace {
    /// Adds what a process emitted.
    pub(super) fn add(&mut self, emitted: Process) {
        match self.processes.iter_mut().find(|known| known.identity == emitted.identity) {
            Some(known) => known.merge(emitted),
            None => self.processes.push(emitted),
        }
    }
}

/// Reads the attributes of `step.BATCH_SUMMARY`.
pub(super) fn step_record(attributes: &Attributes) -> Result<StepRecord, Fault> {
    let step = attributes.get()?;
    match attribute_contradiction(&step, &attributes.get()?) {
        Some((key, expected)) => Err(attributes.fault(key, &expected)),
        None => Ok(step),
    }
}
