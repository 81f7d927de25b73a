//! What a trace says, by the process that emitted it, folded as it is read.

use std::collections::HashMap;

use super::attributes::{Attributes, Fault};
use super::request_span::RequestSpan;
use super::step_events::Snapshot;
use crate::ingest::{Dropped, StepRecord};

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
    pub(super) fn of(resource: Attributes<'_>) -> Self {
        let instance: Vec<String> = INSTANCE_KEYS.iter().filter_map(|key| resource.name(key)).collect();
        Identity {
            service: resource.text("service.name").unwrap_or_default().to_owned(),
            model: resource.model(),
            instance: instance.join("/"),
            version: resource.text("service.version").map(str::to_owned),
        }
    }
}

/// Counts dropped records by reason, and keeps the text of the first fault.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) dropped: Dropped,
    pub(super) first: Option<String>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.dropped.add(fault.reason);
        self.first.get_or_insert(fault.text);
    }
}

/// Counts the request spans on which `ts.monotonic` advances as the time of day does. A factor between them is another unit.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    agreeing: u64,
    disagreeing: u64,
    /// Monotonic time over time of day on the first span where they disagree.
    first_ratio: Option<f64>,
}

impl Clocks {
    /// Takes a span's length on both clocks, ns.
    pub(super) fn check(&mut self, wall_ns: f64, monotonic_ns: f64) -> Result<(), Fault> {
        /// Far more than clocks differ, and far less than units do.
        const MAX_RATIO: f64 = 10.0;
        /// Shorter spans do not tell units apart.
        const MIN_SPAN_NS: f64 = 1e7;
        let ratio = monotonic_ns / wall_ns;
        if wall_ns < MIN_SPAN_NS {
            return Ok(());
        }
        if (1.0 / MAX_RATIO..=MAX_RATIO).contains(&ratio) {
            self.agreeing += 1;
            return Ok(());
        }
        self.disagreeing += 1;
        self.first_ratio.get_or_insert(ratio);
        Err(Fault::bad(format!("ts.monotonic advances {ratio:.3e} times as fast as timeUnixNano")))
    }

    /// The first ratio of the two clocks, where most spans disagree: the unit is another one.
    pub(super) fn wrong_unit(&self) -> Option<f64> {
        /// Fewer disagreeing spans are broken spans.
        const MIN_SPANS: u64 = 3;
        self.first_ratio.filter(|_| self.disagreeing >= MIN_SPANS && self.disagreeing > self.agreeing)
    }

    fn merge(&mut self, other: Clocks) {
        self.agreeing += other.agreeing;
        self.disagreeing += other.disagreeing;
        self.first_ratio = self.first_ratio.or(other.first_ratio);
    }
}

/// The records of one process.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) steps: Vec<StepRecord>,
    pub(super) snapshots: Vec<Snapshot>,
    /// Prompt tokens found in the cache, by request.
    pub(super) cache_hits: HashMap<String, u64>,
    pub(super) requests: Vec<RequestSpan>,
    /// Version of vLLM's instrumentation scope.
    pub(super) scope_version: Option<String>,
    pub(super) clocks: Clocks,
}

impl Source {
    fn merge(&mut self, other: Source) {
        self.steps.extend(other.steps);
        self.snapshots.extend(other.snapshots);
        for (id, cached) in other.cache_hits {
            self.cache_hit(id, cached);
        }
        self.requests.extend(other.requests);
        self.scope_version = self.scope_version.take().or(other.scope_version);
        self.clocks.merge(other.clocks);
    }

    /// Keeps the first cache hit of a request: after a preemption its own tokens are cache hits.
    pub(super) fn cache_hit(&mut self, id: String, cached: u64) {
        self.cache_hits.entry(id).or_insert(cached);
    }

    pub(super) fn is_engine(&self) -> bool {
        !self.steps.is_empty() || self.requests.iter().any(|request| request.is_core)
    }
}

/// A whole trace.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// Processes in the order of their first mention.
    pub(super) sources: Vec<(Identity, Source)>,
    pub(super) step_faults: Faults,
    pub(super) snapshot_faults: Faults,
    pub(super) request_faults: Faults,
    /// Spans that are neither requests nor steps.
    pub(super) other_spans: u64,
    /// Events without `ts.monotonic` beside others of their span that have it.
    pub(super) events_without_clock: u64,
    /// Exports of metrics, logs or profiles, which collectors may write into the same file.
    pub(super) other_signals: u64,
}

impl Trace {
    /// Adds the records of a process.
    pub(super) fn add(&mut self, identity: Identity, source: Source) {
        match self.sources.iter_mut().find(|(known, _)| *known == identity) {
            Some((_, known)) => known.merge(source),
            None => self.sources.push((identity, source)),
        }
    }
}
