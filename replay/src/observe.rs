//! Events of a replay while it runs, for callers that need more than its records.

use ridgepoint::Request;
use ridgepoint::latency::TransferDirection;

use super::block_lives::BlockStats;

/// A step as it was scheduled.
#[derive(Debug, Clone, Copy)]
pub struct StepEvent<'a> {
    /// Number of the step, from 0.
    pub index: u64,
    /// Time at which the host began to schedule it, ns.
    pub scheduled_ns: u64,
    /// Time at which the GPUs began, ns.
    pub start_ns: u64,
    /// Time at which the GPUs were done, ns.
    pub end_ns: u64,
    /// Requests of the step.
    pub batch: &'a [Request],
    /// Positions of these requests in [`Replay::records`](super::Replay::records), in the order of `batch`.
    pub records: &'a [u32],
    /// Requests in the running queue.
    pub num_running: u32,
    /// Requests in the waiting queue.
    pub num_waiting: u32,
    /// KV blocks that requests hold.
    pub blocks_in_use: u32,
    /// Tokens of KV blocks that requests hold beside another request, counted for each but one.
    pub shared_kv_tokens: u64,
    /// Prompt tokens found in the prefix cache up to this step.
    pub cached_tokens: u64,
    /// Positions of the requests that were preempted to schedule it.
    pub preempted: &'a [u32],
}

/// An event of the host's tier of KV blocks. Blocks are numbered in the order in which the host made room for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// These blocks are written and can be loaded.
    Stored(Vec<u64>),
    /// These blocks made room for others.
    Removed(Vec<u64>),
    /// A copy was submitted. The event follows earlier events of its blocks, and may follow its own `Transfer` event.
    Submitted(SubmittedEvent),
    /// A copy has ended.
    Transfer(TransferEvent),
}

/// The blocks of a copy that was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedEvent {
    /// Number of the copy, as in [`TransferEvent::index`].
    pub index: u64,
    /// Its direction.
    pub direction: TransferDirection,
    /// The host's blocks that it reads or writes.
    pub host: Vec<u64>,
    /// The disk's blocks that it writes or reads, in the order of `host`: hashes of their tokens and of all before these. Empty for a copy
    /// between GPU and host.
    pub disk: Vec<u64>,
}

/// A copy of a request's blocks between GPU and host, or between host and disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferEvent {
    /// Number of the copy in the order of submission, from 0.
    pub index: u64,
    /// Its direction.
    pub direction: TransferDirection,
    /// Position of the request in [`Replay::records`](super::Replay::records).
    pub record: u32,
    /// Number of blocks.
    pub num_blocks: u32,
    /// Earliest time at which it could begin, ns.
    pub ready_ns: u64,
    /// Time at which it ended, ns.
    pub end_ns: u64,
}

/// Callbacks of a replay. Every method has an empty default.
pub trait Observer {
    /// Called when a step was scheduled.
    fn step(&mut self, _: &StepEvent<'_>) {}

    /// Called when the client of request `record` has its `token`-th token (from 0) at `now_ns`.
    fn token(&mut self, _record: u32, _token: u32, _now_ns: u64) {}

    /// Called for each event of the host's tier, if [`wants_kv_events`](Self::wants_kv_events).
    fn kv(&mut self, _: &KvEvent) {}

    /// Whether [`kv`](Self::kv) is called. Asked once, before the replay.
    fn wants_kv_events(&self) -> bool {
        false
    }

    /// Called once, after a replay with prefix caching, if [`wants_block_stats`](Self::wants_block_stats).
    fn block_stats(&mut self, _: &BlockStats) {}

    /// Whether the replay records the lifetimes of KV blocks, which makes it slower. Called once, before the replay.
    fn wants_block_stats(&self) -> bool {
        false
    }

    /// Whether [`token`](Self::token) is called for every token. If false, it is called for each request's first token and
    /// may skip later ones, which makes the replay faster. Asked once, before the replay.
    fn wants_every_token(&self) -> bool {
        true
    }
}

/// An observer that does nothing.
impl Observer for () {
    fn wants_every_token(&self) -> bool {
        false
    }
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn step(&mut self, event: &StepEvent<'_>) {
        self.0.step(event);
        self.1.step(event);
    }
    fn token(&mut self, record: u32, token: u32, now_ns: u64) {
        self.0.token(record, token, now_ns);
        self.1.token(record, token, now_ns);
    }
    fn wants_every_token(&self) -> bool {
        self.0.wants_every_token() || self.1.wants_every_token()
    }
    fn kv(&mut self, event: &KvEvent) {
        self.0.kv(event);
        self.1.kv(event);
    }
    fn wants_kv_events(&self) -> bool {
        self.0.wants_kv_events() || self.1.wants_kv_events()
    }
    fn block_stats(&mut self, stats: &BlockStats) {
        self.0.block_stats(stats);
        self.1.block_stats(stats);
    }
    fn wants_block_stats(&self) -> bool {
        self.0.wants_block_stats() || self.1.wants_block_stats()
    }
}

/// An observer that may be absent.
impl<O: Observer> Observer for Option<O> {
    fn step(&mut self, event: &StepEvent<'_>) {
        if let Some(observer) = self {
            observer.step(event);
        }
    }
    fn token(&mut self, record: u32, token: u32, now_ns: u64) {
        if let Some(observer) = self {
            observer.token(record, token, now_ns);
        }
    }
    fn wants_every_token(&self) -> bool {
        self.as_ref().is_some_and(O::wants_every_token)
    }
    fn kv(&mut self, event: &KvEvent) {
        if let Some(observer) = self {
            observer.kv(event);
        }
    }
    fn wants_kv_events(&self) -> bool {
        self.as_ref().is_some_and(O::wants_kv_events)
    }
    fn block_stats(&mut self, stats: &BlockStats) {
        if let Some(observer) = self {
            observer.block_stats(stats);
        }
    }
    fn wants_block_stats(&self) -> bool {
        self.as_ref().is_some_and(O::wants_block_stats)
    }
}
