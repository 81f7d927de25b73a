//! One iteration of TensorRT-LLM's scheduler: first which requests the KV cache has room for, then how they share the tokens of a step.
//! Prompts (contexts) and decodes (generations) are in the same step.
//!
//! Mirrors `PyCapacityScheduler` and `PyMicroBatchScheduler` (`tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py`), and batch waiting of
//! `PyExecutor` (`tensorrt_llm/_torch/pyexecutor/py_executor.py`), 1.2, without attention data parallelism.
//!
//! # Approximations
//! - The limit of a request's output, for which blocks are kept, is the number of tokens that it generates.
//! - Blocks of a cached prefix that nobody uses count as blocks to take, since they are among the free ones.
//! - A cached prefix lessens the tokens of a context that run in a step, as from 1.3 on.
//! - A request that was passed by others, because too few tokens were left for it or because it waits for a prefix, is behind them from
//!   then on: in the order of chunks and of pauses. The engine keeps its place.
//! - Without chunks, a paused request that is longer than a step with what it has generated is computed in several. The engine cuts it off.
//! - Priorities order the queue as in vLLM.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots, records and blocks within its lists")]

mod capacity;
mod new_blocks;
mod shares;

use std::collections::VecDeque;

use capacity::Capacity;
use new_blocks::NewBlocks;
use shares::{Share, Shares};

use super::super::batch::Batch;
use super::super::slot::Slot;
use super::{Prefix, Rules, Scheduler};
use crate::workload::WorkloadRequest;
use crate::{CapacitySchedulerPolicy, EngineConfig, TrtllmOptions};

/// TensorRT-LLM's rules, and what they remember between iterations.
#[derive(Debug)]
pub(super) struct Trtllm {
    options: TrtllmOptions,
    capacity: Capacity,
    new_blocks: NewBlocks,
    /// Iterations for which contexts have waited.
    waited: u32,
    /// Running requests whose context is not complete, and the contexts that are in the step.
    contexts: Vec<u32>,
    shares: Vec<Share>,
}

impl Rules for Trtllm {
    fn schedule(
        &mut self,
        of: &mut Scheduler<'_>,
        batch: &mut Batch,
        in_flight: &mut VecDeque<Box<Batch>>,
        found_cached: &mut dyn FnMut(u32, u32),
    ) {
        let pauses = self.options.capacity_scheduler_policy == CapacitySchedulerPolicy::MaxUtilization;
        if pauses && of.blocks_of_decodes() > of.cache.pool.num_free {
            of.steady.unsettle(&of.running, &mut of.slots, in_flight);
            of.pause(batch);
        }
        let left = self.add_generations(of, batch);
        let is_static = self.options.capacity_scheduler_policy == CapacitySchedulerPolicy::StaticBatch;
        let may_add = !is_static || self.contexts.len() == of.running.len();
        if may_add && left > 0 && !self.waits(of, left, batch) {
            self.share(of, left, batch, Some(found_cached));
            for share in &self.shares {
                of.grow_and_put(share.slot, share.tokens, batch);
            }
        }
    }

    /// Without chunks, a prompt that is longer than a step is refused.
    fn admits(&self, config: &EngineConfig, request: &WorkloadRequest) -> bool {
        config.scheduler.enable_chunked_prefill || request.num_prompt_tokens <= config.max_num_batched_tokens
    }

    fn ended(&mut self, request: &Slot) {
        self.capacity.ended(request);
    }

    /// A generation whose context another server computes is admitted as a context is, and counts among those that run.
    fn reserve(&mut self, of: &mut Scheduler<'_>, slot: u32) -> Option<u32> {
        let nothing = Prefix { cached: 0, held_blocks: 0, free_hits: 0, to_load: 0 };
        let is_room = of.running.len() + of.num_without_tokens() < of.config.max_num_seqs as usize
            && self.capacity.needed(&of.slots[slot as usize], &nothing) <= self.capacity.free(&of.cache.pool);
        if !is_room {
            return None;
        }
        let num_blocks = of.reserve_prompt(slot, false);
        self.capacity.begun(&of.slots[slot as usize]);
        Some(num_blocks)
    }
}

impl Trtllm {
    pub(super) fn new(options: TrtllmOptions, config: &EngineConfig) -> Self {
        Trtllm {
            options,
            capacity: Capacity::new(options.capacity_scheduler_policy, config),
            new_blocks: NewBlocks::default(),
            waited: 0,
            contexts: Vec::new(),
            shares: Vec::new(),
        }
    }

    /// Adds a decode of each generation, in order, as long as there are tokens. Returns the tokens that are left. Lists the running contexts.
    fn add_generations(&mut self, of: &mut Scheduler<'_>, batch: &mut Batch) -> u32 {
        of.steady.take_blocks(&mut of.slots, &mut of.cache);
        let mut left = of.config.max_num_batched_tokens.saturating_sub(of.steady.len());
        self.contexts.clear();
        for index in of.steady.num_settled..of.running.len() {
            let slot = of.running[index];
            let state = &of.slots[slot as usize];
            let known = of.known(state);
            match of.left(state, known) {
                0 => {}
                1 if state.sampled > 0 => {
                    let tokens = of.tokens_of_decode(state);
                    if left >= tokens {
                        of.decode(slot, known, batch);
                        left -= tokens;
                    }
                }
                _ => self.contexts.push(slot),
            }
        }
        left
    }

    /// Whether contexts wait beside generations, so that more of them come together.
    fn waits(&mut self, of: &mut Scheduler<'_>, left: u32, batch: &mut Batch) -> bool {
        let TrtllmOptions { batch_wait_timeout_iters: most, batch_wait_max_tokens_ratio: ratio, .. } = self.options;
        let generations = of.config.max_num_batched_tokens - left;
        if most == 0 || ratio == 0.0 || generations == 0 {
            return false;
        }
        self.share(of, left, batch, None);
        let tokens: u32 = self.shares.iter().map(|share| share.tokens).sum();
        if tokens == 0 {
            return false;
        }
        let is_small = f64::from(generations + tokens) < ratio * f64::from(of.config.max_num_batched_tokens);
        let waits = is_small && self.waited < most;
        self.waited = if waits { self.waited + 1 } else { 0 };
        waits
    }

    /// Lists the contexts of the step: those that run, then waiting requests. These begin if `found_cached` is given.
    fn share(
        &mut self,
        of: &mut Scheduler<'_>,
        left: u32,
        batch: &mut Batch,
        found_cached: Option<&mut dyn FnMut(u32, u32)>,
    ) {
        let is_cut = of.config.scheduler.enable_chunked_prefill;
        let mut all = Shares {
            policy: is_cut.then_some(self.options.context_chunking_policy),
            unit: of.config.block_size,
            most: of.config.max_num_batched_tokens,
            left,
        };
        self.shares.clear();
        self.new_blocks.keep(&self.contexts);
        let mut goes_on = true;
        for slot in &self.contexts {
            let state = &of.slots[*slot as usize];
            let length = of.left(state, of.known(state));
            let Some(tokens) = all.first(length) else {
                goes_on = false;
                break;
            };
            if tokens > 0 {
                self.shares.push(Share { slot: *slot, length, tokens });
            }
        }
        // The list of requests ends with the first that was paused.
        if goes_on && batch.preempted.is_empty() {
            self.share_waiting(of, &mut all, batch, found_cached);
        }
        all.deal(&mut self.shares);
    }

    /// Lists waiting requests until one does not fit the blocks or the tokens that are left.
    fn share_waiting(
        &mut self,
        of: &mut Scheduler<'_>,
        all: &mut Shares,
        batch: &mut Batch,
        mut found_cached: Option<&mut dyn FnMut(u32, u32)>,
    ) {
        let block_size = of.config.block_size;
        // Requests that have room, or may not start yet, and stay in the queue; and the blocks of the first.
        let (mut passed, mut num_passed, mut blocks_passed) = (None, 0, 0);
        while all.left > 0 && of.running.len() + num_passed < of.config.max_num_seqs as usize {
            let Some((turn, slot)) = of.waiting.after(passed) else { break };
            // One that was paused waits for its token of a step in flight.
            let state = &of.slots[slot as usize];
            if state.awaits_token() {
                break;
            }
            if self.new_blocks.begin(state, block_size) {
                (passed, num_passed) = (Some(turn), num_passed + 1);
                continue;
            }
            let Some(prefix) = of.prefix_of(slot) else { break };
            let state = &of.slots[slot as usize];
            let needed = self.capacity.needed(state, &prefix);
            if needed + blocks_passed > self.capacity.free(&of.cache.pool) {
                break;
            }
            let (all_tokens, length) = (state.num_tokens(), state.num_tokens() - prefix.cached);
            let Some(tokens) = all.first(length) else { break };
            self.new_blocks.add(slot, state, prefix.held_blocks, block_size);
            if tokens > 0 {
                self.shares.push(Share { slot, length, tokens });
            }
            if let Some(found_cached) = found_cached.as_mut().filter(|_| tokens > 0) {
                of.waiting.take(turn);
                of.begin(slot, prefix.cached, batch, &mut **found_cached);
                of.cache.reserve(&mut of.slots[slot as usize], all_tokens);
                self.capacity.begun(&of.slots[slot as usize]);
                of.running.push(slot);
            } else {
                (passed, num_passed, blocks_passed) = (Some(turn), num_passed + 1, blocks_passed + needed);
            }
        }
    }
}
