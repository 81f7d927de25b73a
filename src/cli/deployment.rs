//! vLLM's engine arguments as flags of this command, with vLLM's names and defaults.

use clap::{Args, ValueEnum};
use ridgepoint::{DType, Deployment};

/// Flags that say how a model is spread over GPUs and stored there.
#[derive(Debug, Args)]
pub struct ParallelArgs {
    /// GPUs that share every layer's matrices
    #[arg(long, visible_alias = "tp", value_name = "N", allow_negative_numbers = true, default_value_t = 1, help_heading = DEPLOYMENT)]
    tensor_parallel_size: u32,
    /// Stages that share the layers
    #[arg(long, visible_alias = "pp", value_name = "N", allow_negative_numbers = true, default_value_t = 1, help_heading = DEPLOYMENT)]
    pipeline_parallel_size: u32,
    /// Replicas of the attention part; the batch is that of one of them
    #[arg(long, visible_alias = "dp", value_name = "N", allow_negative_numbers = true, default_value_t = 1, help_heading = DEPLOYMENT)]
    data_parallel_size: u32,
    /// Whole experts per GPU instead of a slice of each
    #[arg(long, visible_alias = "ep", help_heading = DEPLOYMENT)]
    enable_expert_parallel: bool,
    /// Number format of the KV cache; auto is what the checkpoint asks for, else the model's own
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = KvCacheDtype::Auto, help_heading = DEPLOYMENT)]
    kv_cache_dtype: KvCacheDtype,
}

const DEPLOYMENT: &str = "Deployment (vLLM's engine arguments)";

/// All flags of a deployment.
#[derive(Debug, Args)]
pub struct DeploymentArgs {
    #[command(flatten)]
    parallel: ParallelArgs,
    /// Most requests in a step; also limits the CUDA graph sizes
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 256, help_heading = DEPLOYMENT)]
    max_num_seqs: u32,
    /// Most tokens in a step
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 8192, help_heading = DEPLOYMENT)]
    max_num_batched_tokens: u32,
    /// Longest context of a request, tokens [default: the model's own limit]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    max_model_len: Option<u32>,
    /// Share of device memory that the engine may use
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = 0.9, help_heading = DEPLOYMENT)]
    gpu_memory_utilization: f64,
    /// Tokens of a KV block
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 16, help_heading = DEPLOYMENT)]
    block_size: u32,
    /// No CUDA graphs: every kernel is launched from the host
    #[arg(long, help_heading = DEPLOYMENT)]
    enforce_eager: bool,
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

impl ParallelArgs {
    /// A deployment that has these settings and vLLM's defaults.
    pub fn deployment(&self) -> Deployment {
        Deployment {
            tensor_parallel_size: self.tensor_parallel_size,
            pipeline_parallel_size: self.pipeline_parallel_size,
            data_parallel_size: self.data_parallel_size,
            enable_expert_parallel: self.enable_expert_parallel,
            kv_cache_dtype: match self.kv_cache_dtype {
                KvCacheDtype::Auto => None,
                KvCacheDtype::Fp8 | KvCacheDtype::Fp8E4m3 | KvCacheDtype::Fp8E5m2 => Some(DType::Fp8),
                KvCacheDtype::Bfloat16 => Some(DType::Bfloat16),
            },
            ..Deployment::default()
        }
    }
}

impl DeploymentArgs {
    /// The deployment, not yet checked.
    pub fn deployment(&self) -> Deployment {
        Deployment {
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            max_model_len: self.max_model_len,
            gpu_memory_utilization: self.gpu_memory_utilization,
            block_size: self.block_size,
            enforce_eager: self.enforce_eager,
            ..self.parallel.deployment()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn flags_that_are_left_out_have_the_library_defaults() {
        let line = ["ridgepoint", "predict-step", "--model", "m", "--hardware", "h", "--prefill", "1"];
        let Command::PredictStep(args) = Cli::parse_from(line).command else { panic!("predict-step was asked for") };
        assert_eq!(args.deployment.deployment(), Deployment::default());
    }
}
