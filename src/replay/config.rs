//! What the scheduler and the KV cache are allowed: vLLM's flags that matter for scheduling. Uses `deployment`, `error`.

use serde::{Deserialize, Serialize};

use crate::deployment::Deployment;
use crate::error::{Error, Result};

/// Most KV blocks: 16 million of them hold more tokens than any GPU.
pub const MAX_GPU_BLOCKS: u32 = 1 << 24;

/// Which waiting request is next, and which running one is preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulingPolicy {
    /// First come, first served; the latest to be scheduled is preempted.
    #[default]
    Fcfs,
    /// Lowest [`priority`](crate::workload::WorkloadRequest::priority) first, ties by arrival; the highest is preempted.
    Priority,
}

/// vLLM's scheduler and cache configuration, under vLLM's names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    /// Most requests in a step.
    pub max_num_seqs: u32,
    /// Most tokens in a step.
    pub max_num_batched_tokens: u32,
    /// Longest context; a request whose prompt and output are longer is refused.
    pub max_model_len: u32,
    /// Tokens of a KV block.
    pub block_size: u32,
    /// KV blocks, the one included that the engine keeps for itself.
    pub num_gpu_blocks: u32,
    /// Reuse of equal blocks at the beginning of prompts.
    pub enable_prefix_caching: bool,
    /// Whether a prompt may be split over steps; where not, one that exceeds what is left of a step waits for the next.
    pub enable_chunked_prefill: bool,
    /// Most tokens of a prompt in one step; 0 for no limit of its own.
    pub long_prefill_token_threshold: u32,
    /// Order of waiting requests.
    pub scheduling_policy: SchedulingPolicy,
    /// One step is scheduled while another runs.
    pub async_scheduling: bool,
    /// Stages of the pipeline: so many steps are in flight.
    pub pipeline_parallel_size: u32,
}

impl EngineConfig {
    /// vLLM's defaults for what `deployment` does not say: prefix caching, chunked prefill and asynchronous scheduling on, first
    /// come first served.
    pub fn new(deployment: &Deployment, max_model_len: u32, num_gpu_blocks: u32) -> Self {
        EngineConfig {
            max_num_seqs: deployment.max_num_seqs,
            max_num_batched_tokens: deployment.max_num_batched_tokens,
            max_model_len,
            block_size: deployment.block_size,
            num_gpu_blocks,
            enable_prefix_caching: true,
            enable_chunked_prefill: true,
            long_prefill_token_threshold: 0,
            scheduling_policy: SchedulingPolicy::Fcfs,
            async_scheduling: true,
            pipeline_parallel_size: deployment.pipeline_parallel_size,
        }
    }

    /// Blocks that requests can have: all but the engine's own.
    pub fn usable_blocks(&self) -> u32 {
        self.num_gpu_blocks.saturating_sub(1)
    }

    /// Checks the configuration; all problems are reported at once.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` where a size is zero, where a prompt of `max_model_len` could never be scheduled without chunks, for more than [`MAX_GPU_BLOCKS`], or
    /// where the blocks hold less than one request of `max_model_len`.
    pub fn validate(&self) -> Result<()> {
        let sizes = [
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_model_len", self.max_model_len),
            ("block_size", self.block_size),
            ("pipeline_parallel_size", self.pipeline_parallel_size),
        ];
        let mut problems: Vec<String> = sizes
            .iter()
            .filter(|(_, value)| *value == 0)
            .map(|(key, _)| format!("{key} = 0 must be at least 1"))
            .collect();
        if !self.enable_chunked_prefill && self.max_num_batched_tokens < self.max_model_len {
            problems.push(format!(
                "max_num_batched_tokens = {} is less than max_model_len = {}: without chunked prefill a long prompt could never be scheduled; raise the first, lower the second or allow chunks",
                self.max_num_batched_tokens, self.max_model_len
            ));
        }
        if self.num_gpu_blocks > MAX_GPU_BLOCKS {
            problems.push(format!(
                "num_gpu_blocks = {} must be at most {MAX_GPU_BLOCKS}; a larger block_size holds more tokens",
                self.num_gpu_blocks
            ));
        }
        if self.block_size > 0 {
            let needed = self.max_model_len.div_ceil(self.block_size);
            if needed > self.usable_blocks() {
                let held = u64::from(self.usable_blocks()) * u64::from(self.block_size);
                problems.push(format!(
                    "num_gpu_blocks = {} holds {held} tokens, less than one request of max_model_len = {}: give at least {} blocks, or max_model_len at most {held}",
                    self.num_gpu_blocks,
                    self.max_model_len,
                    needed + 1
                ));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::invalid("engine", problems)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(change: impl FnOnce(&mut EngineConfig)) -> String {
        let mut config = EngineConfig::new(&Deployment::default(), 4096, 257);
        change(&mut config);
        config.validate().map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn blocks_for_one_longest_request_and_the_engines_own_are_enough() {
        assert_eq!(problems(|_| ()), "");
        let short = problems(|config| config.num_gpu_blocks = 256);
        assert!(short.contains("holds 4080 tokens") && short.contains("at least 257 blocks"), "{short}");
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let all = problems(|config| {
            (config.max_num_seqs, config.block_size, config.num_gpu_blocks) = (0, 0, u32::MAX);
        });
        for key in ["max_num_seqs = 0", "block_size = 0", "num_gpu_blocks = 4294967295"] {
            assert!(all.contains(key), "{all}");
        }
    }

    #[test]
    fn without_chunks_the_budget_must_hold_the_longest_prompt() {
        let tight =
            |config: &mut EngineConfig| (config.enable_chunked_prefill, config.max_num_batched_tokens) = (false, 4095);
        assert!(problems(tight).contains("without chunked prefill"));
        assert_eq!(problems(|config| config.enable_chunked_prefill = false), "");
    }
}
