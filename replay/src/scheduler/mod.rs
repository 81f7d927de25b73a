//! One iteration of vLLM's V1 scheduler: it assigns tokens to requests, preempts, and updates requests when a step's tokens
//! are back. It does not know the time.
//!
//! Mirrors `Scheduler.schedule` and `update_from_output` (`vllm/v1/core/sched/scheduler.py`, `async_scheduler.py`) and
//! `KVCacheManager.allocate_slots` (`vllm/v1/core/kv_cache_manager.py`) for text models without speculation.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

mod host_tier;

use std::collections::VecDeque;

use host_tier::Prefix;
use ridgepoint::Request;
use ridgepoint::model::OwnSampling;

use super::batch::Batch;
use super::config::EngineConfig;
use super::fast_forward::Steady;
use super::kv_cache::KvCache;
use super::offload::Offload;
use super::record::EngineCounters;
use super::scheduler_options::SchedulingPolicy;
use super::slot::{Group, Slot};
use super::waiting::{Rank, Waiting};
use crate::workload::WorkloadRequest;

#[cfg(test)]
std::thread_local! {
    /// Tokens of requests that were looked at one by one.
    pub(super) static DELIVERED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
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
            steady: Steady::new(config, fast_forward),
            admissions: 0,
            waiting: Waiting::new(config.scheduler.scheduling_policy),
            counters: EngineCounters::default(),
            offload: config.kv_offload.as_ref().map(|offload| Box::new(Offload::new(offload, config.block_size))),
            filling: Vec::new(),
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
        self.running.is_empty() && self.waiting.queue.is_empty() && has_finished_transfers
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
        self.waiting.push(slot, rank);
        self.counters.max_waiting = self.counters.max_waiting.max(self.waiting.queue.len() as u32);
    }

    /// Fills `batch` with the next step after those `in_flight`. Returns false if nothing can be scheduled. `found_cached`
    /// receives each record that is scheduled for the first time, with its cached tokens, and each record that finds
    /// more of them after a preemption.
    pub(super) fn schedule(
        &mut self,
        batch: &mut Batch,
        in_flight: &mut VecDeque<Box<Batch>>,
        mut found_cached: impl FnMut(u32, u32),
    ) -> bool {
        batch.clear();
        let mut budget = self.config.max_num_batched_tokens;
        if self.steady.num_settled > 0 && !self.has_room(budget) {
            self.steady.unsettle(&self.running, &mut self.slots, in_flight);
        }
        self.steady.take_blocks(&mut self.slots, &mut self.cache);
        budget -= self.steady.len();
        self.schedule_running(batch, &mut budget);
        let num_running = batch.slots.len();
        if batch.preempted.is_empty() {
            self.schedule_waiting(batch, &mut budget, &mut found_cached);
        }
        let is_step = self.steady.len() > 0 || !batch.requests.is_empty();
        batch.is_step = is_step;
        let in_flight = in_flight.iter().filter(|step| step.is_step).count() as u32;
        self.offer_to_host(batch, num_running, in_flight);
        for (request, slot) in batch.requests.iter().zip(&batch.slots) {
            let state = &mut self.slots[*slot as usize];
            let end = request.num_computed_tokens + request.num_scheduled_tokens;
            let prompt_end = end.min(state.num_prompt_tokens.max(state.lost));
            self.counters.scheduled_tokens += u64::from(request.num_scheduled_tokens);
            self.counters.prefill_tokens += u64::from(prompt_end.saturating_sub(request.num_computed_tokens));
            self.counters.recomputed_tokens +=
                u64::from(end.min(state.lost).saturating_sub(request.num_computed_tokens));
            state.computed = end;
            state.sampled += u32::from(request.samples);
            state.scheduled_at = None;
        }
        let counters = &mut self.counters;
        counters.scheduled_tokens += u64::from(self.steady.len());
        counters.steps += u64::from(is_step);
        counters.preemptions += batch.preempted.len() as u64;
        counters.max_running = counters.max_running.max(self.running.len() as u32);
        counters.max_waiting = counters.max_waiting.max(self.waiting.queue.len() as u32);
        counters.max_blocks_in_use = counters.max_blocks_in_use.max(self.cache.pool.num_in_use());
        if is_step {
            self.steady.begin_step(batch, in_flight);
        }
        is_step
    }

    /// Whether all running requests get their tokens and blocks without a preemption.
    fn has_room(&self, mut budget: u32) -> bool {
        let mut blocks = self.steady.num_blocks_needed();
        if self.steady.len() > budget {
            return false;
        }
        budget -= self.steady.len();
        for slot in &self.running[self.steady.num_settled..] {
            let state = &self.slots[*slot as usize];
            let num_tokens = self.wanted(state, self.known(state)).min(budget);
            if num_tokens > 0 {
                blocks += self.cache.missing(state, state.computed + num_tokens);
                budget -= num_tokens;
            }
        }
        blocks <= self.cache.pool.num_free
    }

    /// Number of output tokens that a running request can use as input of its next step.
    fn known(&self, state: &Slot) -> u32 {
        if self.runs_ahead { state.sampled } else { state.delivered }
    }

    /// Number of tokens that a running request wants in the next step.
    fn wanted(&self, state: &Slot, known: u32) -> u32 {
        if state.sampled >= state.num_output_tokens {
            return 0;
        }
        self.config.scheduler.chunk(state.num_prompt_tokens + known - state.computed)
    }

    fn schedule_running(&mut self, batch: &mut Batch, budget: &mut u32) {
        let mut index = self.steady.num_settled;
        while index < self.running.len() && *budget > 0 {
            let slot = self.running[index];
            let state = &self.slots[slot as usize];
            let known = self.known(state);
            let num_tokens = self.wanted(state, known).min(*budget);
            if num_tokens == 0 {
                index += 1;
                continue;
            }
            if !self.make_room(slot, num_tokens, batch, budget, &mut index) {
                break;
            }
            self.put(slot, num_tokens, known, batch);
            *budget -= num_tokens;
            index += 1;
        }
    }

    fn schedule_waiting(&mut self, batch: &mut Batch, budget: &mut u32, found_cached: &mut impl FnMut(u32, u32)) {
        let mut passed = None;
        while *budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some((turn, slot)) = self.waiting.after(passed) else { break };
            let state = &self.slots[slot as usize];
            if state.delivered != state.sampled {
                // It was preempted while one of its tokens was still in the pipeline.
                break;
            }
            let Some(prefix) = self.prefix_of(slot) else {
                self.waiting.set_aside(turn);
                passed = Some(turn);
                continue;
            };
            let free = self.free_for_admission();
            if self.config.scheduler.scheduler_reserve_full_isl && !self.fits_whole(slot, &prefix, free) {
                break;
            }
            if prefix.to_load > 0 {
                if prefix.to_load + prefix.free_hits > free {
                    break;
                }
                self.load(slot, &prefix);
                self.waiting.set_aside(turn);
                passed = Some(turn);
                continue;
            }
            let state = &self.slots[slot as usize];
            let Prefix { cached, held_blocks, free_hits, .. } = prefix;
            let wanted = self.config.scheduler.chunk(state.num_tokens() - cached);
            if !self.config.scheduler.enable_chunked_prefill && wanted > *budget {
                break;
            }
            let num_tokens = wanted.min(*budget);
            let needed = (cached + num_tokens).div_ceil(self.config.block_size);
            let new_blocks = needed.saturating_sub(held_blocks) + self.cache.missing_states(state);
            if new_blocks + free_hits > free {
                break;
            }
            let known = state.delivered;
            self.waiting.take(turn);
            let state = &mut self.slots[slot as usize];
            if state.blocks.is_empty() {
                self.cache.use_found(state);
            }
            if let Some(offload) = &mut self.offload {
                offload.admit(slot, state, cached);
            }
            self.cache.grow(state, cached + num_tokens);
            state.computed = cached;
            state.is_running = true;
            state.admission = self.admissions;
            self.admissions += 1;
            batch.num_resumed += u32::from(state.was_preempted);
            if !state.was_preempted || cached > state.lost {
                found_cached(state.rank.record, cached - state.lost);
            }
            self.counters.cached_tokens += u64::from(cached);
            self.running.push(slot);
            self.put(slot, num_tokens, known, batch);
            *budget -= num_tokens;
        }
    }

    /// Free blocks that a waiting request may take: all but the watermark (vLLM 0.32, `KVCacheManager.allocate_slots`).
    fn free_for_admission(&self) -> u32 {
        let watermark = if self.running.is_empty() { 0.0 } else { self.config.scheduler.watermark };
        #[expect(clippy::cast_sign_loss, reason = "a share of at least 0")]
        let kept = (watermark * f64::from(self.config.num_gpu_blocks)) as u32;
        self.cache.pool.num_free.saturating_sub(kept)
    }

    /// Whether all known tokens of a waiting request fit `free` blocks, as in vLLM's `can_fit_full_sequence`.
    fn fits_whole(&self, slot: u32, prefix: &Prefix, free: u32) -> bool {
        let state = &self.slots[slot as usize];
        let blocks = state.num_tokens().div_ceil(self.config.block_size) + self.cache.missing_states(state);
        blocks.saturating_sub(prefix.held_blocks) + prefix.free_hits <= free
    }

    fn put(&mut self, slot: u32, num_tokens: u32, known: u32, batch: &mut Batch) {
        let state = &mut self.slots[slot as usize];
        state.scheduled_at = Some(batch.slots.len() as u32);
        batch.slots.push(slot);
        batch.records.push(state.rank.record);
        let samples = state.computed + num_tokens == state.num_prompt_tokens + known;
        batch.requests.push(Request::new(state.computed, num_tokens, samples));
    }

    /// Allocates blocks for `num_tokens` more of a running request, preempting others if needed. Returns false if the
    /// request itself was preempted.
    fn make_room(
        &mut self,
        slot: u32,
        num_tokens: u32,
        batch: &mut Batch,
        budget: &mut u32,
        index: &mut usize,
    ) -> bool {
        let end = self.slots[slot as usize].computed + num_tokens;
        loop {
            let state = &mut self.slots[slot as usize];
            if self.cache.missing(state, end) <= self.cache.pool.num_free {
                self.cache.grow(state, end);
                return true;
            }
            let Some(victim) = self.take_victim(batch, budget, index) else { return false };
            batch.preempted.push(self.slots[victim as usize].rank.record);
            self.preempt(victim);
            if victim == slot {
                return false;
            }
        }
    }

    /// Removes the request to preempt from the running queue, and from the step if it is in it.
    fn take_victim(&mut self, batch: &mut Batch, budget: &mut u32, index: &mut usize) -> Option<u32> {
        if self.config.scheduler.scheduling_policy == SchedulingPolicy::Fcfs {
            return self.running.pop();
        }
        let rank = |slot: &u32| self.slots[*slot as usize].rank;
        let position = (0..self.running.len()).max_by_key(|position| rank(&self.running[*position]))?;
        let victim = self.running.remove(position);
        if let Some(at) = self.slots[victim as usize].scheduled_at.take() {
            let at = at as usize;
            *budget += batch.requests.remove(at).num_scheduled_tokens;
            batch.slots.remove(at);
            batch.records.remove(at);
            for later in &batch.slots[at..] {
                let position = &mut self.slots[*later as usize].scheduled_at;
                *position = position.map(|p| p - 1);
            }
            *index -= 1;
        }
        Some(victim)
    }

    fn preempt(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        self.cache.remember_generated(state);
        self.cache.remember_own(state);
        state.lost = state.lost.max(state.computed);
        (state.computed, state.cacheable) = (0, 0);
        (state.is_running, state.was_preempted) = (false, true);
        self.cache.release(state);
        self.waiting.put_back(slot, state.rank);
        if let Some(offload) = &mut self.offload {
            offload.preempt(slot);
        }
    }

    /// Delivers a token of `slot` at `now_ns`. Returns its number of tokens, and the time since the token before.
    pub(super) fn deliver(&mut self, slot: u32, now_ns: u64) -> (u32, u64) {
        let state = &mut self.slots[slot as usize];
        state.delivered += 1;
        #[cfg(test)]
        DELIVERED.with(|delivered| delivered.set(delivered.get() + 1));
        let gap_ns = now_ns - state.last_token_ns;
        state.last_token_ns = now_ns;
        (state.delivered, gap_ns)
    }

    /// Frees the blocks of `slot` after its last token.
    pub(super) fn finish(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        if !state.is_running {
            self.waiting.remove(slot);
        }
        state.is_running = false;
        // Later turns find the blocks even while their stores are under way.
        self.cache.remember_generated(state);
        if self.offload.as_mut().is_some_and(|offload| offload.end(slot)) {
            return;
        }
        self.free(slot);
    }

    /// Frees the blocks of a request that has ended.
    fn free(&mut self, slot: u32) {
        self.cache.release(&mut self.slots[slot as usize]);
        self.unused_slots.push(slot);
    }

    /// Drops finished requests from the running queue and keeps its order.
    pub(super) fn drop_finished(&mut self) {
        let slots = &self.slots;
        let is_over = |slot: &u32| !slots[*slot as usize].is_running;
        let settled = self.running[..self.steady.num_settled].iter().filter(|slot| is_over(slot)).count();
        self.steady.num_settled -= settled;
        self.running.retain(|slot| !is_over(slot));
    }
}
