//! How a deployment splits a model: the sizes of its parallel groups, and the share of a layer that one rank holds.

use crate::deployment::Deployment;
use crate::dtype::DType;
use crate::model::Model;

use super::communication::RankGroup;
use super::moe::local_experts;

/// Sizes of the parallel groups, at least 1 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranks {
    /// Ranks that share every matrix.
    pub tensor: u64,
    /// Stages that share the layers.
    pub pipeline: u64,
    /// Replicas of the attention part.
    pub data: u64,
    /// Whole experts per rank.
    pub expert_parallel: bool,
}

impl Ranks {
    pub fn new(deployment: &Deployment) -> Self {
        let tensor = u64::from(deployment.tensor_parallel_size.max(1));
        let data = u64::from(deployment.data_parallel_size.max(1));
        Ranks {
            tensor,
            pipeline: u64::from(deployment.pipeline_parallel_size.max(1)),
            data,
            // On a single rank vLLM ignores the flag.
            expert_parallel: deployment.enable_expert_parallel && tensor * data > 1,
        }
    }

    /// The ranks of a tensor-parallel group.
    pub fn tensor_group(self) -> RankGroup {
        RankGroup { num_ranks: self.tensor, stride: 1 }
    }

    /// The same rank of all pipeline stages.
    pub fn pipeline_group(self) -> RankGroup {
        RankGroup { num_ranks: self.pipeline, stride: self.tensor }
    }

    /// The same rank of all data-parallel replicas.
    pub fn data_group(self) -> RankGroup {
        RankGroup { num_ranks: self.data, stride: self.tensor * self.pipeline }
    }

    /// Expert-parallel ranks: the tensor-parallel ranks of one pipeline stage in every replica. With several stages, an even stride is
    /// assumed.
    pub fn expert_group(self) -> RankGroup {
        RankGroup { num_ranks: self.expert_ranks(), stride: self.pipeline }
    }

    /// Ranks over which a layer's experts are spread or sliced.
    pub fn expert_ranks(self) -> u64 {
        self.tensor * self.data
    }

    /// Ranks over which each expert's width is sliced.
    pub fn expert_slices(self) -> u64 {
        if self.expert_parallel { 1 } else { self.expert_ranks() }
    }

    /// Experts of `num_experts` on the fullest rank.
    pub fn local_experts(self, num_experts: u64) -> u64 {
        if self.expert_parallel { local_experts(num_experts, self.expert_ranks()) } else { num_experts }
    }
}

/// `model_type`s whose tensor-parallel ranks share the tokens around experts (sequence-parallel MoE).
///
/// # Source
/// vLLM 0.15.1: `ParallelConfig.use_sequence_parallel_moe` (`vllm/config/parallel.py`), and the files of `vllm/model_executor/models` that
/// ask it: deepseek_v2, gpt_oss, llama4, nemotron_h, qwen3_moe, qwen3_next.
const SHARES_TOKENS: [&str; 15] = [
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm_moe_dsa",
    "gpt_oss",
    "kimi_k2",
    "llama4",
    "llama4_text",
    "nemotron_h",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_vl_moe",
    "qwen3_vl_moe_text",
];

/// Sizes and formats that the layers of a deployed model share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub hidden: u64,
    pub activation: DType,
    pub kv_dtype: DType,
    pub ranks: Ranks,
    /// All-reduces are NCCL's.
    pub is_ring: bool,
    /// Whether each tensor-parallel rank takes a share of the tokens to the experts, instead of all of them.
    pub shares_tokens: bool,
}

impl Context {
    pub fn new(model: &Model, deployment: &Deployment) -> Self {
        let ranks = Ranks::new(deployment);
        Context {
            hidden: model.hidden_size,
            activation: model.dtype,
            kv_dtype: deployment.kv_cache_dtype.or(model.kv_cache_dtype).unwrap_or(model.dtype),
            ranks,
            shares_tokens: SHARES_TOKENS.contains(&model.model_type.as_str())
                && ranks.expert_parallel
                && ranks.tensor > 1
                && ranks.data > 1,
            is_ring: deployment.disable_custom_all_reduce,
        }
    }
}
