//! Events of a replay while it runs, for callers that need more than its records.

use std::ops::BitOr;

use ridgepoint::Step;
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
    /// What the latency model was asked for: the requests, and what they have in common.
    pub step: Step<'a>,
    /// Positions of the step's requests in [`Replay::records`](super::Replay::records), in their order.
    pub records: &'a [u32],
    /// Requests in the running queue.
    pub num_running: u32,
    /// Requests in the waiting queue.
    pub num_waiting: u32,
    /// KV blocks that requests hold.
    pub blocks_in_use: u32,
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

/// What a replay reports while it runs. More kinds may follow.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A step was scheduled.
    Step(StepEvent<'a>),
    /// A client has a token.
    Token {
        /// Position of the request in [`Replay::records`](super::Replay::records).
        record: u32,
        /// Number of the token among the request's output, from 0.
        token: u32,
        /// Time at which the client has it, ns.
        now_ns: u64,
    },
    /// Something happened to the host's tier of KV blocks.
    Kv(&'a KvEvent),
    /// The lives of KV blocks, once, after a replay with prefix caching.
    Blocks(&'a BlockStats),
}

impl Event<'_> {
    /// The kind of the event.
    fn kind(&self) -> Events {
        match self {
            Event::Step(_) => Events::STEPS,
            Event::Token { token: 0, .. } => Events::FIRST_TOKENS,
            Event::Token { .. } => Events::TOKENS,
            Event::Kv(_) => Events::KV,
            Event::Blocks(_) => Events::BLOCKS,
        }
    }
}

/// Kinds of [`Event`], joined by `|`.
///
/// ```
/// use ridgepoint_replay::Events;
///
/// let wanted = Events::STEPS | Events::TOKENS;
/// assert!(wanted.contains(Events::FIRST_TOKENS) && !wanted.contains(Events::KV));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Events(u8);

impl Events {
    /// No event.
    pub const NONE: Events = Events(0);
    /// [`Event::Step`] of every step.
    pub const STEPS: Events = Events(1);
    /// [`Event::Token`] of each request's first token.
    pub const FIRST_TOKENS: Events = Events(2);
    /// [`Event::Token`] of every token, the first ones included. Without it, a replay need not visit every request in every step.
    pub const TOKENS: Events = Events(2 | 4);
    /// [`Event::Kv`] of every event of the host's tier.
    pub const KV: Events = Events(8);
    /// [`Event::Blocks`]. The replay then follows the life of every KV block, which makes it slower.
    pub const BLOCKS: Events = Events(16);

    /// Whether all kinds of `other` are among these.
    pub const fn contains(self, other: Events) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Events {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Events(self.0 | other.0)
    }
}

/// Watches a replay. A replay has any number of observers.
///
/// ```
/// use ridgepoint_replay::{Event, Events, Observer};
///
/// /// Counts requests that have their first token.
/// struct Answered(u64);
///
/// impl Observer for Answered {
///     fn wants(&self) -> Events {
///         Events::FIRST_TOKENS
///     }
///     fn on(&mut self, _: &Event<'_>) {
///         self.0 += 1;
///     }
/// }
/// ```
pub trait Observer {
    /// Returns the kinds of events that [`on`](Self::on) is called with. A replay asks once, before it begins.
    fn wants(&self) -> Events;

    /// Takes an event of a wanted kind. Observers have each event in the order of the list that the replay was given.
    fn on(&mut self, event: &Event<'_>);
}

/// The observers of a replay.
pub(super) struct Observers<'a> {
    listed: Vec<(Events, &'a mut (dyn Observer + 'a))>,
    /// What any of them wants.
    wanted: Events,
}

impl<'a> Observers<'a> {
    pub(super) fn new(observers: &'a mut [&mut dyn Observer]) -> Self {
        let mut listed: Vec<(Events, &'a mut (dyn Observer + 'a))> = Vec::with_capacity(observers.len());
        for observer in observers {
            listed.push((observer.wants(), &mut **observer));
        }
        let wanted = listed.iter().fold(Events::NONE, |all, (wants, _)| all | *wants);
        Observers { listed, wanted }
    }

    /// Whether an observer wants these events.
    pub(super) fn want(&self, events: Events) -> bool {
        self.wanted.contains(events)
    }

    /// Reports an event to the observers that want it.
    pub(super) fn report(&mut self, event: &Event<'_>) {
        let kind = event.kind();
        for (_, observer) in self.listed.iter_mut().filter(|(wants, _)| wants.contains(kind)) {
            observer.on(event);
        }
    }
}
