//! One iteration of vLLM's V1 scheduler: which requests get how many tokens, which are preempted, and what becomes of them when
//! a step's tokens are back. Knows no time.
//!
//! Mirrors `Scheduler.schedule` and `update_from_output` (`vllm/v1/core/sched/scheduler.py`, `async_scheduler.py`) and
//! `KVCacheManager.allocate_slots` (`vllm/v1/core/kv_cache_manager.py`) for text models without speculation.

use super::block_pool::BlockPool;
use super::config::{EngineConfig, SchedulingPolicy};
use super::prefix::{hash_content, hash_own};
use super::record::EngineCounters;
use super::slot::Slot;
use super::waiting::{Rank, Waiting};
use crate::request::Request;
use crate::workload::WorkloadRequest;

/// A step: its requests as the latency model sees them, and the slots and records they are.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    pub(super) slots: Vec<u32>,
    pub(super) records: Vec<u32>,
    /// Records of the requests that had to go.
    pub(super) preempted: Vec<u32>,
}

impl Batch {
    fn clear(&mut self) {
        self.requests.clear();
        self.slots.clear();
        self.records.clear();
        self.preempted.clear();
    }
}

/// The scheduler's queues and its KV cache.
#[derive(Debug)]
pub(super) struct Scheduler<'a> {
    config: &'a EngineConfig,
    /// Whether a request may be scheduled again before its last token is back.
    runs_ahead: bool,
    pool: BlockPool,
    slots: Vec<Slot>,
    unused_slots: Vec<u32>,
    running: Vec<u32>,
    waiting: Waiting,
    pub(super) counters: EngineCounters,
}

impl<'a> Scheduler<'a> {
    pub(super) fn new(config: &'a EngineConfig) -> Self {
        Scheduler {
            config,
            runs_ahead: config.async_scheduling && config.pipeline_parallel_size == 1,
            pool: BlockPool::new(config.usable_blocks()),
            slots: Vec::new(),
            unused_slots: Vec::new(),
            running: Vec::new(),
            waiting: Waiting::new(config.scheduling_policy),
            counters: EngineCounters::default(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.len() == 0
    }

    pub(super) fn num_running(&self) -> u32 {
        self.running.len() as u32
    }

    pub(super) fn num_waiting(&self) -> u32 {
        self.waiting.len() as u32
    }

    pub(super) fn blocks_in_use(&self) -> u32 {
        self.pool.num_in_use()
    }

    pub(super) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// A request has reached the engine.
    pub(super) fn add(&mut self, record: u32, request: &WorkloadRequest) {
        let slot = self.unused_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::empty());
            self.slots.len() as u32 - 1
        });
        let rank = Rank { priority: request.priority, arrival_ns: request.arrival_ns, record };
        let state = &mut self.slots[slot as usize];
        state.reset(rank, request.stage, request.num_prompt_tokens, request.num_output_tokens);
        if let (true, Some(content)) = (self.config.enable_prefix_caching, &request.content) {
            hash_content(content, request.num_prompt_tokens, self.config.block_size, &mut state.hashes);
        }
        self.waiting.push(slot, rank);
        self.counters.max_waiting = self.counters.max_waiting.max(self.waiting.len() as u32);
    }

    /// Fills `batch` with the next step; leaves it empty where nothing can be scheduled. `found_cached` gets each record that
    /// is scheduled for the first time, with its cached tokens, and each that finds more of them after a preemption.
    pub(super) fn schedule(&mut self, batch: &mut Batch, mut found_cached: impl FnMut(u32, u32)) {
        batch.clear();
        let mut budget = self.config.max_num_batched_tokens;
        self.schedule_running(batch, &mut budget);
        if batch.preempted.is_empty() {
            self.schedule_waiting(batch, &mut budget, &mut found_cached);
        }
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
        counters.steps += u64::from(!batch.requests.is_empty());
        counters.preemptions += batch.preempted.len() as u64;
        counters.max_running = counters.max_running.max(self.running.len() as u32);
        counters.max_waiting = counters.max_waiting.max(self.waiting.len() as u32);
        counters.max_blocks_in_use = counters.max_blocks_in_use.max(self.pool.num_in_use());
    }

    fn schedule_running(&mut self, batch: &mut Batch, budget: &mut u32) {
        let mut index = 0;
        while index < self.running.len() && *budget > 0 {
            let slot = self.running[index];
            let state = &self.slots[slot as usize];
            let known = if self.runs_ahead { state.sampled } else { state.delivered };
            let is_done = state.sampled >= state.num_output_tokens;
            let wanted = state.num_prompt_tokens + known - state.computed;
            let num_tokens = self.chunk(wanted).min(*budget);
            if is_done || num_tokens == 0 {
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
        while *budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some(slot) = self.waiting.first() else { break };
            let state = &self.slots[slot as usize];
            if state.delivered != state.sampled {
                // Preempted with a token still on its way through the pipeline.
                break;
            }
            let (hits, free_hits) = self.cached_blocks(slot);
            let cached = hits * self.config.block_size;
            let state = &self.slots[slot as usize];
            let wanted = self.chunk(state.num_tokens() - cached);
            if !self.config.enable_chunked_prefill && wanted > *budget {
                break;
            }
            let num_tokens = wanted.min(*budget);
            let new_blocks = (cached + num_tokens).div_ceil(self.config.block_size) - hits;
            if new_blocks + free_hits > self.pool.num_free() {
                break;
            }
            let known = state.delivered;
            self.waiting.pop();
            self.use_cached(slot, hits);
            self.grow(slot, cached + num_tokens);
            let state = &mut self.slots[slot as usize];
            state.computed = cached;
            state.is_running = true;
            if !state.was_preempted || cached > state.lost {
                found_cached(state.rank.record, cached - state.lost);
            }
            self.counters.cached_tokens += u64::from(cached);
            self.running.push(slot);
            self.put(slot, num_tokens, known, batch);
            *budget -= num_tokens;
        }
    }

    fn chunk(&self, wanted: u32) -> u32 {
        match self.config.long_prefill_token_threshold {
            0 => wanted,
            threshold => wanted.min(threshold),
        }
    }

    fn put(&mut self, slot: u32, num_tokens: u32, known: u32, batch: &mut Batch) {
        let state = &mut self.slots[slot as usize];
        state.scheduled_at = Some(batch.slots.len() as u32);
        batch.slots.push(slot);
        batch.records.push(state.rank.record);
        let samples = state.computed + num_tokens == state.num_prompt_tokens + known;
        batch.requests.push(Request::new(state.computed, num_tokens, samples));
    }

    /// Gets blocks for `num_tokens` more of a running request, at the cost of others where need be. False where the request
    /// itself had to go.
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
            let missing = end.div_ceil(self.config.block_size) - self.slots[slot as usize].blocks.len() as u32;
            if missing <= self.pool.num_free() {
                self.grow(slot, end);
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

    /// Removes the request to be preempted from the running ones, and from the step if it is in it already.
    fn take_victim(&mut self, batch: &mut Batch, budget: &mut u32, index: &mut usize) -> Option<u32> {
        if self.config.scheduling_policy == SchedulingPolicy::Fcfs {
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
        let block_size = self.config.block_size;
        let state = &mut self.slots[slot as usize];
        if self.config.enable_prefix_caching {
            // Nobody else can have these blocks, so they need to be known from here on only.
            let shared = state.hashes.len();
            let full = (state.cacheable / block_size) as usize;
            let mut parent = state.hashes.last().copied();
            for (position, block) in state.blocks.iter().enumerate().take(full).skip(shared) {
                let hash = hash_own(state.rank.record, position, parent);
                self.pool.cache(*block, hash);
                parent = Some(hash);
            }
        }
        state.lost = state.lost.max(state.computed);
        (state.computed, state.cacheable) = (0, 0);
        (state.is_running, state.was_preempted) = (false, true);
        let rank = state.rank;
        self.release_blocks(slot);
        self.waiting.put_back(slot, rank);
    }

    /// Blocks at the beginning of a waiting request's tokens that the cache holds, and how many of them are free.
    fn cached_blocks(&self, slot: u32) -> (u32, u32) {
        let state = &self.slots[slot as usize];
        if !self.config.enable_prefix_caching || (state.hashes.is_empty() && !state.was_preempted) {
            return (0, 0);
        }
        let most = (state.num_tokens() - 1) / self.config.block_size;
        let (mut hits, mut free) = (0, 0);
        for block in self.known_hashes(state).take(most as usize).map_while(|hash| self.pool.find(hash)) {
            hits += 1;
            free += u32::from(self.pool.is_free(block));
        }
        (hits, free)
    }

    fn known_hashes<'s>(&self, state: &'s Slot) -> impl Iterator<Item = u64> + use<'s> {
        let own = state.was_preempted.then_some(state.hashes.len()).into_iter().flat_map(|shared| {
            let first = (shared, hash_own(state.rank.record, shared, state.hashes.last().copied()));
            let next = |(at, hash): &(usize, u64)| Some((at + 1, hash_own(state.rank.record, at + 1, Some(*hash))));
            std::iter::successors(Some(first), next).map(|(_, hash)| hash)
        });
        state.hashes.iter().copied().chain(own)
    }

    fn use_cached(&mut self, slot: u32, hits: u32) {
        let mut blocks = std::mem::take(&mut self.slots[slot as usize].blocks);
        let state = &self.slots[slot as usize];
        blocks.extend(self.known_hashes(state).take(hits as usize).map_while(|hash| self.pool.find(hash)));
        for block in &blocks {
            self.pool.touch(*block);
        }
        let state = &mut self.slots[slot as usize];
        state.blocks = blocks;
        state.cacheable = hits * self.config.block_size;
    }

    /// Takes blocks until the slot has room for `num_tokens`, and remembers what its full shared ones hold.
    fn grow(&mut self, slot: u32, num_tokens: u32) {
        let block_size = self.config.block_size;
        let state = &mut self.slots[slot as usize];
        let needed = num_tokens.div_ceil(block_size) as usize;
        while state.blocks.len() < needed {
            let Some(block) = self.pool.take() else { break };
            state.blocks.push(block);
        }
        let known = num_tokens.min(state.num_tokens());
        if known > state.cacheable {
            let (from, to) = ((state.cacheable / block_size) as usize, (known / block_size) as usize);
            for (hash, block) in state.hashes.iter().zip(&state.blocks).take(to).skip(from) {
                self.pool.cache(*block, *hash);
            }
            state.cacheable = known;
        }
    }

    fn release_blocks(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        while let Some(block) = state.blocks.pop() {
            self.pool.release(block);
        }
    }

    /// The engine has a token of `slot` back at `now_ns`. Returns how many it has now, and the time since the one before.
    pub(super) fn deliver(&mut self, slot: u32, now_ns: u64) -> (u32, u64) {
        let state = &mut self.slots[slot as usize];
        state.delivered += 1;
        let gap_ns = now_ns - state.last_token_ns;
        state.last_token_ns = now_ns;
        (state.delivered, gap_ns)
    }

    /// The last token of `slot` is back: its blocks are free again.
    pub(super) fn finish(&mut self, slot: u32) {
        self.release_blocks(slot);
        if !self.slots[slot as usize].is_running {
            self.waiting.remove(slot);
        }
        self.slots[slot as usize].is_running = false;
        self.unused_slots.push(slot);
    }

    /// Drops finished requests from the running ones, whose order stays.
    pub(super) fn drop_finished(&mut self) {
        let slots = &self.slots;
        self.running.retain(|slot| slots[*slot as usize].is_running);
    }
}
