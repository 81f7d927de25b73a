//! What a replay tells while it runs, for whoever wants more than its records.

use crate::request::Request;

/// A step as it was scheduled.
#[derive(Debug, Clone, Copy)]
pub struct StepEvent<'a> {
    /// Number of the step, from 0.
    pub index: u64,
    /// When the host began to schedule it, ns.
    pub scheduled_ns: u64,
    /// When the GPUs began, ns.
    pub start_ns: u64,
    /// When the GPUs were done, ns.
    pub end_ns: u64,
    /// What was in it.
    pub batch: &'a [Request],
    /// Which requests those are: positions in [`Replay::records`](super::Replay::records), in the order of `batch`.
    pub records: &'a [u32],
    /// Requests in the running queue.
    pub num_running: u32,
    /// Requests in the waiting queue.
    pub num_waiting: u32,
    /// KV blocks that requests hold.
    pub blocks_in_use: u32,
    /// Requests preempted to schedule it.
    pub num_preempted: u32,
}

/// Called by a replay as things happen; all methods do nothing unless written.
pub trait Observer {
    /// A step was scheduled.
    fn step(&mut self, _: &StepEvent<'_>) {}

    /// The client of request `record` has its `token`-th token (from 0) at `now_ns`.
    fn token(&mut self, _record: u32, _token: u32, _now_ns: u64) {}

    /// Whether [`token`](Self::token) is to be called for every token. Where not, it is called for each request's first token
    /// and may or may not be for later ones, which makes a replay faster. Asked once, before the replay.
    fn wants_every_token(&self) -> bool {
        true
    }
}

/// Nobody watches.
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
}

impl<O: Observer> Observer for &mut O {
    fn step(&mut self, event: &StepEvent<'_>) {
        (**self).step(event);
    }
    fn token(&mut self, record: u32, token: u32, now_ns: u64) {
        (**self).token(record, token, now_ns);
    }
    fn wants_every_token(&self) -> bool {
        (**self).wants_every_token()
    }
}

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
        self.as_ref().is_some_and(Observer::wants_every_token)
    }
}
