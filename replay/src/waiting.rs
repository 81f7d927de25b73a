//! The waiting queue. Under first come, first served, preempted requests go to the front; under priorities they are sorted
//! like new ones (vLLM, `vllm/v1/core/sched/request_queue.py`).

use std::collections::BTreeMap;
use std::ops::Bound;

use super::scheduler_options::SchedulingPolicy;

/// Sort key of requests, lower first. The record's index makes the order total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Rank {
    pub(super) priority: i32,
    pub(super) arrival_ns: u64,
    pub(super) record: u32,
}

/// Place of a request in the queue.
pub(super) type QueueOrder = (i64, Rank);

/// Last turn of requests that wait for a load of KV blocks. They come before all others.
const LAST_ASIDE: i64 = i64::MIN / 2;

/// Slots of waiting requests by their turn, then by rank. Under priorities all have the same turn.
#[derive(Debug)]
pub(super) struct Waiting {
    policy: SchedulingPolicy,
    pub(super) queue: BTreeMap<QueueOrder, u32>,
    first_turn: i64,
    last_turn: i64,
    next_aside: i64,
}

impl Waiting {
    pub(super) fn new(policy: SchedulingPolicy) -> Self {
        Waiting { policy, queue: BTreeMap::new(), first_turn: 0, last_turn: 0, next_aside: i64::MIN }
    }

    /// The first request, or the first one behind those that were passed over.
    pub(super) fn after(&self, passed: Option<QueueOrder>) -> Option<(QueueOrder, u32)> {
        let found = match passed {
            None => self.queue.first_key_value(),
            Some(turn) => self.queue.range((Bound::Excluded(turn), Bound::Unbounded)).next(),
        };
        found.map(|(turn, slot)| (*turn, *slot))
    }

    pub(super) fn take(&mut self, turn: QueueOrder) {
        self.queue.remove(&turn);
    }

    /// Moves a request that cannot run yet to the end of those that are asked before all others. vLLM keeps them in a queue of their own.
    pub(super) fn set_aside(&mut self, turn: QueueOrder) {
        if self.policy == SchedulingPolicy::Fcfs
            && turn.0 > LAST_ASIDE
            && let Some(slot) = self.queue.remove(&turn)
        {
            self.next_aside += 1;
            self.queue.insert((self.next_aside, turn.1), slot);
        }
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

    /// The waiting requests in their order.
    pub(super) fn entries(&self) -> Vec<(Rank, u32)> {
        self.queue.iter().map(|((_, rank), slot)| (*rank, *slot)).collect()
    }

    /// Replaces the order of the waiting requests.
    pub(super) fn reorder(&mut self, sorted: &[(Rank, u32)]) {
        self.queue = (1..).zip(sorted).map(|(turn, (rank, slot))| ((turn, *rank), *slot)).collect();
        (self.first_turn, self.last_turn) = (0, i64::try_from(sorted.len()).unwrap_or(i64::MAX));
    }

    /// Removes a request that got its last token after it was preempted.
    pub(super) fn remove(&mut self, slot: u32) {
        self.queue.retain(|_, waiting| *waiting != slot);
    }
}
