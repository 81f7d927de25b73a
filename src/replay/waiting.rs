//! The waiting queue. Under first come, first served, preempted requests go to the front; under priorities they are sorted
//! like new ones (vLLM, `vllm/v1/core/sched/request_queue.py`).

use std::collections::BTreeMap;

use super::config::SchedulingPolicy;

/// Sort key of requests, lower first. The record's index makes the order total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Rank {
    pub(super) priority: i32,
    pub(super) arrival_ns: u64,
    pub(super) record: u32,
}

/// Slots of waiting requests by their turn, then by rank. Under priorities all have the same turn.
#[derive(Debug)]
pub(super) struct Waiting {
    policy: SchedulingPolicy,
    pub(super) queue: BTreeMap<(i64, Rank), u32>,
    first_turn: i64,
    last_turn: i64,
}

impl Waiting {
    pub(super) fn new(policy: SchedulingPolicy) -> Self {
        Waiting { policy, queue: BTreeMap::new(), first_turn: 0, last_turn: 0 }
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.queue.first_key_value().map(|(_, slot)| *slot)
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        self.queue.pop_first().map(|(_, slot)| slot)
    }

    /// Adds a new request.
    pub(super) fn push(&mut self, slot: u32, rank: Rank) {
        self.last_turn += i64::from(self.policy == SchedulingPolicy::Fcfs);
        self.queue.insert((self.last_turn, rank), slot);
    }

    /// Adds a preempted request.
    pub(super) fn put_back(&mut self, slot: u32, rank: Rank) {
        self.first_turn -= i64::from(self.policy == SchedulingPolicy::Fcfs);
        self.queue.insert((self.first_turn, rank), slot);
    }

    /// Removes a request that got its last token after it was preempted.
    pub(super) fn remove(&mut self, slot: u32) {
        self.queue.retain(|_, waiting| *waiting != slot);
    }
}
