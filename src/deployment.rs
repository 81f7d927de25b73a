//! How a model is served: vLLM's flags that change what a rank does in a step.
//! Uses `dtype` and `error`; the relations to a model (divisible heads, experts) are checked where both are known.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::error::{Error, Result};

/// vLLM's engine arguments, under their own names and with their own defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Deployment {
    /// Ranks that share every layer's matrices.
    pub tensor_parallel_size: u32,
    /// Stages that share the layers.
    pub pipeline_parallel_size: u32,
    /// Replicas of the attention part; with experts in parallel the experts are spread over all of them.
    pub data_parallel_size: u32,
    /// Whole experts per rank instead of slices of each.
    pub enable_expert_parallel: bool,
    /// Most requests in a step.
    pub max_num_seqs: u32,
    /// Most tokens in a step.
    pub max_num_batched_tokens: u32,
    /// Longest context; `None` takes the model's own limit.
    pub max_model_len: Option<u32>,
    /// Share of device memory that the engine may use.
    pub gpu_memory_utilization: f64,
    /// KV cache format; `None` is vLLM's `auto`: the checkpoint's scheme, else the model's dtype.
    pub kv_cache_dtype: Option<DType>,
    /// Tokens of a KV block.
    pub block_size: u32,
    /// No CUDA graphs: every kernel is launched from the host.
    pub enforce_eager: bool,
    /// Sampling parameters of requests that bring none.
    pub generation_config: GenerationConfig,
}

/// Where the server's default sampling parameters come from; vLLM's third choice, a folder, is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GenerationConfig {
    /// The model's `generation_config.json`.
    #[default]
    Auto,
    /// vLLM's own, which are neutral: no truncation, no penalties.
    Vllm,
}

impl Default for Deployment {
    fn default() -> Self {
        Deployment {
            tensor_parallel_size: 1,
            pipeline_parallel_size: 1,
            data_parallel_size: 1,
            enable_expert_parallel: false,
            max_num_seqs: 256,
            max_num_batched_tokens: 8192,
            max_model_len: None,
            gpu_memory_utilization: 0.9,
            kv_cache_dtype: None,
            block_size: 16,
            enforce_eager: false,
            generation_config: GenerationConfig::Auto,
        }
    }
}

impl Deployment {
    /// A deployment on `tensor_parallel_size` GPUs, everything else as vLLM has it by default.
    pub fn tensor_parallel(tensor_parallel_size: u32) -> Self {
        Deployment { tensor_parallel_size, ..Deployment::default() }
    }

    /// Checks what can be checked without a model; all problems are reported at once.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` where a size is zero or a share is outside (0, 1].
    pub fn validate(&self) -> Result<()> {
        let sizes = [
            ("tensor_parallel_size", self.tensor_parallel_size),
            ("pipeline_parallel_size", self.pipeline_parallel_size),
            ("data_parallel_size", self.data_parallel_size),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("block_size", self.block_size),
            ("max_model_len", self.max_model_len.unwrap_or(1)),
        ];
        let mut problems: Vec<String> = sizes
            .iter()
            .filter(|(_, value)| *value == 0)
            .map(|(key, _)| format!("{key} = 0 must be at least 1"))
            .collect();
        let parallel = sizes[..3].iter().fold(1, |product: u64, (_, size)| product.saturating_mul(u64::from(*size)));
        if parallel > 65_536 {
            problems.push(format!("tensor × pipeline × data parallel = {parallel} GPUs is more than 65536"));
        }
        if !(self.gpu_memory_utilization > 0.0 && self.gpu_memory_utilization <= 1.0) {
            problems.push(format!("gpu_memory_utilization = {} must be in (0, 1]", self.gpu_memory_utilization));
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::invalid("deployment", problems)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_gpus_wraps_around() {
        // 2³¹ x 2³¹ x 4 is 2⁶⁴, and 0 where it wraps.
        let sizes = Deployment {
            tensor_parallel_size: 1 << 31,
            data_parallel_size: 1 << 31,
            pipeline_parallel_size: 4,
            ..Deployment::default()
        };
        let error = sizes.validate().unwrap_err().to_string();
        assert!(error.contains("18446744073709551615 GPUs is more than 65536"), "{error}");
    }
}
