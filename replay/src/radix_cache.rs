//! What SGLang's requests do with its tree of cached prefixes: they look up, lock, give it their pages and share those that it has, and evict from
//! it before they allocate.
//!
//! Mirrors `cache_unfinished_req`, `cache_finished_req` and `evict` of `RadixCache` (`mem_cache/radix_cache.py`) and `evict_from_tree_cache`
//! (`mem_cache/common.py`) of 0.5.9. `tests/fixtures/sglang_radix/make.py` writes what these do in random cases.

use super::block_pool::{BlockHash, BlockPool};
use super::kv_cache::hash_blocks;
use super::radix_tree::{ROOT, RadixTree};
use super::slot::Slot;

/// What a request holds of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RadixHold {
    /// The last node of its pages that are in the tree, which it locks.
    node: u32,
    /// How many these are (`cache_protected_len`).
    num_pages: u32,
    /// The prompt has been given to the tree.
    has_prompt: bool,
}

impl Default for RadixHold {
    fn default() -> Self {
        RadixHold { node: ROOT, num_pages: 0, has_prompt: false }
    }
}

/// The tree, and what the last look-up found in it.
#[derive(Debug)]
pub(super) struct RadixCache {
    pub(super) tree: RadixTree,
    page: u32,
    found: u32,
    hashes: Vec<BlockHash>,
    held: Vec<u32>,
}

impl RadixCache {
    pub(super) fn new(page: u32) -> Self {
        RadixCache { tree: RadixTree::new(), page, found: ROOT, hashes: Vec::new(), held: Vec::new() }
    }

    /// Looks up the first pages of a request. Appends the blocks of those that the tree has.
    pub(super) fn find(&mut self, state: &Slot, num_pages: usize, blocks: &mut Vec<u32>) {
        self.hashes.clear();
        hash_blocks(state, 0..num_pages, &mut self.hashes);
        self.found = self.tree.match_prefix(&self.hashes, blocks);
    }

    /// The last node of the last look-up.
    pub(super) fn found_node(&self) -> u32 {
        self.found
    }

    /// A request takes what the last look-up found, of which there are `num_pages`.
    pub(super) fn hold_found(&mut self, state: &mut Slot, num_pages: usize) {
        self.tree.lock(self.found);
        state.radix = RadixHold { node: self.found, num_pages: to_u32(num_pages), has_prompt: false };
    }

    /// Gives the tree the whole pages of a request's first `num_tokens`. Those that it has already take the place of the request's own.
    pub(super) fn cache_unfinished(&mut self, pool: &mut BlockPool, state: &mut Slot, num_tokens: u32) {
        let (node, num_pages) = self.insert(pool, state, num_tokens);
        let own = state.blocks.iter_mut().skip(state.radix.num_pages as usize);
        for (own, block) in own.zip(&self.held) {
            pool.release(std::mem::replace(own, *block));
            pool.share(*block);
        }
        self.tree.lock(node);
        self.tree.unlock(state.radix.node);
        (state.radix.node, state.radix.num_pages) = (node, to_u32(num_pages));
    }

    /// The step is processed that ends a prompt, of which `num_tokens` were known.
    pub(super) fn cache_prompt(&mut self, pool: &mut BlockPool, state: &mut Slot, num_tokens: u32) {
        if !state.radix.has_prompt {
            state.radix.has_prompt = true;
            self.cache_unfinished(pool, state, num_tokens);
        }
    }

    /// Gives the tree the whole pages of a request that has ended, before its blocks are released.
    pub(super) fn cache_finished(&mut self, pool: &mut BlockPool, state: &Slot) {
        let num_tokens = state.num_prompt_tokens.saturating_add(state.num_output_tokens);
        self.insert(pool, state, state.computed.min(num_tokens));
    }

    /// A request uses none of its pages any more.
    pub(super) fn let_go(&mut self, state: &mut Slot) {
        self.tree.unlock(std::mem::take(&mut state.radix).node);
    }

    /// Gives the tree the pages that it has not from this request. Returns the node of the last one, and the number of the request's pages in it;
    /// `held` has the blocks of those that it had from others.
    fn insert(&mut self, pool: &mut BlockPool, state: &Slot, num_tokens: u32) -> (u32, usize) {
        let RadixHold { node, num_pages, .. } = state.radix;
        let start = num_pages as usize;
        let blocks = state.blocks.get(start..state.blocks.len().min((num_tokens / self.page) as usize));
        let blocks = blocks.unwrap_or_default();
        self.hashes.clear();
        hash_blocks(state, start..start + blocks.len(), &mut self.hashes);
        self.held.clear();
        let node = self.tree.insert(node, &self.hashes, blocks, &mut self.held);
        for block in blocks.iter().skip(self.held.len()) {
            pool.hold(*block);
        }
        (node, start + blocks.len())
    }

    /// Evicts at least `num_tokens`, whole nodes at a time, if fewer are allocatable at once: not only those that lack.
    pub(super) fn evict_for(&mut self, pool: &mut BlockPool, num_tokens: u64) {
        let page = u64::from(self.page);
        let available = u64::from(pool.num_free - self.tree.num_evictable) * page;
        let mut evicted = if available < num_tokens { 0 } else { num_tokens };
        while evicted < num_tokens
            && let Some(pages) = self.tree.evict_leaf()
        {
            evicted += pages.len() as u64 * page;
            for page in pages {
                pool.let_go(page.block);
            }
        }
    }
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
