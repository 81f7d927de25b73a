//! Loads for tests of replays: requests at given times, and closed loops.

use std::collections::VecDeque;

use ridgepoint_replay::workload::{Workload, WorkloadRequest};

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

/// A closed loop of the given requests: `concurrency` of them are sent at 0, and the next one whenever one has finished.
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

/// The requests at their times, or as a closed loop of so many clients.
pub fn load(requests: Vec<WorkloadRequest>, concurrency: Option<usize>) -> Box<dyn Workload> {
    match concurrency {
        Some(concurrency) => Box::new(ClosedLoop::new(requests, concurrency)),
        None => Box::new(Listed::new(requests)),
    }
}
