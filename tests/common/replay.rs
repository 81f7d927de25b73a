//! Workloads and an observer for tests of replays.

use std::collections::VecDeque;

use ridgepoint::Request;
use ridgepoint::internals::replay::KvEvent;
use ridgepoint::replay::{Observer, StepEvent};
use ridgepoint::workload::{Workload, WorkloadRequest};

/// A step as the replay told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub index: u64,
    pub scheduled_ns: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Record, and what was scheduled of it.
    pub batch: Vec<(u32, Request)>,
    pub num_running: u32,
    pub num_waiting: u32,
    pub blocks_in_use: u32,
    pub num_preempted: u32,
}

/// Everything that an observer is told.
#[derive(Debug, Default)]
pub struct Recorder {
    pub steps: Vec<Step>,
    /// Record, token, ns; in the order of the calls.
    pub tokens: Vec<(u32, u32, u64)>,
    /// Events of the host's tier.
    pub kv: Vec<KvEvent>,
}

impl Observer for Recorder {
    fn step(&mut self, event: &StepEvent<'_>) {
        assert_eq!(event.batch.len(), event.records.len());
        self.steps.push(Step {
            index: event.index,
            scheduled_ns: event.scheduled_ns,
            start_ns: event.start_ns,
            end_ns: event.end_ns,
            batch: event.records.iter().copied().zip(event.batch.iter().copied()).collect(),
            num_running: event.num_running,
            num_waiting: event.num_waiting,
            blocks_in_use: event.blocks_in_use,
            num_preempted: event.preempted.len() as u32,
        });
    }
    fn token(&mut self, record: u32, token: u32, now_ns: u64) {
        self.tokens.push((record, token, now_ns));
    }
    fn kv(&mut self, event: &KvEvent) {
        self.kv.push(event.clone());
    }
    fn wants_kv_events(&self) -> bool {
        true
    }
}

/// Requests with given times.
pub struct Listed {
    requests: std::vec::IntoIter<WorkloadRequest>,
}

impl Listed {
    pub fn new(requests: Vec<WorkloadRequest>) -> Self {
        Listed { requests: requests.into_iter() }
    }
}

impl Workload for Listed {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.requests.as_slice().first().map(|request| request.arrival_ns)
    }
    fn next_request(&mut self) -> Option<WorkloadRequest> {
        self.requests.next()
    }
    fn finished(&mut self, _: u64, _: u32, _: u32) {}
}

/// Requests of given lengths; as many as `concurrency` are sent at 0, and the next whenever one is over.
pub struct ClosedLoop {
    requests: std::vec::IntoIter<WorkloadRequest>,
    due_ns: VecDeque<u64>,
    last_ns: u64,
}

impl ClosedLoop {
    pub fn new(requests: Vec<WorkloadRequest>, concurrency: usize) -> Self {
        let due_ns = std::iter::repeat_n(0, concurrency).collect();
        ClosedLoop { requests: requests.into_iter(), due_ns, last_ns: 0 }
    }
}

impl Workload for ClosedLoop {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.requests.as_slice().first().and(self.due_ns.front().copied())
    }
    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let arrival_ns = self.next_arrival_ns()?;
        self.due_ns.pop_front();
        self.requests.next().map(|request| WorkloadRequest { arrival_ns, ..request })
    }
    fn finished(&mut self, now_ns: u64, _: u32, _request: u32) {
        self.last_ns = self.last_ns.max(now_ns);
        self.due_ns.push_back(self.last_ns);
    }
}
