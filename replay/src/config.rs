//! Configuration of the scheduler and the KV cache: the flags that affect scheduling.

use ridgepoint::kv_capacity::{KvCapacity, blocks_of_windows};
use ridgepoint::{Deployment, Error, Result};
use serde::{Deserialize, Serialize};

use super::engine_rules::EngineRules;
use super::offload::KvOffload;
use super::scheduler_options::SchedulerOptions;
use super::speculation::Speculation;

/// Maximum number of KV blocks. 16 million blocks hold more tokens than any GPU.
pub const MAX_GPU_BLOCKS: u32 = 1 << 24;

/// The scheduler and the cache of an engine, under vLLM's names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EngineConfig {
    /// Maximum number of requests in a step.
    pub max_num_seqs: u32,
    /// Maximum number of tokens in a step.
    pub max_num_batched_tokens: u32,
    /// Longest context. A request whose prompt and output together are longer is rejected.
    pub max_model_len: u32,
    /// Tokens of a KV block.
    pub block_size: u32,
    /// Blocks of a running request in addition to those of its tokens: for the states of a hybrid model, one per group of layers.
    #[serde(default, skip_serializing_if = "ridgepoint::units::is_zero")]
    pub state_blocks_per_request: u32,
    /// Blocks of a running request for its sliding windows, for each of its blocks of tokens up to `window_blocks`.
    #[serde(default, skip_serializing_if = "ridgepoint::units::is_zero")]
    pub window_share: f64,
    /// Most blocks of tokens that a request's sliding windows cover.
    #[serde(default, skip_serializing_if = "ridgepoint::units::is_zero")]
    pub window_blocks: u32,
    /// Number of KV blocks, including the one that the engine reserves.
    pub num_gpu_blocks: u32,
    /// Arguments that only the scheduler uses.
    #[serde(flatten)]
    pub scheduler: SchedulerOptions,
    /// Number of pipeline stages, which is also the number of steps in flight.
    pub pipeline_parallel_size: u32,
    /// The engine whose rules put steps together.
    #[serde(default, skip_serializing_if = "EngineRules::is_vllm")]
    pub rules: EngineRules,
    /// Speculative decoding; `None` without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculation: Option<Speculation>,
    /// KV blocks in host memory; `None` without such a tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_offload: Option<KvOffload>,
}

/// The blocks of a request for its states and sliding windows.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherBlocks {
    states: u32,
    window_share: f64,
    window_blocks: u32,
    block_size: u32,
}

impl OtherBlocks {
    /// Returns the number of a request of so many tokens.
    pub(super) fn of(self, num_tokens: u32) -> u32 {
        if self.window_blocks == 0 {
            return self.states;
        }
        let of_windows = blocks_of_windows(self.window_share, self.window_blocks, num_tokens.div_ceil(self.block_size));
        self.states.saturating_add(of_windows)
    }
}

/// Bytes of a KV block in the table of the GPU's blocks, and of one with content; measured over replays of 10 to 100 million blocks.
const GPU_BLOCK_BYTES: f64 = 32.0;
const FILLED_BLOCK_BYTES: f64 = 32.0;
/// Bytes of a block that the host, or a disk behind it, has.
const TIER_BLOCK_BYTES: f64 = 72.0;
/// Bytes of the hash of a block of a request that is in the engine and shares content with others.
const HASH_BYTES: f64 = 8.0;

impl EngineConfig {
    /// An estimate, from above, of the bytes that a replay on so many such engines takes for their tables of KV blocks: those of the GPU, of a host
    /// and of a disk, as far as `requests` of `tokens` in all can fill them, and the hashes of `waiting_tokens` that share content.
    pub fn table_bytes(&self, engines: u32, requests: f64, tokens: f64, waiting_tokens: f64) -> f64 {
        let block_size = f64::from(self.block_size.max(1));
        let blocks = tokens / block_size + requests;
        let gpu = f64::from(engines) * f64::from(self.num_gpu_blocks);
        let tiers = self.kv_offload.as_ref().map_or(0.0, |tier| {
            let disk = tier.disk.as_ref().map_or(0.0, |disk| disk.num_disk_blocks.map_or(f64::INFINITY, f64::from));
            blocks.min(f64::from(tier.num_cpu_blocks)) + blocks.min(disk)
        });
        gpu * GPU_BLOCK_BYTES
            + blocks.min(gpu) * FILLED_BLOCK_BYTES
            + tiers * TIER_BLOCK_BYTES
            + waiting_tokens / block_size * HASH_BYTES
    }

    /// Takes sizes from `deployment` and vLLM's defaults for the rest: prefix caching, chunked prefill and asynchronous
    /// scheduling on, first come first served. Use [`EngineConfig::with_capacity`] for blocks of the memory equation.
    pub fn new(deployment: &Deployment, max_model_len: u32, num_gpu_blocks: u32) -> Self {
        EngineConfig {
            max_num_seqs: deployment.max_num_seqs,
            max_num_batched_tokens: deployment.max_num_batched_tokens,
            max_model_len,
            block_size: deployment.block_size,
            state_blocks_per_request: 0,
            window_share: 0.0,
            window_blocks: 0,
            num_gpu_blocks,
            scheduler: SchedulerOptions::default(),
            pipeline_parallel_size: deployment.pipeline_parallel_size,
            rules: EngineRules::Vllm,
            speculation: None,
            kv_offload: None,
        }
    }

    /// [`EngineConfig::new`] with the blocks, their size and the longest context of the memory equation. Layers with a state have larger
    /// blocks than the deployment asks for, and take some of them per request.
    pub fn with_capacity(deployment: &Deployment, capacity: &KvCapacity) -> Self {
        let max_model_len = u32::try_from(capacity.max_model_len).unwrap_or(u32::MAX);
        EngineConfig {
            block_size: capacity.block_size,
            state_blocks_per_request: capacity.state_blocks_per_request,
            window_share: capacity.window_share,
            window_blocks: capacity.window_blocks,
            ..EngineConfig::new(deployment, max_model_len, capacity.pool_blocks)
        }
    }

    /// Whether clients get each token by itself: no drafts are verified, and none is held back.
    pub fn tokens_come_alone(&self) -> bool {
        self.speculation.is_none() && self.scheduler.stream_interval <= 1
    }

    /// Returns the blocks of requests for their states and sliding windows.
    pub(super) fn other_blocks(&self) -> OtherBlocks {
        OtherBlocks {
            states: self.state_blocks_per_request,
            window_share: self.window_share,
            window_blocks: self.window_blocks,
            block_size: self.block_size.max(1),
        }
    }

    /// Number of drafts that a decode verifies; 0 without speculative decoding.
    pub fn num_draft_tokens(&self) -> u32 {
        self.speculation.as_ref().map_or(0, Speculation::num_draft_tokens)
    }

    /// Lowers the longest context to what the blocks hold, and says so if it was longer.
    pub(super) fn shorten_context(&mut self) -> Option<String> {
        let states = self.other_blocks().of(self.max_model_len);
        let held = u64::from(self.usable_blocks().saturating_sub(states)) * u64::from(self.block_size);
        let held = u32::try_from(held).ok().filter(|held| (1..self.max_model_len).contains(held))?;
        let longest = std::mem::replace(&mut self.max_model_len, held);
        Some(format!(
            "the KV cache holds {held} tokens, less than the longest context of {longest}: longer requests are refused"
        ))
    }

    /// Number of blocks that requests can use: all but the reserved one.
    pub fn usable_blocks(&self) -> u32 {
        self.num_gpu_blocks.saturating_sub(1)
    }

    /// Checks the configuration and reports all problems at once.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if a size is zero, if a prompt of `max_model_len` could never be scheduled without chunks, if there
    /// are more than 16,777,216 blocks, or if the blocks hold less than one request of `max_model_len`.
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
        let cuts_or_refuses = self.scheduler.enable_chunked_prefill || self.rules.refuses_long_prompts();
        if !cuts_or_refuses && self.max_num_batched_tokens < self.max_model_len {
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
            let states = self.other_blocks().of(self.max_model_len);
            let needed = self.max_model_len.div_ceil(self.block_size).saturating_add(states);
            if needed > self.usable_blocks() {
                let held = u64::from(self.usable_blocks().saturating_sub(states)) * u64::from(self.block_size);
                problems.push(format!(
                    "num_gpu_blocks = {} holds {held} tokens, less than one request of max_model_len = {}: give at least {} blocks, or max_model_len at most {held}",
                    self.num_gpu_blocks,
                    self.max_model_len,
                    needed + 1
                ));
            }
        }
        problems.extend(self.speculation.iter().flat_map(Speculation::problems));
        problems.extend(self.offload_problems());
        problems.extend(self.rules.problems(self));
        if problems.is_empty() { Ok(()) } else { Err(Error::invalid("engine", problems)) }
    }

    fn offload_problems(&self) -> Vec<String> {
        let Some(offload) = &self.kv_offload else { return Vec::new() };
        let mut problems = offload.problems();
        let unsupported = [
            (!self.scheduler.enable_prefix_caching, "enable_prefix_caching = false"),
            (self.pipeline_parallel_size > 1, "pipeline_parallel_size above 1"),
            (self.speculation.is_some(), "speculative decoding"),
            (self.state_blocks_per_request > 0, "a model whose layers keep a state"),
        ];
        let named = unsupported.iter().filter(|(is_set, _)| *is_set);
        problems.extend(named.map(|(_, what)| {
            format!("KV blocks on the host are not modelled together with {what}: leave one of them out")
        }));
        problems
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
    fn blocks_of_a_requests_states_count_beside_those_of_its_tokens() {
        // 4,096 tokens are 256 blocks of 16, one more is the engine's own.
        assert!(problems(|config| (config.state_blocks_per_request, config.num_gpu_blocks) = (3, 260)).is_empty());
        let short = problems(|config| config.state_blocks_per_request = 3);
        assert!(short.contains("holds 4048 tokens") && short.contains("at least 260 blocks"), "{short}");
    }

    #[test]
    fn blocks_for_one_longest_request_and_the_engines_own_are_enough() {
        assert_eq!(problems(|_| ()), "");
        let short = problems(|config| config.num_gpu_blocks = 256);
        assert!(short.contains("holds 4080 tokens") && short.contains("at least 257 blocks"), "{short}");
    }

    #[test]
    fn a_configuration_is_read_back_and_no_key_is_unknown_or_missing() {
        let config = EngineConfig::new(&Deployment::default(), 4096, 257);
        let json = serde_json::to_value(&config).unwrap();
        assert_eq!(serde_json::from_value::<EngineConfig>(json.clone()).unwrap(), config);
        let fault = |change: fn(&mut serde_json::Map<String, serde_json::Value>)| {
            let mut json = json.clone();
            change(json.as_object_mut().unwrap());
            serde_json::from_value::<EngineConfig>(json).unwrap_err().to_string()
        };
        let unknown = fault(|json| drop(json.insert("async_schedulin".to_owned(), true.into())));
        assert!(unknown.contains("unknown field `async_schedulin`"), "{unknown}");
        let missing = fault(|json| drop(json.remove("async_scheduling")));
        assert!(missing.contains("missing field `async_scheduling`"), "{missing}");
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
        let tight = |config: &mut EngineConfig| {
            (config.scheduler.enable_chunked_prefill, config.max_num_batched_tokens) = (false, 4095)
        };
        assert!(problems(tight).contains("without chunked prefill"));
        assert_eq!(problems(|config| config.scheduler.enable_chunked_prefill = false), "");
    }
}
