//! KV that moves between engines, in the engine's loop: what it is told of transfers, and what it tells of its prompts and blocks.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots and records within its lists")]

use std::collections::{HashMap, HashSet, VecDeque};

use ridgepoint::Result;

use super::super::batch::{Batch, Scheduled};
use super::super::front_end::Pending;
use super::super::observe::Event;
use super::super::record::RequestRecord;
use super::super::scheduler::{KvRole, Remote};
use super::Engine;
use crate::workload::Workload;

/// What an engine is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KvSignal {
    /// The engine that will decode a request has blocks for its prompt, which may be computed.
    HasSpace,
    /// A prompt was moved: its blocks need not be held any more.
    Moved,
    /// The content of a request's blocks is there.
    Arrived,
}

/// What an engine tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KvNews {
    /// So many tokens of a prompt are computed.
    Computed { num_tokens: u32 },
    /// A request has blocks for its prompt, so many of which have to be moved.
    GotBlocks { num_blocks: u32 },
}

/// The signals of one engine.
#[derive(Debug)]
pub(crate) struct Signals {
    role: KvRole,
    /// Signals that were not heard yet, in the order of time.
    queue: VecDeque<(u64, u32, KvSignal)>,
    /// Requests that came before their signal, and records whose signal came before.
    waiting: HashMap<u32, Pending>,
    has_space: HashSet<u32>,
    /// Records whose content was there when an iteration began. vLLM's workers report it with the output of a step.
    seen: Vec<u32>,
    /// Whether nothing can be scheduled until a request or a signal comes.
    is_stuck: bool,
    /// News since the cluster asked last, each with its time and its record.
    pub(crate) news: Vec<(u64, u32, KvNews)>,
}

impl Signals {
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.queue.front().map(|(now_ns, ..)| *now_ns)
    }
}

impl<W: Workload> Engine<'_, W> {
    /// Makes it compute prompts for others, or decode behind prompts of others.
    pub(crate) fn take_role(&mut self, role: KvRole) {
        self.scheduler.remote = Some(Box::new(Remote::new(role)));
        self.signals = Some(Box::new(Signals {
            role,
            queue: VecDeque::new(),
            waiting: HashMap::new(),
            has_space: HashSet::new(),
            seen: Vec::new(),
            is_stuck: false,
            news: Vec::new(),
        }));
    }

    pub(super) fn computes_for_others(&self) -> bool {
        self.signals.as_ref().is_some_and(|signals| signals.role != KvRole::Decode)
    }

    pub(super) fn gets_prompts(&self) -> bool {
        self.signals.as_ref().is_some_and(|signals| signals.role == KvRole::Decode)
    }

    /// Tells it something at `now_ns`, no earlier than what it was told before. It hears of it when it goes on.
    pub(crate) fn tell(&mut self, now_ns: u64, record: u32, signal: KvSignal) {
        if let Some(signals) = &mut self.signals {
            signals.queue.push_back((now_ns, record, signal));
        }
    }

    /// News since it was asked last.
    pub(crate) fn take_news(&mut self) -> Vec<(u64, u32, KvNews)> {
        self.signals.as_mut().map(|signals| std::mem::take(&mut signals.news)).unwrap_or_default()
    }

    /// What it knows of a request.
    pub(crate) fn record(&self, record: u32) -> Option<&RequestRecord> {
        self.records.get(record as usize)
    }

    /// Whether it has nothing to do until a request or a signal comes.
    pub(super) fn rests(&self) -> bool {
        self.scheduler.is_idle() || self.signals.as_ref().is_some_and(|signals| signals.is_stuck)
    }

    /// A request that may enter the waiting queue; `None` if it stays outside until there is space for it.
    pub(super) fn let_in(&mut self, pending: Pending) -> Option<Pending> {
        let Some(signals) = &mut self.signals else { return Some(pending) };
        let waits = signals.role == KvRole::Prefill { waits_for_space: true };
        if !waits || signals.has_space.remove(&pending.record) {
            return Some(pending);
        }
        signals.waiting.insert(pending.record, pending);
        None
    }

    /// Begins an iteration: hears what it was told by now.
    pub(super) fn take_signals(&mut self) -> Result<()> {
        if self.in_flight.is_empty() && self.rests() {
            self.clock.wait_until(self.next_visible_ns().unwrap_or(0));
        }
        let now_ns = self.clock.now_ns();
        while let Some(signals) = &mut self.signals {
            signals.is_stuck = false;
            let Some((_, record, signal)) = signals.queue.front().copied().filter(|(then_ns, ..)| *then_ns <= now_ns)
            else {
                break;
            };
            signals.queue.pop_front();
            match signal {
                KvSignal::HasSpace => match signals.waiting.remove(&record) {
                    Some(pending) => self.admit_one(&pending, now_ns)?,
                    None => {
                        signals.has_space.insert(record);
                    }
                },
                KvSignal::Moved => self.scheduler.release_held(&mut *self.rules, record),
                KvSignal::Arrived if self.config.rules.is_vllm() => signals.seen.push(record),
                KvSignal::Arrived => self.arrived(record),
            }
        }
        // An idle engine runs an iteration without a step, which reports at once.
        if self.in_flight.is_empty() && self.scheduler.is_idle() {
            self.see_at_once();
        }
        Ok(())
    }

    fn arrived(&mut self, record: u32) {
        if let Some(remote) = &mut self.scheduler.remote {
            remote.arrived(record);
        }
    }

    fn see_at_once(&mut self) {
        let seen = self.signals.as_mut().map(|signals| std::mem::take(&mut signals.seen)).unwrap_or_default();
        seen.into_iter().for_each(|record| self.arrived(record));
    }

    /// Learns what became of requests in an iteration of the scheduler.
    pub(super) fn learn(&mut self, scheduled: &Scheduled) -> Result<()> {
        if !matches!(scheduled, Scheduled::Step) {
            self.see_at_once();
        }
        let Some(signals) = &mut self.signals else { return Ok(()) };
        if let Some(step) = self.in_flight.back_mut().filter(|_| matches!(scheduled, Scheduled::Step)) {
            step.loaded.append(&mut signals.seen);
        }
        if let Some(remote) = &mut self.scheduler.remote {
            let is_any_ready = remote.is_any_ready();
            signals.is_stuck = matches!(scheduled, Scheduled::Nothing) && self.in_flight.is_empty() && !is_any_ready;
        }
        Ok(())
    }

    /// Requests that have just begun to run, at `now_ns`, and those that have just got blocks.
    pub(super) fn tell_of_requests(&mut self, now_ns: u64) {
        let (Some(signals), Some(remote)) = (&mut self.signals, &mut self.scheduler.remote) else { return };
        for got in remote.got_blocks.drain(..) {
            signals.news.push((now_ns, got.record, KvNews::GotBlocks { num_blocks: got.num_blocks }));
        }
        let joined = std::mem::take(&mut remote.joined);
        let client_ns = self.clock.at_client_ns(now_ns);
        for record in joined {
            self.records[record as usize].scheduled_ns = now_ns;
            if self.config.rules.is_vllm() {
                continue;
            }
            self.scheduler.sent_first(record, now_ns);
            self.records[record as usize].first_token_ns = client_ns;
            self.observers.report(&Event::Token { record, token: 0, now_ns: client_ns });
            self.workload.began(client_ns, record);
        }
    }

    /// Learns from a step that has ended: which content is there, and which parts of prompts are computed.
    pub(super) fn learn_of(&mut self, step: &Batch) {
        step.loaded.iter().for_each(|record| self.arrived(*record));
        if !self.computes_for_others() {
            return;
        }
        if let Some(signals) = &mut self.signals {
            let computed = |(request, record): (&ridgepoint::Request, &u32)| {
                let num_tokens = request.num_computed_tokens + request.num_scheduled_tokens;
                (step.end_ns, *record, KvNews::Computed { num_tokens })
            };
            signals.news.extend(step.requests.iter().zip(&step.records).map(computed));
        }
    }
}
