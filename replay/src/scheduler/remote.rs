//! Prompts whose KV cache moves between engines: blocks that are held where a prompt was computed, and requests that get blocks, wait for their
//! content and then decode.
//!
//! Mirrors what vLLM 0.32 (NIXL connector), SGLang 0.5.9 (`disaggregation/prefill.py`, `decode.py`) and TensorRT-LLM 1.2 do on either side.
#![expect(clippy::indexing_slicing, reason = "the engine numbers slots within its list")]

use std::collections::{HashMap, VecDeque};

use super::{Rules, Scheduler};
use crate::EngineRules;

/// What an engine does for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KvRole {
    /// It computes prompts, whose blocks it holds until they are told to have been moved. With `waits_for_space`, it takes a prompt once the
    /// engine that will decode it has blocks for it.
    Prefill {
        /// See above.
        waits_for_space: bool,
    },
    /// It decodes behind prompts that others compute.
    Decode,
}

/// A request that got blocks for its prompt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserved {
    pub(crate) record: u32,
    /// Blocks that have to be moved: those that its prefix cache does not have.
    pub(crate) num_blocks: u32,
}

/// The requests of one engine whose blocks move.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(super) role: KvRole,
    /// Slots by record: of requests that hold their blocks for another engine, and of those that have blocks without content.
    held: HashMap<u32, u32>,
    reserved: HashMap<u32, u32>,
    /// Requests without blocks, and those whose content is there.
    waiting: VecDeque<u32>,
    ready: VecDeque<u32>,
    /// Since the engine asked last: requests that got blocks, and records of those that run.
    pub(crate) got_blocks: Vec<Reserved>,
    pub(crate) joined: Vec<u32>,
}

impl Remote {
    pub(crate) fn new(role: KvRole) -> Self {
        Remote {
            role,
            held: HashMap::new(),
            reserved: HashMap::new(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            got_blocks: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Whether a step could take one of its requests.
    pub(super) fn has_work(&self) -> bool {
        !self.waiting.is_empty() || self.is_any_ready()
    }

    /// Whether a request can run since its content is there.
    pub(crate) fn is_any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Requests that do not run yet.
    pub(super) fn num_waiting(&self) -> u32 {
        u32::try_from(self.waiting.len() + self.num_without_tokens()).unwrap_or(u32::MAX)
    }

    /// Requests that have blocks and do not run yet.
    fn num_without_tokens(&self) -> usize {
        self.reserved.len() + self.ready.len()
    }

    pub(super) fn add(&mut self, slot: u32) {
        self.waiting.push_back(slot);
    }

    /// Holds the blocks of a request that has ended; false if this engine computes no prompts for others.
    pub(super) fn hold(&mut self, record: u32, slot: u32) -> bool {
        let holds = self.role != KvRole::Decode;
        if holds {
            self.held.insert(record, slot);
        }
        holds
    }

    /// The content of a request's blocks is there.
    pub(crate) fn arrived(&mut self, record: u32) {
        self.ready.extend(self.reserved.remove(&record));
    }
}

impl Scheduler<'_> {
    /// Frees the blocks that were held for another engine.
    pub(crate) fn release_held(&mut self, rules: &mut dyn Rules, record: u32) {
        let held = self.remote.as_mut().and_then(|remote| remote.held.remove(&record));
        if let Some(slot) = held {
            rules.ended(&self.slots[slot as usize]);
            self.free(slot);
        }
    }

    /// Requests whose content is there begin to run. In vLLM they compute their last prompt token again; elsewhere they have their first token.
    pub(super) fn join(&mut self) {
        let most = self.config.max_num_seqs as usize;
        let is_vllm = self.config.rules.is_vllm();
        while self.running.len() < most
            && let Some(remote) = &mut self.remote
            && let Some(slot) = remote.ready.pop_front()
        {
            let state = &mut self.slots[slot as usize];
            remote.joined.push(state.rank.record);
            state.computed = state.num_prompt_tokens;
            if is_vllm {
                state.computed -= 1;
            } else {
                (state.sampled, state.delivered, state.sent) = (1, 1, 1);
            }
            self.cache.cache_shared(state, state.num_prompt_tokens);
            state.is_running = true;
            state.admission = self.admissions;
            self.admissions += 1;
            self.running.push(slot);
        }
    }

    /// The first token of a request was sent to its client at `now_ns`, ns of the engine's thread.
    pub(crate) fn sent_first(&mut self, record: u32, now_ns: u64) {
        // Those that joined last are at the end.
        let found = self.running.iter().rev().find(|slot| self.slots[**slot as usize].rank.record == record);
        if let Some(slot) = found {
            self.slots[*slot as usize].last_token_ns = now_ns;
        }
    }

    /// Gives waiting requests blocks, in order, as long as there is room. Those that were preempted come first.
    pub(super) fn reserve(&mut self, rules: &mut dyn Rules) {
        while self.waiting.queue.is_empty()
            && let Some(slot) = self.remote.as_ref().and_then(|remote| remote.waiting.front().copied())
            && let Some(num_blocks) = rules.reserve(self, slot)
            && let Some(remote) = &mut self.remote
        {
            remote.waiting.pop_front();
            let record = self.slots[slot as usize].rank.record;
            remote.reserved.insert(record, slot);
            remote.got_blocks.push(Reserved { record, num_blocks });
        }
        let num_in_use = self.cache.pool.num_in_use();
        self.counters.max_blocks_in_use = self.counters.max_blocks_in_use.max(num_in_use);
    }

    /// Requests that have blocks for prompts of other engines and do not run yet.
    pub(super) fn num_without_tokens(&self) -> usize {
        self.remote.as_ref().map_or(0, |remote| remote.num_without_tokens())
    }

    /// Takes blocks for the prompt of a waiting request, behind those that the last look-up found if there was one. Returns how many are new.
    pub(super) fn reserve_prompt(&mut self, slot: u32, has_looked_up: bool) -> u32 {
        let state = &mut self.slots[slot as usize];
        if has_looked_up {
            self.cache.use_found(state);
        }
        let found = state.blocks.len();
        self.cache.reserve(state, state.num_prompt_tokens);
        u32::try_from(state.blocks.len() - found).unwrap_or(u32::MAX)
    }
}

/// Whether an engine moves each part of a prompt once it is computed, and has blocks for it before: SGLang. Others move it as a whole.
pub(crate) fn moves_by_chunks(rules: &EngineRules) -> bool {
    matches!(rules, EngineRules::Sglang(_))
}
