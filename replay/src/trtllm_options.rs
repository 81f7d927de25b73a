//! The arguments of TensorRT-LLM's scheduler.

use ridgepoint::arguments;
use ridgepoint::arguments::{Engines, Kind, Section};
use ridgepoint::input::NumberRange;
use serde::{Deserialize, Serialize};

use super::config::EngineConfig;

/// Which requests the KV cache has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CapacitySchedulerPolicy {
    /// A request is admitted once all blocks that it may ever need are free. None is paused.
    #[default]
    GuaranteedNoEvict,
    /// A request is admitted once the blocks of its prompt are free. The one that started last is paused where blocks run out.
    MaxUtilization,
    /// As without evictions, and only when every request before has ended.
    StaticBatch,
}

/// How prompts share the tokens of a step where they are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ContextChunkingPolicy {
    /// Each gets as much as is left, in whole blocks unless it is the rest of its prompt.
    #[default]
    FirstComeFirstServed,
    /// Each gets a block in turn.
    EqualProgress,
}

arguments! {
    /// Arguments of TensorRT-LLM's scheduler under its names, with its defaults.
    ///
    /// # Source
    /// `LlmArgs` (`tensorrt_llm/llmapi/llm_args.py`, 1.2).
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct TrtllmOptions,
    /// The rows of [`TrtllmOptions`].
    TRTLLM_SCHEDULER_ARGUMENTS of Section::Scheduler;

    capacity_scheduler_policy: CapacitySchedulerPolicy = CapacitySchedulerPolicy::GuaranteedNoEvict, "Admission: only what fits to its end, what fits one step with pauses, or batches that end before the next starts",
        Kind::Name(&["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"]), engines(Engines::TRTLLM), value("POLICY"), within("scheduler_config"), alias(&["scheduler_config.capacity_scheduler_policy"]), default("GUARANTEED_NO_EVICT");
    context_chunking_policy: ContextChunkingPolicy = ContextChunkingPolicy::FirstComeFirstServed, "Prompts that share what a step has left: in their order, or a block each in turn",
        Kind::Name(&["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"]), engines(Engines::TRTLLM), value("POLICY"), within("scheduler_config"), alias(&["scheduler_config.context_chunking_policy"]), default("FIRST_COME_FIRST_SERVED");
    batch_wait_timeout_iters: u32 = 0, "Most steps for which prompts wait beside decodes until they fill a step",
        Kind::Whole(0, u32::MAX as u64), engines(Engines::TRTLLM), default("0");
    batch_wait_max_tokens_ratio: f64 = 0.0, "Share of max_num_tokens from which on prompts do not wait",
        Kind::Number(NumberRange::between(0.0, 1.0, "")), must_be("a share of max_num_tokens, from 0 to 1"), engines(Engines::TRTLLM), value("SHARE"), default("0");
}

impl TrtllmOptions {
    /// What is wrong with them in an engine.
    pub(super) fn problems(&self, config: &EngineConfig) -> Vec<String> {
        let mut problems = Vec::new();
        if !(0.0..=1.0).contains(&self.batch_wait_max_tokens_ratio) {
            problems.push(format!(
                "batch_wait_max_tokens_ratio = {} must be between 0 and 1",
                self.batch_wait_max_tokens_ratio
            ));
        }
        if config.scheduler.enable_chunked_prefill && config.max_num_batched_tokens < config.block_size {
            problems.push(format!(
                "max_num_batched_tokens = {} is less than block_size = {}: prompts are cut into whole blocks, so that one could never be scheduled",
                config.max_num_batched_tokens, config.block_size
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_names_of_the_engines_file() {
        let json = r#"{"capacity_scheduler_policy":"MAX_UTILIZATION","context_chunking_policy":"EQUAL_PROGRESS"}"#;
        let options: TrtllmOptions = serde_json::from_str(json).unwrap();
        let expected = TrtllmOptions {
            capacity_scheduler_policy: CapacitySchedulerPolicy::MaxUtilization,
            context_chunking_policy: ContextChunkingPolicy::EqualProgress,
            ..TrtllmOptions::default()
        };
        assert_eq!(options, expected);
        let json = serde_json::to_string(&TrtllmOptions::default()).unwrap();
        assert!(json.contains("GUARANTEED_NO_EVICT") && json.contains("FIRST_COME_FIRST_SERVED"), "{json}");
    }

    #[test]
    fn a_step_holds_a_block_and_a_share_is_one() {
        let mut config = EngineConfig::new(&ridgepoint::Deployment::default(), 4096, 1000);
        assert_eq!(TrtllmOptions::default().problems(&config), Vec::<String>::new());
        config.max_num_batched_tokens = config.block_size - 1;
        let all = TrtllmOptions { batch_wait_max_tokens_ratio: f64::NAN, ..TrtllmOptions::default() }.problems(&config);
        assert!(all[0].contains("= NaN") && all[1].contains("less than block_size"), "{all:?}");
        config.scheduler.enable_chunked_prefill = false;
        assert_eq!(TrtllmOptions::default().problems(&config), Vec::<String>::new());
    }
}
