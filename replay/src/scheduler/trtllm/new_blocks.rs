//! Requests that wait for each other's prefix: one whose first new block is being filled by another starts when it can find it
//! (`PyCapacityScheduler` in `tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py`, `beneficial_to_skip`).
#![expect(clippy::cast_possible_truncation, reason = "a request has fewer than 2^32 blocks")]

use super::super::super::block_pool::BlockHash;
use super::super::super::slot::Slot;

/// The first block of a context that was not in the cache when it started.
#[derive(Debug, Clone, Copy)]
struct NewBlock {
    slot: u32,
    index: usize,
    hash: BlockHash,
}

/// The first new block of each context that runs in chunks or was taken in this step.
#[derive(Debug, Default)]
pub(super) struct NewBlocks(Vec<NewBlock>);

impl NewBlocks {
    /// Keeps those of contexts that still run.
    pub(super) fn keep(&mut self, contexts: &[u32]) {
        self.0.retain(|block| contexts.contains(&block.slot));
    }

    /// Adds that of a context that found `held_blocks`.
    pub(super) fn add(&mut self, slot: u32, state: &Slot, held_blocks: u32, block_size: u32) {
        if let Some(hash) = state.hashes.get(held_blocks as usize)
            && held_blocks < state.num_prompt_tokens / block_size
        {
            self.0.push(NewBlock { slot, index: held_blocks as usize, hash: *hash });
        }
    }

    /// Whether a waiting request begins with one of them.
    pub(super) fn begin(&self, state: &Slot, block_size: u32) -> bool {
        let most = (state.num_tokens() - 1) / block_size;
        let is_its =
            |block: &NewBlock| (block.index as u32) < most && state.hashes.get(block.index) == Some(&block.hash);
        self.0.iter().any(is_its)
    }
}
