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

/// Sizes and formats that the layers of a deployed model share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub hidden: u64,
    pub activation: DType,
    pub kv_dtype: DType,
    pub ranks: Ranks,
    /// All-reduces are NCCL's.
    pub is_ring: bool,
}

impl Context {
    pub fn new(model: &Model, deployment: &Deployment) -> Self {
        Context {
            hidden: model.hidden_size,
            activation: model.dtype,
            kv_dtype: deployment.kv_cache_dtype.or(model.kv_cache_dtype).unwrap_or(model.dtype),
            ranks: Ranks::new(deployment),
            is_ring: deployment.disable_custom_all_reduce,
        }
    }
}
