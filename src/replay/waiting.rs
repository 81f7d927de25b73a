//! The waiting queue under either policy. Preempted requests go first where it is first come, first served, and by their
//! priority where it is not (vLLM, `vllm/v1/core/sched/request_queue.py`).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::config::SchedulingPolicy;

/// What the order of requests by priority depends on: lower first. The record's number makes it total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// A new request.
    pub(super) fn push(&mut self, slot: u32, rank: Rank) {
        match self {
            Waiting::Fcfs(queue) => queue.push_back(slot),
            Waiting::Priority(heap) => heap.push(Reverse((rank, slot))),
        }
    }

    /// A preempted request.
    pub(super) fn put_back(&mut self, slot: u32, rank: Rank) {
        match self {
            Waiting::Fcfs(queue) => queue.push_front(slot),
            Waiting::Priority(heap) => heap.push(Reverse((rank, slot))),
        }
    }

    /// Takes out a request that got its last token after it was preempted.
    pub(super) fn remove(&mut self, slot: u32) {
        match self {
            Waiting::Fcfs(queue) => queue.retain(|waiting| *waiting != slot),
            Waiting::Priority(heap) => heap.retain(|Reverse((_, waiting))| *waiting != slot),
        }
    }
}
