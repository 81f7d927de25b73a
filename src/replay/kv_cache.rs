//! The KV blocks of requests: found in the prefix cache, taken as a request grows, known to others, given back.
//!
//! Mirrors `KVCacheManager` (`vllm/v1/core/kv_cache_manager.py`). Uses `block_pool`, `prefix`, `slot`; who gets blocks, and at
//! whose cost, is the scheduler's.

use super::block_pool::BlockPool;
use super::config::EngineConfig;
use super::prefix::{hash_content, hash_own};
use super::slot::Slot;
use crate::workload::WorkloadRequest;

/// All blocks, and what of them is reused.
#[derive(Debug)]
pub(super) struct KvCache {
    pool: BlockPool,
    block_size: u32,
    is_caching: bool,
    /// What was found last.
    found: Vec<u32>,
}

impl KvCache {
    pub(super) fn new(config: &EngineConfig) -> Self {
        KvCache {
            pool: BlockPool::new(config.usable_blocks()),
            block_size: config.block_size,
            is_caching: config.enable_prefix_caching,
            found: Vec::new(),
        }
    }

    pub(super) fn num_free(&self) -> u32 {
        self.pool.num_free()
    }

    pub(super) fn num_in_use(&self) -> u32 {
        self.pool.num_in_use()
    }

    /// Blocks that a request lacks for `num_tokens`.
    pub(super) fn missing(&self, state: &Slot, num_tokens: u32) -> u32 {
        num_tokens.div_ceil(self.block_size) - state.blocks.len() as u32
    }

    /// Hashes what others may have of a new request's prompt.
    pub(super) fn hash_prompt(&self, state: &mut Slot, request: &WorkloadRequest) {
        if let (true, Some(content)) = (self.is_caching, &request.content) {
            hash_content(content, request.num_prompt_tokens, self.block_size, &mut state.hashes);
        }
    }

    /// Finds the blocks at the beginning of a waiting request's tokens that the cache holds. Returns their number, and how many
    /// of them are free.
    pub(super) fn find_cached(&mut self, state: &Slot) -> (u32, u32) {
        self.found.clear();
        if !self.is_caching || (state.hashes.is_empty() && !state.was_preempted) {
            return (0, 0);
        }
        let most = (state.num_tokens() - 1) / self.block_size;
        let mut free = 0;
        let hashes = state.hashes.iter().copied().chain(own_hashes(state));
        for block in hashes.take(most as usize).map_while(|hash| self.pool.find(hash)) {
            self.found.push(block);
            free += u32::from(self.pool.is_free(block));
        }
        (self.found.len() as u32, free)
    }

    /// Gives a request the blocks that were found last.
    pub(super) fn use_found(&mut self, state: &mut Slot) {
        for block in &self.found {
            self.pool.touch(*block);
        }
        state.blocks.extend_from_slice(&self.found);
        state.cacheable = self.found.len() as u32 * self.block_size;
    }

    /// Takes blocks until a request has room for `num_tokens`, and remembers what its full shared ones hold.
    pub(super) fn grow(&mut self, state: &mut Slot, num_tokens: u32) {
        let needed = num_tokens.div_ceil(self.block_size) as usize;
        while state.blocks.len() < needed && self.take(state) {}
        let known = num_tokens.min(state.num_tokens());
        if known > state.cacheable {
            let (from, to) = ((state.cacheable / self.block_size) as usize, (known / self.block_size) as usize);
            for (hash, block) in state.hashes.iter().zip(&state.blocks).take(to).skip(from) {
                self.pool.cache(*block, *hash);
            }
            state.cacheable = known;
        }
    }

    /// One more block for a request; false where none is free.
    pub(super) fn take(&mut self, state: &mut Slot) -> bool {
        let block = self.pool.take();
        state.blocks.extend(block);
        block.is_some()
    }

    /// Remembers a request's full blocks beyond those that others may have, before it is preempted: nobody else can have
    /// them, so they need to be known from here on only.
    pub(super) fn remember_own(&mut self, state: &Slot) {
        if !self.is_caching {
            return;
        }
        let shared = state.hashes.len();
        let full = (state.cacheable / self.block_size) as usize;
        let mut parent = state.hashes.last().copied();
        for (position, block) in state.blocks.iter().enumerate().take(full).skip(shared) {
            let hash = hash_own(state.rank.record, position, parent);
            self.pool.cache(*block, hash);
            parent = Some(hash);
        }
    }

    /// Takes all blocks of a request back, its last one first.
    pub(super) fn release(&mut self, state: &mut Slot) {
        while let Some(block) = state.blocks.pop() {
            self.pool.release(block);
        }
    }
}

/// Hashes of the blocks of a preempted request that nobody else can have.
fn own_hashes(state: &Slot) -> impl Iterator<Item = u64> + use<'_> {
    state.was_preempted.then_some(state.hashes.len()).into_iter().flat_map(|shared| {
        let first = (shared, hash_own(state.rank.record, shared, state.hashes.last().copied()));
        let next = |(at, hash): &(usize, u64)| Some((at + 1, hash_own(state.rank.record, at + 1, Some(*hash))));
        std::iter::successors(Some(first), next).map(|(_, hash)| hash)
    })
}
