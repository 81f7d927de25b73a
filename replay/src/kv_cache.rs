//! The KV blocks of requests: looked up in the prefix cache, allocated as a request grows, cached, and freed.
//!
//! Mirrors `KVCacheManager` (`vllm/v1/core/kv_cache_manager.py`). The scheduler decides which request
//! gets blocks and which one is preempted for them.
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

use super::block_pool::{BlockHash, BlockPool};
use super::config::{EngineConfig, OtherBlocks};
use super::engine_rules::EngineRules;
use super::prefix::{hash_content, hash_own};
use super::slot::Slot;
use crate::workload::WorkloadRequest;

/// The block pool and the prefix cache on top of it.
#[derive(Debug)]
pub(super) struct KvCache {
    pub(super) pool: BlockPool,
    block_size: u32,
    other_blocks: OtherBlocks,
    is_caching: bool,
    /// Others find a prompt once the step that ends it is processed, or the next chunk begins: SGLang's tree takes it then
    /// (`cache_unfinished_req`, called from `process_batch_result_prefill` and `get_next_batch_to_run`, `managers/scheduler.py`, 0.5.9).
    caches_when_computed: bool,
    /// Blocks found by the last look-up.
    found: Vec<u32>,
}

impl KvCache {
    pub(super) fn new(config: &EngineConfig) -> Self {
        KvCache {
            pool: BlockPool::new(config.usable_blocks()),
            block_size: config.block_size,
            other_blocks: config.other_blocks(),
            is_caching: config.scheduler.enable_prefix_caching,
            caches_when_computed: matches!(config.rules, EngineRules::Sglang(_)),
            found: Vec::new(),
        }
    }

    /// Number of further blocks that a request needs to hold `num_tokens`.
    pub(super) fn missing(&self, state: &Slot, num_tokens: u32) -> u32 {
        num_tokens.div_ceil(self.block_size).saturating_sub(state.blocks.len() as u32) + self.missing_states(state)
    }

    /// Number of blocks that a request still needs for its states and sliding windows.
    pub(super) fn missing_states(&self, state: &Slot) -> u32 {
        let tokens = state.num_prompt_tokens.saturating_add(state.num_output_tokens);
        self.other_blocks.of(tokens) - state.state_blocks.len() as u32
    }

    /// Hashes the blocks of a new request that other prompts may share. Its content may reach into the tokens that it generates.
    pub(super) fn hash_shared(&self, state: &mut Slot, request: &WorkloadRequest) {
        if let (true, Some(content)) = (self.is_caching, &request.content) {
            let num_tokens = request.num_prompt_tokens.saturating_add(request.num_output_tokens);
            hash_content(content, num_tokens, self.block_size, &mut state.hashes);
        }
    }

    /// Looks up the cached prefix of a waiting request. Returns the number of blocks found, and how many of them are free.
    pub(super) fn find_cached(&mut self, state: &Slot) -> (u32, u32) {
        self.found.clear();
        let most = (state.num_tokens() - 1) / self.block_size;
        let shared = if !self.is_caching {
            0
        } else if state.was_preempted {
            most as usize
        } else {
            state.hashes.len().min(most as usize)
        };
        let mut free = 0;
        for block in (0..shared).map(|index| hash_of(state, index)).map_while(|hash| self.pool.find(hash)) {
            self.found.push(block);
            free += u32::from(self.pool.is_free(block));
        }
        if let Some(lives) = &mut self.pool.lives {
            lives.looked_up(self.found.len() as u32, most);
        }
        (self.found.len() as u32, free)
    }

    /// Assigns the blocks of the last look-up to a request.
    pub(super) fn use_found(&mut self, state: &mut Slot) {
        for block in &self.found {
            self.pool.touch(*block);
        }
        state.blocks.extend_from_slice(&self.found);
        state.cacheable = self.found.len() as u32 * self.block_size;
    }

    /// Allocates blocks until a request has room for `num_tokens`, and caches the full blocks of its prompt that others may share, unless the engine
    /// does so once they are computed.
    pub(super) fn grow(&mut self, state: &mut Slot, num_tokens: u32) {
        self.reserve(state, num_tokens);
        if !self.caches_when_computed || num_tokens > state.num_prompt_tokens {
            self.cache_shared(state, num_tokens);
        }
    }

    /// A step is processed that ends a prompt, or that comes behind it.
    #[inline]
    pub(super) fn computed_prompt(&mut self, state: &mut Slot) {
        if self.caches_when_computed && state.cacheable < state.num_prompt_tokens {
            self.cache_shared(state, state.num_prompt_tokens);
        }
    }

    /// Allocates blocks until a request has room for `num_tokens`.
    pub(super) fn reserve(&mut self, state: &mut Slot, num_tokens: u32) {
        for _ in 0..self.missing_states(state) {
            state.state_blocks.extend(self.pool.take());
        }
        let needed = num_tokens.div_ceil(self.block_size) as usize;
        while state.blocks.len() < needed && self.take(state) {}
    }

    /// Caches the full blocks of the prompt within a request's first `num_tokens` that others may share.
    pub(super) fn cache_shared(&mut self, state: &mut Slot, num_tokens: u32) {
        let known = num_tokens.min(state.num_tokens());
        if known > state.cacheable {
            let prompt = known.min(state.num_prompt_tokens);
            let (from, to) = ((state.cacheable / self.block_size) as usize, (prompt / self.block_size) as usize);
            for (hash, block) in state.hashes.iter().zip(&state.blocks).take(to).skip(from) {
                self.pool.cache(*block, *hash);
            }
            state.cacheable = known;
        }
    }

    /// Allocates one block for a request. Returns false if none is free.
    pub(super) fn take(&mut self, state: &mut Slot) -> bool {
        let block = self.pool.take();
        state.blocks.extend(block);
        block.is_some()
    }

    /// Caches the full blocks that only this request can reuse, before it is preempted. They need not be cached earlier, as
    /// no other request can hit them.
    pub(super) fn remember_own(&mut self, state: &Slot) {
        if !self.is_caching {
            return;
        }
        let full = (state.cacheable / self.block_size) as usize;
        for (index, block) in state.blocks.iter().enumerate().take(full).skip(state.hashes.len()) {
            self.pool.cache(*block, hash_of(state, index));
        }
    }

    /// Caches the full blocks of generated tokens that later prompts may share, as a later turn of a conversation does. A step of
    /// steady decodes does not, so a prompt can hit them once their request has ended or was preempted.
    pub(super) fn remember_generated(&mut self, state: &Slot) {
        let full = (state.cacheable / self.block_size) as usize;
        let prompt = (state.num_prompt_tokens / self.block_size) as usize;
        let generated = prompt..full.min(state.hashes.len());
        if let (Some(hashes), Some(blocks)) = (state.hashes.get(generated), state.blocks.get(prompt..)) {
            for (hash, block) in hashes.iter().zip(blocks) {
                self.pool.cache(*block, *hash);
            }
        }
    }

    /// Frees all blocks of a request, the last one first.
    pub(super) fn release(&mut self, state: &mut Slot) {
        while let Some(block) = state.blocks.pop().or_else(|| state.state_blocks.pop()) {
            self.pool.release(block);
        }
    }
}

/// Hash of the `index`-th block of a request.
pub(super) fn hash_of(state: &Slot, index: usize) -> BlockHash {
    state.hashes.get(index).copied().unwrap_or_else(|| hash_own(state.rank.record, index))
}
