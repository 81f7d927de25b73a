//! The KV blocks of requests: looked up in the prefix cache, allocated as a request grows, cached, and freed.
//!
//! Mirrors `KVCacheManager` (`vllm/v1/core/kv_cache_manager.py`). The scheduler decides which request
//! gets blocks and which one is preempted for them. Under SGLang a tree of prefixes ([`RadixCache`]) stands where vLLM's pool finds hashes.
#![expect(clippy::cast_possible_truncation, reason = "2^32 requests would take hundreds of GB; blocks are fewer")]

use std::ops::Range;

use super::block_pool::{BlockHash, BlockPool};
use super::config::{EngineConfig, OtherBlocks};
use super::engine_rules::EngineRules;
use super::prefix::{hash_content, hash_own};
use super::radix_cache::RadixCache;
use super::radix_tree::ROOT;
use super::slot::{HEAD_TOKENS, Slot};
use crate::workload::WorkloadRequest;

/// The block pool and the prefix cache on top of it.
#[derive(Debug)]
pub(super) struct KvCache {
    pub(super) pool: BlockPool,
    block_size: u32,
    other_blocks: OtherBlocks,
    is_caching: bool,
    /// SGLang's tree of prefixes. Others find a prompt once the step that ends it is processed, or the next chunk begins
    /// (`cache_unfinished_req`, called from `process_batch_result_prefill` and `get_next_batch_to_run`, `managers/scheduler.py`, 0.5.9).
    pub(super) radix: Option<Box<RadixCache>>,
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
            radix: (matches!(config.rules, EngineRules::Sglang(_)) && config.scheduler.enable_prefix_caching)
                .then(|| Box::new(RadixCache::new(config.block_size))),
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
            if self.radix.is_some() && num_tokens >= HEAD_TOKENS {
                hash_content(content, HEAD_TOKENS, HEAD_TOKENS, &mut state.hashes);
                state.head = state.hashes.pop();
            }
            hash_content(content, num_tokens, self.block_size, &mut state.hashes);
        }
    }

    /// Looks up the cached prefix of a waiting request. Returns the number of blocks found, and how many of them are free.
    pub(super) fn find_cached(&mut self, state: &Slot) -> (u32, u32) {
        self.found.clear();
        let most = (state.num_tokens() - 1) / self.block_size;
        let shared = if self.is_caching { num_shareable(state, most) } else { 0 };
        if let Some(radix) = &mut self.radix {
            radix.find(state, shared, &mut self.found);
            let free = self.found.iter().filter(|block| self.pool.is_free(**block)).count() as u32;
            if let Some(lives) = &mut self.pool.lives {
                lives.looked_up(self.found.len() as u32, most);
            }
            return (self.found.len() as u32, free);
        }
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

    /// Looks up all known tokens of a waiting request in the tree of prefixes. Returns the tokens found and the last node.
    pub(super) fn match_known(&mut self, state: &Slot) -> (u32, u32) {
        let Some(radix) = &mut self.radix else { return (0, ROOT) };
        self.found.clear();
        radix.find(state, num_shareable(state, state.num_tokens() / self.block_size), &mut self.found);
        (self.found.len() as u32 * self.block_size, radix.found_node())
    }

    /// Assigns the blocks of the last look-up to a request.
    pub(super) fn use_found(&mut self, state: &mut Slot) {
        for block in &self.found {
            self.pool.touch(*block);
        }
        if let Some(radix) = &mut self.radix {
            radix.hold_found(state, self.found.len());
        }
        state.blocks.extend_from_slice(&self.found);
        state.cacheable = self.found.len() as u32 * self.block_size;
    }

    /// Allocates blocks until a request has room for `num_tokens`, and caches the full blocks of its prompt that others may share, unless a tree
    /// of prefixes takes them once they are computed.
    pub(super) fn grow(&mut self, state: &mut Slot, num_tokens: u32) {
        self.reserve(state, num_tokens);
        if self.radix.is_none() {
            self.cache_shared(state, num_tokens);
        }
    }

    /// A step is processed that ends a prompt of `num_tokens`, or that comes behind it.
    #[inline]
    pub(super) fn computed_prompt(&mut self, state: &mut Slot, num_tokens: u32) {
        if let Some(radix) = &mut self.radix {
            radix.cache_prompt(&mut self.pool, state, num_tokens);
        }
    }

    /// The next chunk of a prompt begins, behind `num_tokens`.
    pub(super) fn computed_chunk(&mut self, state: &mut Slot, num_tokens: u32) {
        if let Some(radix) = &mut self.radix {
            radix.cache_unfinished(&mut self.pool, state, num_tokens);
        }
    }

    /// Evicts prefixes before `num_tokens` are allocated, if a tree of prefixes keeps them.
    pub(super) fn evict_for(&mut self, num_tokens: u64) {
        if let Some(radix) = &mut self.radix {
            radix.evict_for(&mut self.pool, num_tokens);
        }
    }

    /// Allocates blocks until a request has room for `num_tokens`.
    pub(super) fn reserve(&mut self, state: &mut Slot, num_tokens: u32) {
        for _ in 0..self.missing_states(state) {
            state.state_blocks.extend(self.take_block());
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
        let block = self.take_block();
        state.blocks.extend(block);
        block.is_some()
    }

    fn take_block(&mut self) -> Option<u32> {
        self.pool.take().or_else(|| {
            self.evict_for(1);
            self.pool.take()
        })
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
        if let Some(radix) = &mut self.radix {
            return radix.cache_finished(&mut self.pool, state);
        }
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
        if let Some(radix) = &mut self.radix {
            radix.let_go(state);
        }
    }
}

/// Those of a waiting request's first `most` blocks that the cache may hold: what others may share, or all that it had once itself.
fn num_shareable(state: &Slot, most: u32) -> usize {
    if state.was_preempted { most as usize } else { state.hashes.len().min(most as usize) }
}

/// Appends the hashes of a request's blocks.
pub(super) fn hash_blocks(state: &Slot, blocks: Range<usize>, hashes: &mut Vec<BlockHash>) {
    let own = blocks.start.max(state.hashes.len())..blocks.end;
    hashes.extend(state.hashes.iter().take(blocks.end).skip(blocks.start));
    hashes.extend(own.map(|index| hash_own(state.rank.record, index)));
}

/// Hash of the `index`-th block of a request.
pub(super) fn hash_of(state: &Slot, index: usize) -> BlockHash {
    state.hashes.get(index).copied().unwrap_or_else(|| hash_own(state.rank.record, index))
}
