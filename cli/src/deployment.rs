//! vLLM's engine arguments as flags of this command, with vLLM's names and defaults.

use clap::{Args, ValueEnum};
use ridgepoint::{DType, Deployment, GenerationConfig};

/// Flags that say how a model is spread over GPUs and stored there.
#[derive(Debug, Args)]
pub struct ParallelArgs {
    /// GPUs that share every layer's matrices [default: 1]
    #[arg(long, visible_alias = "tp", value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    tensor_parallel_size: Option<u32>,
    /// Stages that share the layers [default: 1]
    #[arg(long, visible_alias = "pp", value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    pipeline_parallel_size: Option<u32>,
    /// Replicas of the attention part; the batch is that of one of them [default: 1]
    #[arg(long, visible_alias = "dp", value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    data_parallel_size: Option<u32>,
    /// Whole experts per GPU instead of a slice of each
    #[arg(long, visible_alias = "ep", help_heading = DEPLOYMENT)]
    enable_expert_parallel: bool,
    /// Number format of the KV cache; auto is what the checkpoint asks for, else the model's own [default: auto]
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = DEPLOYMENT)]
    kv_cache_dtype: Option<KvCacheDtype>,
}

const DEPLOYMENT: &str = "Deployment (vLLM's engine arguments)";

/// All flags of a deployment.
#[derive(Debug, Args)]
pub struct DeploymentArgs {
    #[command(flatten)]
    parallel: ParallelArgs,
    /// Most requests in a step; also limits the CUDA graph sizes [default: 256]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    max_num_seqs: Option<u32>,
    /// Most tokens in a step [default: 8192]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    max_num_batched_tokens: Option<u32>,
    /// Longest context of a request, tokens [default: the model's own limit]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    max_model_len: Option<u32>,
    /// Share of device memory that the engine may use [default: 0.9]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    gpu_memory_utilization: Option<f64>,
    /// Tokens of a KV block [default: 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    block_size: Option<u32>,
    /// No CUDA graphs: every kernel is launched from the host
    #[arg(long, help_heading = DEPLOYMENT)]
    enforce_eager: bool,
    /// Sampling parameters of requests that bring none: auto is the model's generation_config.json, vllm is neutral [default: auto]
    #[arg(long, value_name = "SOURCE", value_enum, help_heading = DEPLOYMENT)]
    generation_config: Option<SamplingSource>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KvCacheDtype {
    #[value(name = "auto")]
    Auto,
    #[value(name = "fp8")]
    Fp8,
    #[value(name = "fp8_e4m3")]
    Fp8E4m3,
    #[value(name = "fp8_e5m2")]
    Fp8E5m2,
    #[value(name = "bfloat16")]
    Bfloat16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SamplingSource {
    Auto,
    Vllm,
}

impl ParallelArgs {
    /// A deployment that has these settings and vLLM's defaults.
    pub fn deployment(&self) -> Deployment {
        self.over(Deployment::default())
    }

    /// `base` with the settings that were given.
    fn over(&self, base: Deployment) -> Deployment {
        Deployment {
            tensor_parallel_size: self.tensor_parallel_size.unwrap_or(base.tensor_parallel_size),
            pipeline_parallel_size: self.pipeline_parallel_size.unwrap_or(base.pipeline_parallel_size),
            data_parallel_size: self.data_parallel_size.unwrap_or(base.data_parallel_size),
            enable_expert_parallel: self.enable_expert_parallel || base.enable_expert_parallel,
            kv_cache_dtype: match self.kv_cache_dtype {
                None => base.kv_cache_dtype,
                Some(KvCacheDtype::Auto) => None,
                Some(KvCacheDtype::Fp8 | KvCacheDtype::Fp8E4m3 | KvCacheDtype::Fp8E5m2) => Some(DType::Fp8),
                Some(KvCacheDtype::Bfloat16) => Some(DType::Bfloat16),
            },
            ..base
        }
    }
}

impl DeploymentArgs {
    /// The deployment, not yet checked.
    pub fn deployment(&self) -> Deployment {
        self.over(Deployment::default())
    }

    /// Tensor parallelism, most requests and most tokens of a step, where given.
    pub fn sizes(&self) -> (Option<u32>, Option<u32>, Option<u32>) {
        (self.parallel.tensor_parallel_size, self.max_num_seqs, self.max_num_batched_tokens)
    }

    /// `base` with the settings that were given, not yet checked.
    pub fn over(&self, base: Deployment) -> Deployment {
        let base = self.parallel.over(base);
        Deployment {
            max_num_seqs: self.max_num_seqs.unwrap_or(base.max_num_seqs),
            max_num_batched_tokens: self.max_num_batched_tokens.unwrap_or(base.max_num_batched_tokens),
            max_model_len: self.max_model_len.or(base.max_model_len),
            gpu_memory_utilization: self.gpu_memory_utilization.unwrap_or(base.gpu_memory_utilization),
            block_size: self.block_size.unwrap_or(base.block_size),
            enforce_eager: self.enforce_eager || base.enforce_eager,
            generation_config: match self.generation_config {
                None => base.generation_config,
                Some(SamplingSource::Auto) => GenerationConfig::Auto,
                Some(SamplingSource::Vllm) => GenerationConfig::Vllm,
            },
            ..base
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn flags_that_are_left_out_have_the_library_defaults() {
        let line = ["ridgepoint", "predict-step", "--model", "m", "--hardware", "h", "--prefill", "1"];
        let Command::PredictStep(args) = Cli::parse_from(line).command else { panic!("predict-step was asked for") };
        assert_eq!(args.deployment.deployment(), Deployment::default());
    }
}
