//! The engine whose rules put steps together.

use serde::{Deserialize, Serialize};

use super::config::EngineConfig;
use super::sglang_options::SglangOptions;
use super::trtllm_options::TrtllmOptions;

/// The engine whose rules put steps together, with the arguments that only its scheduler has.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum EngineRules {
    /// vLLM: prompts and decodes share steps, requests that run come first, and none is reserved what it will write.
    #[default]
    Vllm,
    /// SGLang: prompts come first, in steps of their own.
    Sglang(SglangOptions),
    /// TensorRT-LLM: prompts and decodes share steps, and a request is admitted once its blocks to the end are free.
    Trtllm(TrtllmOptions),
}

impl EngineRules {
    /// Whether these are vLLM's.
    pub fn is_vllm(&self) -> bool {
        matches!(self, EngineRules::Vllm)
    }

    /// Whether a prompt that could never be scheduled is refused when it comes, so that it need not be ruled out before.
    pub(super) fn refuses_long_prompts(&self) -> bool {
        matches!(self, EngineRules::Trtllm(_))
    }

    /// The engine's name in messages.
    fn name(&self) -> &'static str {
        match self {
            EngineRules::Vllm => "vLLM",
            EngineRules::Sglang(_) => "SGLang",
            EngineRules::Trtllm(_) => "TensorRT-LLM",
        }
    }

    /// What is wrong with the arguments of the engine's own scheduler.
    pub(super) fn problems(&self, config: &EngineConfig) -> Vec<String> {
        let mut problems = match self {
            EngineRules::Vllm => return Vec::new(),
            EngineRules::Sglang(options) => options.problems(config.block_size),
            EngineRules::Trtllm(options) => options.problems(config),
        };
        let unsupported = [
            (config.kv_offload.is_some(), "KV blocks on the host"),
            (config.pipeline_parallel_size > 1, "pipeline stages"),
        ];
        let named = unsupported.iter().filter(|(is_set, _)| *is_set);
        let drafts = config.num_draft_tokens();
        if matches!(self, EngineRules::Trtllm(_)) && config.max_num_batched_tokens <= drafts {
            problems.push(format!(
                "max_num_batched_tokens = {} has no room for a token and its {drafts} drafts: give at least {}",
                config.max_num_batched_tokens,
                drafts + 1
            ));
        }
        problems
            .extend(named.map(|(_, what)| format!("{}'s scheduler is not modelled together with {what}", self.name())));
        problems
    }
}
