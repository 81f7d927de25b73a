//! Which requests the KV cache has room for: `PyCapacityScheduler` (`tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py`).
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]
#![expect(clippy::cast_possible_truncation, reason = "blocks are fewer than 2^32")]

use super::super::super::batch::Batch;
use super::super::super::block_pool::BlockPool;
use super::super::super::config::OtherBlocks;
use super::super::super::slot::Slot;
use super::super::{Prefix, Scheduler};
use crate::{CapacitySchedulerPolicy, EngineConfig};

/// The blocks of running requests, and those kept for what they will write.
#[derive(Debug)]
pub(super) struct Capacity {
    pub(super) policy: CapacitySchedulerPolicy,
    block_size: u32,
    other_blocks: OtherBlocks,
    /// Drafts of a request in a step, and the longest context.
    drafts: u32,
    max_model_len: u32,
    /// Blocks that running requests have at their ends, where these are kept for them.
    promised: u64,
}

impl Capacity {
    pub(super) fn new(policy: CapacitySchedulerPolicy, config: &EngineConfig) -> Self {
        Capacity {
            policy,
            block_size: config.block_size,
            other_blocks: config.other_blocks(),
            drafts: config.num_draft_tokens(),
            max_model_len: config.max_model_len,
            promised: 0,
        }
    }

    /// Blocks of a request: of all tokens that it may ever have, or of those that it has.
    fn blocks_of(&self, state: &Slot) -> u32 {
        let all = state.num_prompt_tokens.saturating_add(state.num_output_tokens);
        let pauses = self.policy == CapacitySchedulerPolicy::MaxUtilization;
        let tokens = if pauses { state.num_tokens() } else { all };
        let tokens = tokens.max(tokens.saturating_add(self.drafts).min(self.max_model_len));
        tokens.div_ceil(self.block_size) + self.other_blocks.of(all)
    }

    /// Blocks that a waiting request takes from the free ones. Of its cached prefix only those that others hold are given.
    pub(super) fn needed(&self, state: &Slot, prefix: &Prefix) -> u32 {
        self.blocks_of(state).saturating_sub(prefix.held_blocks) + prefix.free_hits
    }

    /// Free blocks that are kept for nobody. All blocks in use are running requests', one for each reference.
    pub(super) fn free(&self, pool: &BlockPool) -> u32 {
        let held = u64::from(pool.num_in_use()) + pool.num_shared;
        u64::from(pool.num_free).saturating_sub(self.promised.saturating_sub(held)) as u32
    }

    /// A request has begun to run.
    pub(super) fn begun(&mut self, state: &Slot) {
        if self.policy != CapacitySchedulerPolicy::MaxUtilization {
            self.promised += u64::from(self.blocks_of(state));
        }
    }

    /// A request has ended, and its blocks are about to be free.
    pub(super) fn ended(&mut self, state: &Slot) {
        if self.policy != CapacitySchedulerPolicy::MaxUtilization {
            self.promised -= u64::from(self.blocks_of(state));
        }
    }
}

impl Scheduler<'_> {
    /// Pauses the requests that started last, until the decodes of the others fit into the free blocks.
    pub(super) fn pause(&mut self, batch: &mut Batch) {
        let (mut at, mut blocks) = (0, 0);
        while let Some(slot) = self.running.get(at) {
            let needed = self.blocks_of_decode(&self.slots[*slot as usize]);
            if blocks + needed <= self.cache.pool.num_free {
                (at, blocks) = (at + 1, blocks + needed);
            } else if let Some(victim) = self.running.pop() {
                batch.preempted.push(self.slots[victim as usize].rank.record);
                self.preempt(victim);
            }
        }
    }
}
