//! The waiting queue. Under first come, first served, preempted requests go to the front; under priorities they are sorted
//! like new ones (vLLM, `vllm/v1/core/sched/request_queue.py`).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::config::SchedulingPolicy;

/// Sort key of requests, lower first. The record's index makes the order total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Rank {
    pub(super) priority: i32,
    pub(super) arrival_ns: u64,
    pub(super) record: u32,
}

/// Slots of waiting requests.
#[derive(Debug)]
pub(super) enum Waiting {
    Fcfs(VecDeque<u32>),
    Priority(BinaryHeap<Reverse<(Rank, u32)>>),
}

impl Waiting {
    pub(super) fn new(policy: SchedulingPolicy) -> Self {
        match policy {
            SchedulingPolicy::Fcfs => Waiting::Fcfs(VecDeque::new()),
            SchedulingPolicy::Priority => Waiting::Priority(BinaryHeap::new()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Waiting::Fcfs(queue) => queue.len(),
            Waiting::Priority(heap) => heap.len(),
        }
    }

    pub(super) fn first(&self) -> Option<u32> {
        match self {
            Waiting::Fcfs(queue) => queue.front().copied(),
            Waiting::Priority(heap) => heap.peek().map(|Reverse((_, slot))| *slot),
        }
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        match self {
            Waiting::Fcfs(queue) => queue.pop_front(),
            Waiting::Priority(heap) => heap.pop().map(|Reverse((_, slot))| slot),
        }
    }

    /// Adds a new request.
    pub(super) fn push(&mut self, slot: u32, rank: Rank) {
        match self {
            Waiting::Fcfs(queue) => queue.push_back(slot),
            Waiting::Priority(heap) => heap.push(Reverse((rank, slot))),
        }
    }

    /// Adds a preempted request.
    pub(super) fn put_back(&mut self, slot: u32, rank: Rank) {
        match self {
            Waiting::Fcfs(queue) => queue.push_front(slot),
            Waiting::Priority(heap) => heap.push(Reverse((rank, slot))),
        }
    }

    /// Removes a request that got its last token after it was preempted.
    pub(super) fn remove(&mut self, slot: u32) {
        match self {
            Waiting::Fcfs(queue) => queue.retain(|waiting| *waiting != slot),
            Waiting::Priority(heap) => heap.retain(|Reverse((_, waiting))| *waiting != slot),
        }
    }
}
