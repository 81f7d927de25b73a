//! One iteration of vLLM's V1 scheduler: running requests first, then waiting ones, prompts and decodes in one step.
//!
//! Mirrors `Scheduler.schedule` (`vllm/v1/core/sched/scheduler.py`, `async_scheduler.py`) and `KVCacheManager.allocate_slots`
//! (`vllm/v1/core/kv_cache_manager.py`) for text models.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

mod host_tier;

use std::collections::VecDeque;

use super::super::batch::Batch;
use super::super::scheduler_options::SchedulingPolicy;
use super::{Prefix, Rules, Scheduler};

/// vLLM's rules, which remember nothing between steps.
#[derive(Debug)]
pub(super) struct Vllm;

impl Rules for Vllm {
    fn schedule(
        &mut self,
        of: &mut Scheduler<'_>,
        batch: &mut Batch,
        in_flight: &mut VecDeque<Box<Batch>>,
        found_cached: &mut dyn FnMut(u32, u32),
    ) {
        let mut budget = of.config.max_num_batched_tokens;
        if of.steady.num_settled > 0 && !of.has_room(budget) {
            of.steady.unsettle(&of.running, &mut of.slots, in_flight);
        }
        of.steady.take_blocks(&mut of.slots, &mut of.cache);
        budget -= of.steady.len();
        of.schedule_running(batch, &mut budget);
        let num_running = batch.slots.len();
        if batch.preempted.is_empty() {
            of.schedule_waiting(batch, &mut budget, found_cached);
        }
        of.offer_to_host(batch, num_running, in_flight);
    }

    /// Blocks that the prefix cache has are not moved. Requests that wait for blocks to be filled are not among those that run.
    fn reserve(&mut self, of: &mut Scheduler<'_>, slot: u32) -> Option<u32> {
        let state = &of.slots[slot as usize];
        let (hits, free_hits) = of.cache.find_cached(state);
        let needed = of.cache.missing(state, state.num_prompt_tokens).saturating_sub(hits) + free_hits;
        let is_room = of.running.len() < of.config.max_num_seqs as usize && needed <= of.free_for_admission();
        is_room.then(|| of.reserve_prompt(slot, true))
    }
}

impl Scheduler<'_> {
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

    fn schedule_waiting(&mut self, batch: &mut Batch, budget: &mut u32, found_cached: &mut dyn FnMut(u32, u32)) {
        let mut passed = None;
        while *budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some((turn, slot)) = self.waiting.after(passed) else { break };
            // One that was preempted waits for its token of a step in flight.
            if self.slots[slot as usize].awaits_token() {
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
            let wanted = self.config.scheduler.chunk(self.slots[slot as usize].num_tokens() - prefix.cached);
            if !self.config.scheduler.enable_chunked_prefill && wanted > *budget {
                break;
            }
            let num_tokens = wanted.min(*budget);
            if self.blocks_to_begin(slot, &prefix, num_tokens) > free {
                break;
            }
            self.waiting.take(turn);
            self.begin(slot, prefix.cached, batch, found_cached);
            self.grow_and_put(slot, num_tokens, batch);
            self.running.push(slot);
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
        let uncached = self.slots[slot as usize].num_tokens() - prefix.cached;
        self.blocks_to_begin(slot, prefix, uncached) <= free
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
        let end = self.reach(&self.slots[slot as usize], num_tokens);
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
}
