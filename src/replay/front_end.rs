//! Requests that were sent but have not reached the engine, ordered by the time at which they do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::{Error, Result};
use crate::workload::{MAX_STAGES, WorkloadRequest};

/// Requests that the engine cannot see yet.
#[derive(Debug, Default)]
pub(super) struct FrontEnd {
    pending: BinaryHeap<Reverse<Pending>>,
    last_arrival_ns: u64,
}

/// A request on its way to the engine, in the order in which they reach it; of two at once, the one sent first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pending {
    pub(super) visible_ns: u64,
    pub(super) record: u32,
    pub(super) request: WorkloadRequest,
}

impl FrontEnd {
    /// Time at which the first one reaches the engine.
    pub(super) fn next_visible_ns(&self) -> Option<u64> {
        self.pending.peek().map(|Reverse(first)| first.visible_ns)
    }

    /// Takes the first one that has reached the engine by `now_ns`.
    pub(super) fn pop_visible(&mut self, now_ns: u64) -> Option<Pending> {
        self.next_visible_ns().filter(|visible_ns| *visible_ns <= now_ns)?;
        self.pending.pop().map(|Reverse(pending)| pending)
    }

    pub(super) fn push(&mut self, pending: Pending) {
        self.pending.push(Reverse(pending));
    }

    /// Checks the workload's `index`-th request, which it announced for `announced_ns`.
    pub(super) fn check(&mut self, request: &WorkloadRequest, index: usize, announced_ns: u64) -> Result<()> {
        let not_before_ns = self.last_arrival_ns.max(announced_ns);
        let refused = |field, value: String, reason: String| Err(Error::invalid_request(index, field, value, reason));
        if request.num_prompt_tokens == 0 {
            return refused("num_prompt_tokens", "0".into(), "must be at least 1".into());
        }
        if request.num_output_tokens == 0 {
            let reason = "must be at least 1: a prompt alone samples one token";
            return refused("num_output_tokens", "0".into(), reason.into());
        }
        if request.stage >= MAX_STAGES {
            return refused("stage", request.stage.to_string(), format!("must be below {MAX_STAGES}"));
        }
        if request.arrival_ns < not_before_ns {
            let reason = format!("is before the request sent before it ({not_before_ns}); sort requests by arrival");
            return refused("arrival_ns", request.arrival_ns.to_string(), reason);
        }
        if index >= u32::MAX as usize {
            return refused("number of requests", index.to_string(), format!("must be below {}", u32::MAX));
        }
        self.last_arrival_ns = request.arrival_ns;
        Ok(())
    }
}

/// The error of a workload that announced its `index`-th request and has none.
#[cold]
pub(super) fn broken_workload(index: usize) -> Error {
    Error::invalid_request(index, "arrival_ns", "none", "the workload announced a request and has none")
}
