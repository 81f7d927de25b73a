//! vLLM's engine arguments as flags, with vLLM's names and defaults, and how a deployment reads in a report.

use clap::Args;
use clap::builder::TypedValueParser;
use ridgepoint::hardware::InterconnectKind;
use ridgepoint::{DType, Deployment, GenerationConfig, Hardware, Model};

use crate::common::one_of;
use crate::text::{count, quantity};

const DEPLOYMENT: &str = "Deployment (vLLM's engine arguments)";

/// How a model is spread over GPUs and stored there.
#[derive(Debug, Args)]
pub struct ParallelArgs {
    /// GPUs that share every layer's matrices [default: 1]
    #[arg(long, visible_alias = "tp", value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    pub tensor_parallel_size: Option<u32>,
    /// Pipeline stages that share the layers [default: 1]
    #[arg(long, visible_alias = "pp", value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    pipeline_parallel_size: Option<u32>,
    /// Replicas of the attention part; a batch is that of one replica [default: 1]
    #[arg(long, visible_alias = "dp", value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    data_parallel_size: Option<u32>,
    /// Place whole experts on each GPU instead of a slice of every expert
    #[arg(long, visible_alias = "ep", help_heading = DEPLOYMENT)]
    enable_expert_parallel: bool,
    /// Number format of the KV cache; auto takes the checkpoint's, else the model's own [default: auto]
    #[arg(long, value_name = "FORMAT", value_parser = kv_cache_dtype(), help_heading = DEPLOYMENT)]
    kv_cache_dtype: Option<KvCacheDtype>,
}

/// Number format of the KV cache; `None` stands for auto.
type KvCacheDtype = Option<DType>;

fn kv_cache_dtype() -> impl TypedValueParser<Value = KvCacheDtype> {
    one_of([
        ("auto", "", None),
        ("fp8", "", Some(DType::Fp8)),
        ("fp8_e4m3", "", Some(DType::Fp8)),
        ("fp8_e5m2", "", Some(DType::Fp8)),
        ("bfloat16", "", Some(DType::Bfloat16)),
        ("float16", "", Some(DType::Float16)),
    ])
}

/// All flags of a deployment.
#[derive(Debug, Args)]
pub struct DeploymentArgs {
    #[command(flatten)]
    pub parallel: ParallelArgs,
    /// Most requests in a step; also limits the CUDA graph sizes [default: 256]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    pub max_num_seqs: Option<u32>,
    /// Most tokens in a step [default: 8192]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    pub max_num_batched_tokens: Option<u32>,
    /// Longest context of a request, tokens [default: the model's own limit]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    max_model_len: Option<u32>,
    /// Share of GPU memory that the engine may use [default: 0.9]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    gpu_memory_utilization: Option<f64>,
    /// Tokens of a KV block [default: 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    block_size: Option<u32>,
    /// Launch every kernel from the host, without CUDA graphs
    #[arg(long, help_heading = DEPLOYMENT)]
    enforce_eager: bool,
    /// Sampling parameters of requests that set none [default: auto]
    #[arg(long, value_name = "SOURCE", value_parser = generation_config(), help_heading = DEPLOYMENT)]
    generation_config: Option<GenerationConfig>,
}

fn generation_config() -> impl TypedValueParser<Value = GenerationConfig> {
    one_of([
        ("auto", "Those of the model's generation_config.json", GenerationConfig::Auto),
        ("vllm", "vLLM's neutral ones", GenerationConfig::Vllm),
    ])
}

impl ParallelArgs {
    /// The deployment with these settings and vLLM's defaults.
    pub fn deployment(&self) -> Deployment {
        self.over(Deployment::default())
    }

    fn over(&self, base: Deployment) -> Deployment {
        Deployment {
            tensor_parallel_size: self.tensor_parallel_size.unwrap_or(base.tensor_parallel_size),
            pipeline_parallel_size: self.pipeline_parallel_size.unwrap_or(base.pipeline_parallel_size),
            data_parallel_size: self.data_parallel_size.unwrap_or(base.data_parallel_size),
            enable_expert_parallel: self.enable_expert_parallel || base.enable_expert_parallel,
            kv_cache_dtype: self.kv_cache_dtype.unwrap_or(base.kv_cache_dtype),
            ..base
        }
    }
}

impl DeploymentArgs {
    /// The deployment with these settings and vLLM's defaults, not yet checked.
    pub fn deployment(&self) -> Deployment {
        self.over(Deployment::default())
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
            generation_config: self.generation_config.unwrap_or(base.generation_config),
            ..base
        }
    }
}

/// `llama-3.1-70b on 4 NVIDIA H100 SXM5, tensor_parallel_size 4`: model, GPUs, and the settings that differ from vLLM's defaults.
pub fn served(model: &Model, hardware: &Hardware, deployment: &Deployment) -> String {
    let (of, default) = (deployment, Deployment::default());
    let gpus = [of.tensor_parallel_size, of.pipeline_parallel_size, of.data_parallel_size];
    let gpus: u64 = gpus.into_iter().map(u64::from).product();
    let number = if gpus == 1 { "one".to_owned() } else { count(gpus) };
    let mut text = format!("{} on {number} {}", model.name, hardware.display_name);
    for (key, value, usual) in [
        ("tensor_parallel_size", of.tensor_parallel_size, default.tensor_parallel_size),
        ("pipeline_parallel_size", of.pipeline_parallel_size, default.pipeline_parallel_size),
        ("data_parallel_size", of.data_parallel_size, default.data_parallel_size),
        ("max_num_seqs", of.max_num_seqs, default.max_num_seqs),
        ("max_num_batched_tokens", of.max_num_batched_tokens, default.max_num_batched_tokens),
    ] {
        if value != usual {
            text.push_str(&format!(", {key} {value}"));
        }
    }
    if of.enable_expert_parallel {
        text.push_str(", experts in parallel");
    }
    if let Some(dtype) = of.kv_cache_dtype {
        text.push_str(&format!(", {dtype} KV cache"));
    }
    if let Some(tokens) = of.max_model_len {
        text.push_str(&format!(", max_model_len {tokens}"));
    }
    if of.tensor_parallel_size > 1 {
        text.push_str(&format!(", over {}", link(hardware)));
    }
    text
}

/// `NVLink 450.0 GB/s`: the rate of one direction.
pub fn link(hardware: &Hardware) -> String {
    let link = hardware.interconnect;
    let kind = match link.kind {
        InterconnectKind::Nvlink => "NVLink",
        InterconnectKind::Pcie => "PCIe",
    };
    format!("{kind} {}", quantity(link.unidirectional_bytes_per_s, "B/s"))
}
