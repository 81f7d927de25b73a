//! The state of a request inside the engine. Slots are reused, so that their vectors keep their capacity.

use ridgepoint::model::OwnSampling;

use super::block_pool::BlockHash;
use super::radix_cache::RadixHold;
use super::waiting::Rank;

/// First tokens by which SGLang's policies tell that a request waits for another (`IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD`,
/// `managers/schedule_policy.py`, 0.5.9).
pub(super) const HEAD_TOKENS: u32 = 32;

/// Requests that are counted together: those of a stage with the same sampling parameters of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Group {
    pub(super) stage: u32,
    pub(super) own_sampling: OwnSampling,
}

/// State of one request. Token counts follow vLLM's `Request`: `computed` includes tokens of steps in flight.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) rank: Rank,
    pub(super) group: Group,
    pub(super) num_prompt_tokens: u32,
    pub(super) num_output_tokens: u32,
    /// Prompt tokens that are in the prefix cache whatever it holds.
    pub(super) known_cached: u32,
    /// Tokens in the KV cache after all scheduled steps.
    pub(super) computed: u32,
    /// Output tokens that scheduled steps sample, including those in flight.
    pub(super) sampled: u32,
    /// Output tokens that have come back to the engine.
    pub(super) delivered: u32,
    /// Those of them that its client has, where it gets several together.
    pub(super) sent: u32,
    /// Tokens whose full blocks are in the prefix cache.
    pub(super) cacheable: u32,
    /// What the request holds of SGLang's tree of prefixes.
    pub(super) radix: RadixHold,
    /// Hash of its first [`HEAD_TOKENS`], if other prompts may share them.
    pub(super) head: Option<BlockHash>,
    /// Tokens that were computed and then lost in a preemption.
    pub(super) lost: u32,
    /// Number of requests that began to run before it did: the order of the running queue.
    pub(super) admission: u64,
    pub(super) is_running: bool,
    pub(super) was_preempted: bool,
    /// Position in the step that is being scheduled.
    pub(super) scheduled_at: Option<u32>,
    pub(super) last_token_ns: u64,
    /// Range of steps that hold the request as a steady decode (the end excluded). The counts above do not include them
    /// until [`Steady::unsettle`](super::fast_forward::Steady::unsettle).
    pub(super) steady_from: u64,
    pub(super) steady_until: u64,
    pub(super) blocks: Vec<u32>,
    /// Blocks of the request's states in a hybrid model.
    pub(super) state_blocks: Vec<u32>,
    /// Hashes of the blocks that other prompts may share.
    pub(super) hashes: Vec<BlockHash>,
}

impl Slot {
    /// The time since its client got tokens, which begins anew.
    #[inline]
    pub(super) fn gap_ns(&mut self, now_ns: u64) -> u64 {
        now_ns - std::mem::replace(&mut self.last_token_ns, now_ns)
    }

    /// Sends a client its tokens after `count` more have come back: the first alone, then each `interval` together, and what is left at the end. Returns
    /// how many it gets.
    ///
    /// # Source
    /// SGLang 0.5.9, `stream_output_generation` (`managers/scheduler_output_processor_mixin.py`); vLLM, `OutputProcessor` (`v1/engine/output_processor.py`).
    #[inline]
    pub(super) fn send(&mut self, count: u32, interval: u32) -> u32 {
        if interval <= 1 {
            return count;
        }
        let held = self.delivered - self.sent;
        if self.sent > 0 && held < interval && self.delivered < self.num_output_tokens {
            return 0;
        }
        self.sent = self.delivered;
        held
    }

    /// Resets the slot for a new request. Its vectors keep their capacity.
    pub(super) fn reset(&mut self, rank: Rank, group: Group, num_prompt_tokens: u32, num_output_tokens: u32) {
        let Slot { mut blocks, mut state_blocks, mut hashes, .. } = std::mem::take(self);
        blocks.clear();
        hashes.clear();
        state_blocks.clear();
        let known = Slot { blocks, state_blocks, hashes, ..Slot::default() };
        *self = Slot { rank, group, num_prompt_tokens, num_output_tokens, ..known };
    }

    /// Whether the request is a steady decode in this step.
    pub(super) fn is_steady_in(&self, step: u64) -> bool {
        (self.steady_from..self.steady_until).contains(&step)
    }

    /// Whether a step in flight samples one of its tokens.
    pub(super) fn awaits_token(&self) -> bool {
        self.delivered != self.sampled
    }

    /// Hash of its first [`HEAD_TOKENS`], if other prompts may share them and they are known.
    pub(super) fn known_head(&self) -> Option<BlockHash> {
        self.head.filter(|_| self.num_tokens() >= HEAD_TOKENS)
    }

    /// Number of known tokens: the prompt and the delivered output.
    pub(super) fn num_tokens(&self) -> u32 {
        self.num_prompt_tokens + self.delivered
    }
}
