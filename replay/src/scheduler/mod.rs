//! The scheduler's queues and KV cache, and how steps change them. Which requests a step has, the rules of an engine say: each engine's
//! are a folder here. It does not know the time.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

mod ended;
mod remote;
mod sglang;
mod trtllm;
mod vllm;

use std::collections::VecDeque;

pub(super) use remote::{KvRole, Remote, moves_by_chunks};
use ridgepoint::Request;
use ridgepoint::model::OwnSampling;
use sglang::Sglang;
use trtllm::Trtllm;
use vllm::Vllm;

use super::batch::Batch;
use super::config::EngineConfig;
use super::engine_rules::EngineRules;
use super::fast_forward::Steady;
use super::kv_cache::KvCache;
use super::offload::{LoadProgress, Offload};
use super::record::EngineCounters;
use super::slot::{Group, Slot};
use super::waiting::{Rank, Waiting};
use crate::workload::WorkloadRequest;

#[cfg(test)]
std::thread_local! {
    /// Tokens of requests that were looked at one by one.
    pub(super) static DELIVERED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How an engine puts steps together.
pub(super) trait Rules {
    /// Adds the requests of the next step to `batch`, behind those `in_flight`; none if nothing can be scheduled. `found_cached` receives each
    /// record that is scheduled for the first time, with its cached tokens, and each record that finds more of them after a preemption.
    fn schedule(
        &mut self,
        of: &mut Scheduler<'_>,
        batch: &mut Batch,
        in_flight: &mut VecDeque<Box<Batch>>,
        found_cached: &mut dyn FnMut(u32, u32),
    );

    /// Whether the engine takes new requests in this iteration. `schedules_next` is false while it waits for a step to end.
    fn receives(&mut self, _schedules_next: bool, _is_idle: bool) -> bool {
        true
    }

    /// Whether a request can ever be admitted.
    fn admits(&self, _config: &EngineConfig, _request: &WorkloadRequest) -> bool {
        true
    }

    /// A request has ended, and its blocks are about to be free.
    fn ended(&mut self, _request: &Slot) {}

    /// A prompt is computed for another engine, and its blocks are held until they are there.
    fn held(&mut self) {}

    /// Whether a request whose prompt another engine computes can ever get its blocks.
    fn admits_remote(&self, _config: &EngineConfig, _request: &WorkloadRequest) -> bool {
        true
    }

    /// Gives a request blocks for a prompt that another engine computes, if there is room. Returns the blocks of it that have to be moved.
    fn reserve(&mut self, of: &mut Scheduler<'_>, slot: u32) -> Option<u32>;
}

/// The rules of the configured engine.
pub(super) fn rules_of(config: &EngineConfig) -> Box<dyn Rules> {
    match &config.rules {
        EngineRules::Vllm => Box::new(Vllm),
        EngineRules::Sglang(options) => Box::new(Sglang::new(*options)),
        EngineRules::Trtllm(options) => Box::new(Trtllm::new(*options, config)),
    }
}

/// Number of steps among the iterations in flight.
fn num_steps(in_flight: &VecDeque<Box<Batch>>) -> u32 {
    in_flight.iter().filter(|batch| batch.is_step).count() as u32
}

/// The part of a waiting request that it need not compute.
pub(super) struct Prefix {
    /// Tokens of it that the GPU holds.
    pub(super) cached: u32,
    /// Blocks of these, and how many of them are free.
    pub(super) held_blocks: u32,
    pub(super) free_hits: u32,
    /// Blocks behind them that the host holds.
    pub(super) to_load: u32,
}

/// The scheduler's queues and its KV cache.
#[derive(Debug)]
pub(super) struct Scheduler<'a> {
    config: &'a EngineConfig,
    /// Whether a request may be scheduled again before the engine has its last token.
    runs_ahead: bool,
    pub(super) cache: KvCache,
    pub(super) slots: Vec<Slot>,
    unused_slots: Vec<u32>,
    pub(super) running: Vec<u32>,
    pub(super) steady: Steady,
    admissions: u64,
    pub(super) waiting: Waiting,
    pub(super) counters: EngineCounters,
    pub(super) offload: Option<Box<Offload>>,
    /// Requests that fill blocks in the step that is being scheduled.
    filling: Vec<u32>,
    /// The request whose prompt is computed in chunks, where the engine keeps it apart from those that run.
    chunked: Option<u32>,
    /// Prompts that are computed for other engines, or by others; `None` where each engine computes its own.
    pub(super) remote: Option<Box<Remote>>,
}

impl<'a> Scheduler<'a> {
    /// With `fast_forward`, decodes that run in every step are not visited one by one. The schedules are the same.
    pub(super) fn new(config: &'a EngineConfig, fast_forward: bool) -> Self {
        Scheduler {
            config,
            runs_ahead: config.scheduler.async_scheduling && config.pipeline_parallel_size == 1,
            cache: KvCache::new(config),
            slots: Vec::new(),
            unused_slots: Vec::new(),
            running: Vec::new(),
            // Tokens of a verification come by chance.
            steady: Steady::new(config, fast_forward && config.tokens_come_alone()),
            admissions: 0,
            waiting: Waiting::new(config.scheduler.scheduling_policy),
            counters: EngineCounters::default(),
            offload: config.kv_offload.as_ref().map(|offload| Box::new(Offload::new(offload, config.block_size))),
            filling: Vec::new(),
            chunked: None,
            remote: None,
        }
    }

    /// Lists the sampling parameters that the requests of a step set themselves, each once.
    pub(super) fn own_sampling(&self, batch: &Batch, listed: &mut Vec<OwnSampling>) {
        listed.clear();
        let others = batch.slots.iter().map(|slot| self.slots[*slot as usize].group);
        for group in batch.steady.iter().map(|(group, _)| *group).chain(others) {
            if !listed.contains(&group.own_sampling) {
                listed.push(group.own_sampling);
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let has_finished_transfers = self.offload.as_ref().is_none_or(|offload| !offload.any_ended);
        let waits_for_prompts = self.remote.as_ref().is_some_and(|remote| remote.has_work());
        self.running.is_empty()
            && self.waiting.queue.is_empty()
            && has_finished_transfers
            && self.chunked.is_none()
            && !waits_for_prompts
    }

    /// Number of requests that wait.
    pub(super) fn num_waiting(&self) -> u32 {
        self.waiting.queue.len() as u32 + self.remote.as_ref().map_or(0, |remote| remote.num_waiting())
    }

    /// Adds a request to the waiting queue.
    pub(super) fn add(&mut self, record: u32, request: &WorkloadRequest) {
        let slot = self.unused_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let rank = Rank { priority: request.priority, arrival_ns: request.arrival_ns, record };
        let state = &mut self.slots[slot as usize];
        let group = Group { stage: request.stage, own_sampling: request.sampling };
        state.reset(rank, group, request.num_prompt_tokens, request.num_output_tokens);
        state.known_cached = request.num_cached_tokens.min(request.num_prompt_tokens - 1);
        self.cache.hash_shared(state, request);
        if let Some(offload) = &mut self.offload {
            offload.add(slot, record);
        }
        if let Some(remote) = self.remote.as_mut().filter(|remote| remote.role == KvRole::Decode) {
            remote.add(slot);
        } else {
            self.waiting.push(slot, rank);
        }
        self.counters.max_waiting = self.counters.max_waiting.max(self.num_waiting());
    }

    /// Fills `batch` with the next step by `rules`. Returns false if nothing can be scheduled.
    pub(super) fn schedule(
        &mut self,
        rules: &mut dyn Rules,
        batch: &mut Batch,
        in_flight: &mut VecDeque<Box<Batch>>,
        mut found_cached: impl FnMut(u32, u32),
    ) -> bool {
        batch.clear();
        self.join();
        rules.schedule(self, batch, in_flight, &mut found_cached);
        if self.remote.is_some() && batch.preempted.is_empty() {
            self.reserve(rules);
        }
        let num_steady = if batch.is_alone { 0 } else { self.steady.len() };
        let is_step = num_steady > 0 || !batch.requests.is_empty();
        batch.is_step = is_step;
        for (request, slot) in batch.requests.iter().zip(&batch.slots) {
            let state = &mut self.slots[*slot as usize];
            let end = request.num_computed_tokens + request.num_scheduled_tokens;
            let prompt_end = end.min(state.num_prompt_tokens.max(state.lost));
            self.counters.scheduled_tokens += u64::from(request.num_scheduled_tokens);
            self.counters.prefill_tokens += u64::from(prompt_end.saturating_sub(request.num_computed_tokens));
            self.counters.recomputed_tokens +=
                u64::from(end.min(state.lost).saturating_sub(request.num_computed_tokens));
            state.computed = end;
            state.scheduled_at = None;
            let Some(speculation) = &self.config.speculation else {
                state.sampled += u32::from(request.samples);
                continue;
            };
            let drafts = u32::from(request.num_draft_tokens);
            let accepted = speculation.accepted(state.rank.record, state.sampled, drafts);
            let left = state.num_output_tokens - state.sampled;
            let outputs = if request.samples { (1 + accepted).min(left) } else { 0 };
            state.computed -= drafts - accepted;
            state.sampled += outputs;
            batch.outputs.push(outputs);
            self.counters.verifications += u64::from(drafts > 0);
            self.counters.accepted_tokens += u64::from(outputs.saturating_sub(1));
        }
        let num_waiting = self.num_waiting();
        let counters = &mut self.counters;
        counters.scheduled_tokens += u64::from(num_steady);
        counters.steps += u64::from(is_step);
        counters.preemptions += batch.preempted.len() as u64;
        counters.max_running = counters.max_running.max(self.running.len() as u32);
        counters.max_waiting = counters.max_waiting.max(num_waiting);
        counters.max_blocks_in_use = counters.max_blocks_in_use.max(self.cache.pool.num_in_use());
        if is_step && !batch.is_alone {
            self.steady.begin_step(batch, num_steps(in_flight));
        }
        is_step
    }

    /// Number of output tokens that a running request can use as input of its next step.
    fn known(&self, state: &Slot) -> u32 {
        if self.runs_ahead { state.sampled } else { state.delivered }
    }

    /// Number of tokens that a running request has still to compute for its next one; none once its last one is sampled.
    fn left(&self, state: &Slot, known: u32) -> u32 {
        if state.sampled >= state.num_output_tokens {
            return 0;
        }
        // A step in flight may have accepted drafts that are not known yet.
        (state.num_prompt_tokens + known).saturating_sub(state.computed)
    }

    /// Number of tokens that a running request wants in the next step.
    fn wanted(&self, state: &Slot, known: u32) -> u32 {
        let left = self.left(state, known);
        self.config.scheduler.chunk(if left == 1 && state.sampled > 0 { self.tokens_of_decode(state) } else { left })
    }

    /// Tokens of a running request's decode: one, and the drafts that its context has room for.
    fn tokens_of_decode(&self, state: &Slot) -> u32 {
        let room = self.config.max_model_len.saturating_sub(state.computed + 2);
        1 + self.config.num_draft_tokens().min(room)
    }

    /// Tokens for which a request has KV slots once it has computed so many more: with those that its draft looks ahead.
    fn reach(&self, state: &Slot, num_tokens: u32) -> u32 {
        let end = state.computed + num_tokens;
        let ahead = self.config.speculation.as_ref().map_or(0, |of| of.num_lookahead_tokens);
        end.max((end + ahead).min(self.config.max_model_len))
    }

    /// Adds a decode of a running request.
    fn decode(&mut self, slot: u32, known: u32, batch: &mut Batch) {
        let state = &self.slots[slot as usize];
        let tokens = self.tokens_of_decode(state);
        let reach = self.reach(state, tokens);
        self.cache.grow(&mut self.slots[slot as usize], reach);
        self.put(slot, tokens, known, batch);
    }

    /// Blocks that a decode of a running request takes.
    fn blocks_of_decode(&self, state: &Slot) -> u32 {
        let is_over = self.left(state, self.known(state)) == 0;
        if is_over { 0 } else { self.cache.missing(state, self.reach(state, self.tokens_of_decode(state))) }
    }

    /// Blocks that a decode of every running request takes.
    fn blocks_of_decodes(&self) -> u32 {
        let unsettled = self.running[self.steady.num_settled..].iter().map(|slot| &self.slots[*slot as usize]);
        self.steady.num_blocks_needed() + unsettled.map(|state| self.blocks_of_decode(state)).sum::<u32>()
    }

    fn put(&mut self, slot: u32, num_tokens: u32, known: u32, batch: &mut Batch) {
        let state = &mut self.slots[slot as usize];
        state.scheduled_at = Some(batch.slots.len() as u32);
        batch.slots.push(slot);
        batch.records.push(state.rank.record);
        let (end, last) = (state.computed + num_tokens, state.num_prompt_tokens + known);
        batch.requests.push(match u8::try_from(end.saturating_sub(last)) {
            Ok(drafts @ 1..) => Request::verification(state.computed, drafts),
            _ => Request::new(state.computed, num_tokens, end == last),
        });
    }

    /// Returns the part of a waiting request that it need not compute; `None` if it waits for a load.
    pub(super) fn prefix_of(&mut self, slot: u32) -> Option<Prefix> {
        let state = &mut self.slots[slot as usize];
        if let Some(offload) = &self.offload {
            match offload.load_of(slot) {
                LoadProgress::UnderWay => return None,
                LoadProgress::Ended => {
                    self.cache.cache_shared(state, state.computed);
                    // The last token is computed again, as the next one is sampled from it.
                    let cached = state.computed.min(state.num_tokens() - 1);
                    return Some(Prefix { cached, held_blocks: state.blocks.len() as u32, free_hits: 0, to_load: 0 });
                }
                LoadProgress::None => {}
            }
        }
        let (hits, free_hits) = self.cache.find_cached(state);
        let known_cached = if state.was_preempted { 0 } else { state.known_cached };
        let cached = (hits * self.config.block_size).max(known_cached);
        let to_load = match &mut self.offload {
            None => 0,
            Some(offload) => offload.lookup(slot, state, hits)?,
        };
        Some(Prefix { cached, held_blocks: hits, free_hits, to_load })
    }

    /// Free blocks that a waiting request takes to compute `tokens` behind its cached prefix.
    fn blocks_to_begin(&self, slot: u32, prefix: &Prefix, tokens: u32) -> u32 {
        let blocks = (prefix.cached + tokens).div_ceil(self.config.block_size).saturating_sub(prefix.held_blocks);
        blocks + self.cache.missing_states(&self.slots[slot as usize]) + prefix.free_hits
    }

    /// A waiting request begins to run behind its cached prefix.
    fn begin(&mut self, slot: u32, cached: u32, batch: &mut Batch, found_cached: &mut dyn FnMut(u32, u32)) {
        let state = &mut self.slots[slot as usize];
        if state.blocks.is_empty() {
            self.cache.use_found(state);
        }
        if let Some(offload) = &mut self.offload {
            offload.admit(slot, state, cached);
        }
        state.computed = cached;
        state.is_running = true;
        state.admission = self.admissions;
        self.admissions += 1;
        batch.num_resumed += u32::from(state.was_preempted);
        if !state.was_preempted || cached > state.lost {
            found_cached(state.rank.record, cached - state.lost);
        }
        self.counters.cached_tokens += u64::from(cached);
    }

    /// Gives a request that begins, or whose prompt goes on, its blocks for more tokens, and puts it into the step.
    fn grow_and_put(&mut self, slot: u32, num_tokens: u32, batch: &mut Batch) {
        let state = &mut self.slots[slot as usize];
        let known = state.delivered;
        self.cache.grow(state, state.computed + num_tokens);
        self.put(slot, num_tokens, known, batch);
    }

    /// Puts a running request back to the queue. It may find its blocks again.
    fn preempt(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        self.cache.remember_generated(state);
        self.cache.remember_own(state);
        let rank = state.rank;
        self.lose(slot);
        self.waiting.put_back(slot, rank);
        if let Some(offload) = &mut self.offload {
            offload.preempt(slot);
        }
    }

    /// Takes the blocks of a request that will be computed again.
    fn lose(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        state.lost = state.lost.max(state.computed);
        (state.computed, state.cacheable) = (0, 0);
        (state.is_running, state.was_preempted) = (false, true);
        self.cache.release(state);
    }
}
