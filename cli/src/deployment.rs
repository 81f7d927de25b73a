//! vLLM's engine arguments as flags, with vLLM's names and defaults.

use clap::Args;
use ridgepoint::{Deployment, Model, Options, StepModel};
use ridgepoint_lab::served::{Served, both, fields};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::common::{Common, PredictionArgs, above_zero, at_least_zero};
use crate::outcome::Failure;

const DEPLOYMENT: &str = "Deployment (vLLM's engine arguments)";

/// How a model is spread over GPUs and stored there.
#[derive(Debug, Args, Serialize)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
pub struct ParallelArgs {
    /// GPUs that share every layer's matrices [default: 1]
    #[arg(long, visible_alias = "tp", value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    tensor_parallel_size: Option<u32>,
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
    #[arg(long, value_name = "FORMAT", value_parser = KV_CACHE_DTYPES, help_heading = DEPLOYMENT)]
    kv_cache_dtype: Option<String>,
}

const KV_CACHE_DTYPES: [&str; 6] = ["auto", "fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16", "float16"];

/// All flags of a deployment.
#[derive(Debug, Args, Serialize)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
pub struct DeploymentArgs {
    #[command(flatten)]
    #[serde(flatten)]
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
    /// Share of GPU memory that the engine may use [default: 0.9]
    #[arg(long, value_name = "SHARE", value_parser = above_zero, allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    gpu_memory_utilization: Option<f64>,
    /// GiB of each GPU's weights that stay in host memory, which leaves room for KV blocks. Kernels read them over the bus in every step
    /// [default: 0]
    #[arg(long, value_name = "GIB", value_parser = at_least_zero, allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    cpu_offload_gb: Option<f64>,
    /// Tokens of a KV block [default: 16]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    block_size: Option<u32>,
    /// Launch every kernel from the host, without CUDA graphs
    #[arg(long, help_heading = DEPLOYMENT)]
    enforce_eager: bool,
    /// Steps that replay CUDA graphs: FULL_AND_PIECEWISE, FULL, FULL_DECODE_ONLY, PIECEWISE or NONE [default: FULL_AND_PIECEWISE]
    #[arg(long, value_name = "MODE", help_heading = DEPLOYMENT)]
    cudagraph_mode: Option<String>,
    /// Numbers of tokens that graphs are captured for, ascending, as in 1,2,4,8 [default: vLLM's choice]
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',', help_heading = DEPLOYMENT)]
    cudagraph_capture_sizes: Option<Vec<u32>>,
    /// Largest number of tokens that a graph is captured for [default: twice --max-num-seqs, at most 512]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = DEPLOYMENT)]
    max_cudagraph_capture_size: Option<u32>,
    /// Attention kernels, by vLLM's name of their backend; only FLASH_ATTN's were measured
    #[arg(long, value_name = "NAME", help_heading = DEPLOYMENT)]
    attention_backend: Option<String>,
    /// Sum over tensor-parallel ranks by NCCL's ring instead of vLLM's own kernel
    #[arg(long, help_heading = DEPLOYMENT)]
    disable_custom_all_reduce: bool,
    /// Sampling parameters of requests that set none: those of generation_config.json, or vLLM's neutral ones [default: auto]
    #[arg(long, value_name = "SOURCE", value_parser = ["auto", "vllm"], help_heading = DEPLOYMENT)]
    generation_config: Option<String>,
    /// Sampling parameters in place of those, as JSON: temperature, top_p, top_k, min_p and repetition_penalty. Give what all requests of
    /// a load set themselves here, too, as in '{"temperature": 0}'; lists of requests may have columns for them
    #[arg(long, value_name = "JSON", help_heading = DEPLOYMENT)]
    override_generation_config: Option<String>,
}

/// The model, the GPU, the deployment and the options of a step model.
#[derive(Debug, Args)]
pub struct StepModelArgs {
    /// Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder
    #[arg(long, value_name = "NAME|PATH")]
    model: String,
    /// Built-in name (`ridgepoint hardware`), path of a TOML file, or FILE.json#NAME: figures over a known GPU's
    #[arg(long, value_name = "NAME|PATH")]
    hardware: String,
    #[command(flatten)]
    deployment: DeploymentArgs,
    #[command(flatten)]
    pub prediction: PredictionArgs,
}

impl StepModelArgs {
    /// Finds the model and the GPU and builds the step model. `operators_only` is that of its options.
    ///
    /// # Errors
    /// Names that are unknown, files that are at fault, a deployment that does not fit the model.
    pub fn open(&self, common: &Common, operators_only: bool) -> Result<Served, Failure> {
        let data_dir = common.data_dir();
        let found =
            both(Model::find_in(data_dir, &self.model), ridgepoint_replay::find_hardware(data_dir, &self.hardware));
        let (model, hardware) = found?;
        let deployment = deployment(&self.deployment)?;
        let options = Options { operators_only, ..self.prediction.options(common) };
        let steps = StepModel::with_options(&model, &hardware, &deployment, &options)?;
        Ok(Served { model, hardware, deployment, steps })
    }
}

/// The flags that were given, as keys and values of a server's file.
pub fn given(args: &impl Serialize) -> Map<String, Value> {
    fields(args).into_iter().filter(|(_, value)| !value.is_null() && *value != Value::Bool(false)).collect()
}

/// The deployment that flags ask for, with vLLM's defaults.
///
/// # Errors
/// Values out of range.
pub fn deployment(args: &impl Serialize) -> ridgepoint::Result<Deployment> {
    Deployment::try_from(given(args))
}
