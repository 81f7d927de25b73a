//! Fast-forwarding through decodes: decodes that run in every step are kept as arrays, so that a step costs one pass over
//! them and no request is visited until its state changes.
//!
//! A request is *steady* from the step after its first sampled token until its last token is sampled. Its counts follow from
//! the number of steps. A timing wheel holds the step at which it needs its next block. Its token gap is the time between
//! the ends of two steps. The leading requests of the running queue are *settled*: each is steady, or waits for its last
//! token. Requests behind the first unsettled one are scheduled one by one. When blocks run short, [`Steady::unsettle`]
//! writes the counts back into the slots, and all requests are scheduled one by one.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

use std::collections::VecDeque;

use ridgepoint::Request;

use super::batch::Batch;
use super::config::EngineConfig;
use super::kv_cache::KvCache;
use super::slot::{Group, Slot};

/// Maximum block size: the wheel has an entry per token of a block. Engines use 16 to a few thousand.
const MOST_TURNS: u32 = 1 << 16;

/// Steady decodes in the order of the running queue, as parallel arrays.
#[derive(Debug, Default)]
pub(super) struct Steady {
    is_on: bool,
    /// Number of leading running requests that need not be visited.
    pub(super) num_settled: usize,
    /// The next step's requests. Other requests of the step being scheduled may follow the steady ones.
    requests: Vec<Request>,
    records: Vec<u32>,
    slots: Vec<u32>,
    /// The first step without each of them, and the minimum of these.
    until: Vec<u64>,
    first_until: u64,
    /// Slots that need a block in step `s`, at index `s` modulo the block size; `turn` is the index of the next step.
    wheel: Vec<Vec<u32>>,
    turn: usize,
    /// Number of steady decodes of each group.
    groups: Vec<(Group, u32)>,
    /// Index of the next step to be scheduled.
    next_step: u64,
    /// Number of steps that have ended, and the end of the last one.
    num_ended: u64,
    last_end_ns: u64,
    /// Number of steps in flight when the last one was scheduled.
    in_flight: u32,
}

impl Steady {
    pub(super) fn new(config: &EngineConfig, fast_forward: bool) -> Self {
        // In a pipeline, a request does not run in every step.
        let is_on = fast_forward && config.pipeline_parallel_size == 1 && config.block_size <= MOST_TURNS;
        let turns = if is_on { config.block_size as usize } else { 1 };
        Steady { is_on, first_until: u64::MAX, wheel: vec![Vec::new(); turns], ..Steady::default() }
    }

    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Number of blocks that the next step allocates for them.
    pub(super) fn num_blocks_needed(&self) -> u32 {
        self.wheel[self.turn].len() as u32
    }

    pub(super) fn take_blocks(&self, slots: &mut [Slot], cache: &mut KvCache) {
        for slot in &self.wheel[self.turn] {
            cache.take(&mut slots[*slot as usize]);
        }
    }

    /// Slots whose blocks are full once the next step is scheduled, behind `in_flight` steps. Some may have been full before.
    pub(super) fn filling(&self, in_flight: u32) -> impl Iterator<Item = u32> + '_ {
        let next = (self.turn + 1) % self.wheel.len();
        let later = if in_flight == 0 { self.wheel[next].as_slice() } else { &[] };
        self.wheel[self.turn].iter().chain(later).copied()
    }

    /// Index of the next step to be scheduled.
    pub(super) fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Tokens of a steady decode whose content the engine knows when it schedules the next step behind `in_flight` others.
    pub(super) fn num_known(&self, state: &Slot, in_flight: u32) -> u32 {
        state.computed + (self.next_step - state.steady_from) as u32 + 1 - in_flight
    }

    /// Output tokens of a request that came from steps which it was steady in.
    #[inline]
    pub(super) fn delivered_of(&self, state: &Slot) -> u32 {
        self.num_ended.min(state.steady_until).saturating_sub(state.steady_from) as u32
    }

    /// Completes a step, whose other requests are in `batch`.
    pub(super) fn begin_step(&mut self, batch: &mut Batch, in_flight: u32) {
        self.in_flight = in_flight;
        batch.steady.extend_from_slice(&self.groups);
        if !self.slots.is_empty() {
            self.requests.extend_from_slice(&batch.requests);
            self.records.extend_from_slice(&batch.records);
        }
    }

    /// All requests and records of the step that has begun.
    pub(super) fn step<'a>(&'a self, batch: &'a Batch) -> (&'a [Request], &'a [u32]) {
        if self.slots.is_empty() || batch.is_alone {
            (&batch.requests, &batch.records)
        } else {
            (&self.requests, &self.records)
        }
    }

    /// Moves on to the next step. Requests that sampled their last token leave; requests that sampled in this step settle, up
    /// to the first running request that did not sample.
    pub(super) fn advance(&mut self, running: &[u32], slots: &mut [Slot], batch: &mut Batch) {
        self.requests.truncate(self.slots.len());
        self.records.truncate(self.slots.len());
        for request in &mut self.requests {
            request.num_computed_tokens += 1;
        }
        self.next_step += 1;
        self.turn = if self.turn + 1 < self.wheel.len() { self.turn + 1 } else { 0 };
        if self.first_until <= self.next_step {
            self.drop_done(slots, batch);
        }
        if self.is_on && self.num_settled < running.len() {
            self.settle(running, slots, batch);
        }
    }

    fn drop_done(&mut self, slots: &mut [Slot], batch: &mut Batch) {
        let mut kept = 0;
        for at in 0..self.slots.len() {
            if self.until[at] > self.next_step {
                self.slots[kept] = self.slots[at];
                self.records[kept] = self.records[at];
                self.requests[kept] = self.requests[at];
                self.until[kept] = self.until[at];
                kept += 1;
                continue;
            }
            let slot = self.slots[at];
            let computed = self.requests[at].num_computed_tokens;
            let turn = self.turn_of(computed);
            self.wheel[turn].retain(|other| *other != slot);
            let state = &mut slots[slot as usize];
            self.write_scheduled(state, computed);
            self.groups.retain_mut(|(group, count)| {
                *count -= u32::from(*group == state.group);
                *count > 0
            });
            batch.leaving.push(slot);
        }
        self.slots.truncate(kept);
        self.records.truncate(kept);
        self.requests.truncate(kept);
        self.until.truncate(kept);
        self.first_until = self.until.iter().copied().min().unwrap_or(u64::MAX);
    }

    fn settle(&mut self, running: &[u32], slots: &mut [Slot], batch: &Batch) {
        let mut scheduled = batch.slots.iter().zip(&batch.requests).peekable();
        for slot in &running[self.num_settled..] {
            let state = &mut slots[*slot as usize];
            let left = state.num_output_tokens.saturating_sub(state.sampled);
            let has_sampled = scheduled.next_if(|(of, _)| *of == slot).map(|(_, request)| request.samples);
            if !has_sampled.unwrap_or(left == 0) {
                break;
            }
            self.num_settled += 1;
            (state.steady_from, state.steady_until) = (self.next_step, self.next_step + u64::from(left));
            if left > 0 {
                let turn = self.turn_of(state.computed);
                self.wheel[turn].push(*slot);
                self.slots.push(*slot);
                self.records.push(state.rank.record);
                self.requests.push(Request::decode(state.computed));
                self.until.push(state.steady_until);
                self.first_until = self.first_until.min(state.steady_until);
                match self.groups.iter_mut().find(|(group, _)| *group == state.group) {
                    Some((_, count)) => *count += 1,
                    None => self.groups.push((state.group, 1)),
                }
            }
        }
    }

    /// Index in the wheel at which a request with `computed` tokens needs its next block.
    fn turn_of(&self, computed: u32) -> usize {
        let turns = self.wheel.len();
        (self.turn + turns - computed as usize % turns) % turns
    }

    /// Writes the counts of the steps scheduled so far into a slot.
    fn write_scheduled(&self, state: &mut Slot, computed: u32) {
        let steps = self.next_step.min(state.steady_until) - state.steady_from;
        if steps > 0 {
            state.computed = computed;
            state.sampled += steps as u32;
            // When the last of them was scheduled, all tokens but those of steps in flight were known.
            state.cacheable = state.cacheable.max(computed - self.in_flight);
        }
    }

    /// Ends the next step. Returns the time since the step before it ended.
    pub(super) fn end_step(&mut self, end_ns: u64) -> u64 {
        self.num_ended += 1;
        end_ns - std::mem::replace(&mut self.last_end_ns, end_ns)
    }

    /// Records of the steady decodes of the step that ended last, each with the index of its new token, from 0.
    pub(super) fn last_tokens<'a>(
        &self,
        running: &'a [u32],
        slots: &'a [Slot],
    ) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let step = self.num_ended.saturating_sub(1);
        let settled = running[..self.num_settled].iter().map(|slot| &slots[*slot as usize]);
        settled
            .filter(move |state| state.is_steady_in(step))
            .map(move |state| (state.rank.record, state.delivered + (step - state.steady_from) as u32))
    }

    /// Unsettles all requests: writes their counts into the slots, and lists them one by one in the steps in flight.
    pub(super) fn unsettle(&mut self, running: &[u32], slots: &mut [Slot], in_flight: &mut VecDeque<Box<Batch>>) {
        for (slot, request) in self.slots.iter().zip(&self.requests) {
            self.write_scheduled(&mut slots[*slot as usize], request.num_computed_tokens);
            let turn = self.turn_of(request.num_computed_tokens);
            self.wheel[turn].clear();
        }
        let settled = &running[..self.num_settled];
        let with_decodes = in_flight.iter_mut().filter(|batch| batch.is_step && !batch.is_alone);
        for (step, batch) in (self.num_ended..).zip(with_decodes) {
            let steady = || settled.iter().filter(|slot| slots[**slot as usize].is_steady_in(step));
            let computed = |state: &Slot| state.computed - (self.next_step.min(state.steady_until) - step) as u32;
            batch.requests.splice(0..0, steady().map(|slot| Request::decode(computed(&slots[*slot as usize]))));
            batch.records.splice(0..0, steady().map(|slot| slots[*slot as usize].rank.record));
            batch.slots.splice(0..0, steady().copied());
            batch.steady.clear();
            batch.leaving.clear();
        }
        for slot in settled {
            let state = &mut slots[*slot as usize];
            let tokens = self.num_ended.min(state.steady_until).saturating_sub(state.steady_from);
            if tokens > 0 {
                state.delivered += tokens as u32;
                state.last_token_ns = self.last_end_ns;
            }
            (state.steady_from, state.steady_until) = (0, 0);
        }
        self.num_settled = 0;
        self.requests.clear();
        self.records.clear();
        self.slots.clear();
        self.until.clear();
        self.first_until = u64::MAX;
        self.groups.clear();
    }
}
