//! What one process said: its steps, snapshots and journeys, folded as they are read. Uses `attributes`, `journey`,
//! `step_event`.

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;

use super::attributes::{Attributes, Fault};
use super::journey::Journey;
use super::step_event::Snapshot;
use crate::ingest::{Dropped, Reason, StepRecord};

/// Attributes of a resource that tell one process of a service from another.
const INSTANCE_KEYS: [&str; 6] =
    ["service.namespace", "service.instance.id", "k8s.pod.name", "container.id", "host.name", "process.pid"];
/// Attributes that name the model, on resources and on spans.
pub(super) const MODEL_KEYS: [&str; 3] = ["gen_ai.response.model", "gen_ai.request.model", "model_name"];

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct Identity {
    /// `service.name`; empty where the resource has none.
    pub(super) service: String,
    /// The resource's model.
    pub(super) model: Option<String>,
    /// What sets its processes apart, joined.
    pub(super) instance: String,
    /// `service.version`.
    pub(super) version: Option<String>,
}

impl Identity {
    pub(super) fn of(resource: &[KeyValue]) -> Self {
        let attributes = Attributes(resource);
        let instance: Vec<String> = INSTANCE_KEYS.iter().filter_map(|key| attributes.name(key)).collect();
        Identity {
            service: attributes.text("service.name").unwrap_or_default().to_owned(),
            model: attributes.first_text(&MODEL_KEYS).map(str::to_owned),
            instance: instance.join("/"),
            version: attributes.text("service.version").map(str::to_owned),
        }
    }
}

/// Records left out, and the first one's fault.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) dropped: Dropped,
    pub(super) first: Option<String>,
}

impl Faults {
    pub(super) fn add(&mut self, reason: Reason, text: impl Into<String>) {
        self.dropped.add(reason);
        self.first.get_or_insert_with(|| text.into());
    }

    pub(super) fn fault(&mut self, fault: &Fault) {
        self.add(fault.reason(), fault.text());
    }

    fn merge(&mut self, other: Faults) {
        self.dropped.merge(&other.dropped);
        self.first = self.first.take().or(other.first);
    }
}

/// Whether `ts.monotonic` advances as the time of day does: events have both, and a factor between them is another unit.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// Spans of requests on which both clocks agree.
    pub(super) agreeing: u64,
    pub(super) disagreeing: u64,
    /// Monotonic time over time of day in the first span on which they don't.
    pub(super) first_ratio: Option<f64>,
}

impl Clocks {
    /// Takes a span's length on both clocks, ns.
    pub(super) fn check(&mut self, wall_ns: f64, monotonic_ns: f64) -> Result<(), Fault> {
        /// Far more than clocks differ and far less than units do.
        const MAX_RATIO: f64 = 10.0;
        /// Shorter spans say nothing about units.
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
        Err(Fault::Bad(format!("ts.monotonic advances {ratio:.3e} times as fast as timeUnixNano")))
    }
}

/// Folded records of one process.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) steps: Vec<StepRecord>,
    pub(super) snapshots: Vec<Snapshot>,
    /// Prompt tokens found in the cache, by request.
    pub(super) cache_hits: HashMap<String, u64>,
    pub(super) journeys: Vec<Journey>,
    pub(super) step_faults: Faults,
    pub(super) snapshot_faults: Faults,
    pub(super) request_faults: Faults,
    /// Spans that are neither requests nor steps.
    pub(super) other_spans: u64,
    /// Journey events without `ts.monotonic` beside others that have it.
    pub(super) events_without_clock: u64,
    /// Version of an instrumentation scope of vLLM's.
    pub(super) scope_version: Option<String>,
    pub(super) clocks: Clocks,
}

impl Source {
    pub(super) fn merge(&mut self, other: Source) {
        self.steps.extend(other.steps);
        self.snapshots.extend(other.snapshots);
        for (id, cached) in other.cache_hits {
            self.cache_hit(id, cached);
        }
        self.journeys.extend(other.journeys);
        self.step_faults.merge(other.step_faults);
        self.snapshot_faults.merge(other.snapshot_faults);
        self.request_faults.merge(other.request_faults);
        self.other_spans += other.other_spans;
        self.events_without_clock += other.events_without_clock;
        self.scope_version = self.scope_version.take().or(other.scope_version);
        self.clocks.agreeing += other.clocks.agreeing;
        self.clocks.disagreeing += other.clocks.disagreeing;
        self.clocks.first_ratio = self.clocks.first_ratio.or(other.clocks.first_ratio);
    }

    /// The first word on a request counts: after a preemption its own tokens are cache hits.
    pub(super) fn cache_hit(&mut self, id: String, cached: u64) {
        self.cache_hits.entry(id).or_insert(cached);
    }

    pub(super) fn is_engine(&self) -> bool {
        !self.steps.is_empty() || self.journeys.iter().any(|journey| journey.is_core())
    }
}
