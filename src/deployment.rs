//! How a model is served: those of vLLM's engine arguments that change what a rank does in a step. Relations to a model
//! (divisible heads, experts) are checked where both are known. Uses `dtype`, `error`, `host_speed`, `input`, `model`.

use std::collections::BTreeSet;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::arguments;
use crate::arguments::{ArgumentRows, Engines, Given, Kind, Section};
use crate::default_limits::{block_size, gpu_memory_utilization, host_speed, max_num_batched_tokens, max_num_seqs};
use crate::dtype::DType;
use crate::error::{Error, Location, Result};
use crate::host_speed::HostSpeed;
use crate::input::{Keys, Log, NumberRange, parse_json};
use crate::model::{MAX_SPECULATIVE_TOKENS, SamplingParams};

arguments! {
    /// vLLM's engine arguments, under their own names. The limits of a step are vLLM's for a GPU only in what [`Deployment::on`] returns.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct Deployment,
    /// The rows of [`Deployment`].
    DEPLOYMENT_ARGUMENTS of Section::Deployment;

    tensor_parallel_size: u32 = 1, "GPUs that share every layer's matrices",
        COUNT, alias(&["tp", "tensor_parallelism"]), default("1");
    pipeline_parallel_size: u32 = 1, "Pipeline stages that share the layers",
        COUNT, alias(&["pp", "pipeline_parallelism"]), default("1");
    data_parallel_size: u32 = 1, "Replicas of the attention part; a batch is that of one replica",
        COUNT, alias(&["dp", "data_parallelism"]), default("1");
    enable_expert_parallel: bool = false, "Place whole experts on each GPU instead of a slice of every expert",
        Kind::Switch, alias(&["ep"]);
    max_num_seqs: u32 = 256, "Most requests in a step; also limits the CUDA graph sizes",
        COUNT, default("1024 on GPUs from 70 GiB but A100, 256 on others; at most max_num_batched_tokens; 2048 under SGLang and TensorRT-LLM"), rule(max_num_seqs);
    max_num_batched_tokens: u32 = 8192, "Most tokens in a step",
        TOKENS, default("8192 on GPUs from 70 GiB but A100, 2048 on others; 16384 from 160 GiB since vLLM 0.28; 8192 under TensorRT-LLM"), rule(max_num_batched_tokens);
    #[serde(skip_serializing_if = "crate::units::is_zero")]
    num_draft_tokens: u32 = 0, "Draft tokens that each decode verifies in a step, beside its own token (speculative decoding)",
        Kind::Whole(0, MAX_SPECULATIVE_TOKENS as u64), value("K"), default("0; those of speculative_config for a server"), engines(Engines::ALL), no_flag();
    max_model_len: Option<u32> = None, "Longest context of a request, tokens",
        TOKENS, default("the model's own limit");
    gpu_memory_utilization: f64 = 0.9, "Share of GPU memory that the engine may use",
        Kind::Number(NumberRange::above_zero(1.0, "")), must_be("a share of the memory, above 0 and at most 1"), value("SHARE"), default("0.9; 0.92 since vLLM 0.20; by its own rule under SGLang"), rule(gpu_memory_utilization);
    #[serde(skip_serializing_if = "crate::units::is_zero")]
    cpu_offload_gb: f64 = 0.0, "GiB of each GPU's weights that stay in host memory, which leaves room for KV blocks. Kernels read them over the bus in every step",
        Kind::Number(NumberRange::from_zero(f64::MAX, "")), must_be(OFFLOAD), engines(Engines::VLLM.and(Engines::SGLANG)), value("GIB"), default("0");
    kv_cache_dtype: Option<DType> = None, "Number format of the KV cache; auto takes the checkpoint's, else the model's own",
        Kind::Own(kv_cache_dtype), must_be("auto, fp8, fp8_e4m3, fp8_e5m2, bfloat16 or float16"), engines(Engines::VLLM.and(Engines::SGLANG)), value("FORMAT"), default("auto");
    block_size: u32 = 16, "Tokens of a KV block",
        COUNT, default("16; 32 under TensorRT-LLM. SGLang's pages of one token are replayed in blocks of 16"), rule(block_size);
    enforce_eager: bool = false, "Launch every kernel from the host, without CUDA graphs",
        Kind::Switch;
    #[serde(skip_serializing_if = "Option::is_none")]
    cudagraph_mode: Option<CudagraphMode> = None, "Steps that replay CUDA graphs",
        Kind::Name(&["FULL_AND_PIECEWISE", "FULL", "FULL_DECODE_ONLY", "PIECEWISE", "NONE"]), value("MODE"), default("FULL_AND_PIECEWISE"), within("compilation_config");
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cudagraph_capture_sizes: Vec<u32> = Vec::new(), "Numbers of tokens that graphs are captured for, ascending, as in 1,2,4,8",
        Kind::Wholes, must_be("a list of numbers of tokens, each at least 1"), default("vLLM's choice"), within("compilation_config");
    #[serde(skip_serializing_if = "Option::is_none")]
    max_cudagraph_capture_size: Option<u32> = None, "Largest number of tokens that a graph is captured for",
        COUNT, default("twice max_num_seqs, at most 512; 128 under TensorRT-LLM, 8 to 512 by the GPU's memory under SGLang"), within("compilation_config");
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    enable_padding: bool = false, "Pad decodes to the next captured size; without it a batch of another size is launched from the host",
        Kind::Switch, engines(Engines::TRTLLM), default("false"), within("cuda_graph_config"), alias(&["cuda_graph_padding_enabled", "cuda_graph_config.enable_padding"]);
    #[serde(skip_serializing_if = "Option::is_none")]
    attention_backend: Option<AttentionBackend> = None, "Attention kernels, by vLLM's name of their backend; only FLASH_ATTN's were measured",
        Kind::Name(&["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTN_MLA", "FLASHINFER_MLA", "FLASHMLA", "CUTLASS_MLA", "TRITON_MLA"]),
        must_be("a backend of vLLM: FLASH_ATTN, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION, FLASH_ATTN_MLA, FLASHINFER_MLA, FLASHMLA, CUTLASS_MLA or TRITON_MLA"), value("NAME");
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_custom_all_reduce: bool = false, "Sum over tensor-parallel ranks by NCCL's ring instead of the engine's own kernel",
        Kind::Switch, engines(Engines::VLLM.and(Engines::SGLANG));
    generation_config: GenerationConfig = GenerationConfig::Auto, "Sampling parameters of requests that set none: those of generation_config.json, or vLLM's neutral ones",
        Kind::Name(&["auto", "vllm"]), must_be("auto or vllm: the file of another folder is not read"), value("SOURCE"), default("auto");
    #[serde(skip_serializing_if = "crate::units::is_zero")]
    override_generation_config: SamplingParams = SamplingParams::default(), "Sampling parameters in place of those, as JSON: temperature, top_p, top_k, min_p and repetition_penalty. Give what all requests of a load set themselves here, too, as in '{\"temperature\": 0}'; lists of requests may have columns for them",
        Kind::Object(sampling_params), engines(Engines::ALL);
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    language_model_only: bool = false, "Load no vision or audio tower, which leaves its memory to KV blocks",
        Kind::Switch;
    #[serde(skip_serializing_if = "HostSpeed::is_typical")]
    host_speed: HostSpeed = HostSpeed::Typical, "How fast the host's cores are, which scales its launches of kernels and the delays around steps. A correction fitted on one's own server has measured delays, which stay",
        Kind::Name(&["fast", "typical", "slow"]), engines(Engines::ALL), value("SPEED"), default("typical; slow beside an A100"), rule(host_speed);
}

/// A number of at least one.
const COUNT: Kind = Kind::Whole(1, u32::MAX as u64);
/// A number of tokens.
const TOKENS: Kind = Kind::Tokens(1, u32::MAX as u64);

/// Reads a format of the KV cache; `auto` is null.
fn kv_cache_dtype(value: &Value) -> Option<Value> {
    serde_json::to_value(DType::parse_or_auto(value.as_str()?)?).ok()
}

fn sampling_params(keys: &Keys<'_>, _: &'static str) -> Option<Value> {
    serde_json::to_value(SamplingParams::read_override(keys)).ok()
}

/// Source of the server's default sampling parameters. vLLM's third choice, a folder, is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum GenerationConfig {
    /// The model's `generation_config.json`.
    #[default]
    Auto,
    /// vLLM's neutral defaults: no truncation, no penalties.
    Vllm,
}

/// Steps that replay CUDA graphs, under vLLM's names.
///
/// # Source
/// vLLM, `CUDAGraphMode` (`vllm/config/compilation.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CudagraphMode {
    /// Decodes alone replay one graph; steps with a prefill chunk replay graphs between the attention calls.
    #[default]
    FullAndPiecewise,
    /// Every step replays one graph.
    Full,
    /// Decodes alone replay one graph; kernels of other steps are launched from the host.
    FullDecodeOnly,
    /// Every step replays graphs between the attention calls.
    Piecewise,
    /// Compiled kernels are launched from the host.
    None,
}

/// Attention kernels, under vLLM's names.
///
/// # Source
/// vLLM, `AttentionBackendEnum` (`vllm/v1/attention/backends/registry.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the names are vLLM's")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum AttentionBackend {
    FlashAttn,
    #[serde(rename = "FLASHINFER")]
    FlashInfer,
    TritonAttn,
    FlexAttention,
    FlashAttnMla,
    #[serde(rename = "FLASHINFER_MLA")]
    FlashInferMla,
    #[serde(rename = "FLASHMLA")]
    FlashMla,
    CutlassMla,
    TritonMla,
}

/// The name of a value that is written as one.
pub(crate) fn name_of(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Values of `cpu_offload_gb`, in words.
const OFFLOAD: &str = "a number of GiB, at least 0";

impl<'de> Deserialize<'de> for Deployment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Deployment::try_from(Map::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl TryFrom<Map<String, Value>> for Deployment {
    type Error = Error;

    fn try_from(map: Map<String, Value>) -> Result<Self> {
        Ok(Deployment::from_map("deployment", &map)?.0)
    }
}

impl Deployment {
    /// Returns vLLM's defaults on `tensor_parallel_size` GPUs.
    pub fn tensor_parallel(tensor_parallel_size: u32) -> Self {
        Deployment { tensor_parallel_size, ..Deployment::default() }
    }

    /// Number of GPUs of all replicas.
    pub fn num_gpus(&self) -> u64 {
        let sizes = [self.tensor_parallel_size, self.pipeline_parallel_size, self.data_parallel_size];
        sizes.into_iter().map(u64::from).fold(1, u64::saturating_mul)
    }

    /// Parses a JSON object whose keys are the fields of this type; absent keys have vLLM's defaults.
    ///
    /// # Errors
    /// `ErrorKind::Parse` for text that is not a JSON object. `ErrorKind::Invalid` with all problems: unknown keys, values
    /// of the wrong type, and those of [`Deployment::validate`].
    ///
    /// ```
    /// use ridgepoint::Deployment;
    /// let deployment = Deployment::from_json("deployment", r#"{"tensor_parallel_size": 2, "kv_cache_dtype": "auto"}"#)?;
    /// assert_eq!(deployment, Deployment::tensor_parallel(2));
    /// let error = Deployment::from_json("deployment", r#"{"block_size": 0, "max_num_seqs": "many"}"#).unwrap_err();
    /// assert_eq!(error.problems().len(), 2);
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn from_json(origin: &str, json: &str) -> Result<Self> {
        Ok(Deployment::given_in_json(origin, json)?.0)
    }

    /// [`Deployment::from_json`] with the names of the keys that the text has, for [`Deployment::on`].
    ///
    /// # Errors
    /// As [`Deployment::from_json`].
    pub fn given_in_json(origin: &str, json: &str) -> Result<(Self, BTreeSet<String>)> {
        match parse_json(origin, json)? {
            Value::Object(map) => Deployment::from_map(origin, &map),
            _ => Err(Error::parse(origin, "must be a JSON object of engine arguments")),
        }
    }

    fn from_map(origin: &str, map: &Map<String, Value>) -> Result<(Self, BTreeSet<String>)> {
        let log = Log::default();
        let given = ArgumentRows::new(&[DEPLOYMENT_ARGUMENTS], Engines::ALL).read("", map, &log);
        let deployment = Deployment::checked(&given, &log);
        Ok((log.finish(origin, Some(deployment))?.0, given.names()))
    }

    /// Takes the fields from values that were read, and records what contradicts each other.
    pub fn checked(given: &Given, log: &Log) -> Self {
        let deployment = Deployment::from_given(given);
        deployment.problems().into_iter().for_each(|problem| log.problem(problem));
        deployment
    }

    /// Checks everything that does not depend on a model.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with all problems: a size of zero, more than 65,536 GPUs, or a share outside (0, 1].
    pub fn validate(&self) -> Result<()> {
        let problems = self.problems();
        let key = problems.first().and_then(|problem| problem.split(' ').next());
        match key {
            None => Ok(()),
            Some(key) => Err(Error::invalid(Location::of("deployment").key(key), problems)),
        }
    }

    fn problems(&self) -> Vec<String> {
        let sizes = [
            ("tensor_parallel_size", self.tensor_parallel_size),
            ("pipeline_parallel_size", self.pipeline_parallel_size),
            ("data_parallel_size", self.data_parallel_size),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("block_size", self.block_size),
            ("max_model_len", self.max_model_len.unwrap_or(1)),
        ];
        let zeros = sizes.into_iter().filter(|(_, value)| *value == 0);
        let mut problems: Vec<String> = zeros.map(|(key, _)| format!("{key} = 0 must be at least 1")).collect();
        let parallel = self.num_gpus();
        if parallel > 65_536 {
            problems.push(format!("tensor_parallel_size × pipeline_parallel_size × data_parallel_size = {parallel} GPUs is more than 65536"));
        }
        if !(self.gpu_memory_utilization > 0.0 && self.gpu_memory_utilization <= 1.0) {
            problems.push(format!("gpu_memory_utilization = {} must be in (0, 1]", self.gpu_memory_utilization));
        }
        if !(self.cpu_offload_gb.is_finite() && self.cpu_offload_gb >= 0.0) {
            problems.push(format!("cpu_offload_gb = {} must be {OFFLOAD}", self.cpu_offload_gb));
        }
        if let Some(dtype) = self.kv_cache_dtype.filter(|dtype| !dtype.is_of_kv_cache()) {
            problems.push(format!("kv_cache_dtype = {dtype} must be fp8, bfloat16 or float16"));
        }
        problems.extend(self.graph_problems());
        problems
    }

    /// Arguments of CUDA graphs that contradict each other or a limit.
    fn graph_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let sizes = &self.cudagraph_capture_sizes;
        let without = match self.cudagraph_mode {
            Some(CudagraphMode::None) => Some("cudagraph_mode = NONE"),
            mode if self.enforce_eager => {
                if let Some(mode) = mode {
                    let name = name_of(&mode);
                    problems.push(format!(
                        "cudagraph_mode = {name} contradicts enforce_eager: eager steps replay no graph"
                    ));
                }
                Some("enforce_eager")
            }
            _ => None,
        };
        if let Some(without) = without {
            let given = [
                (!sizes.is_empty(), "cudagraph_capture_sizes"),
                (self.max_cudagraph_capture_size.is_some(), "max_cudagraph_capture_size"),
            ];
            let given = given.into_iter().filter(|(is_given, _)| *is_given);
            problems.extend(given.map(|(_, key)| format!("{key} contradicts {without}: no graph is captured")));
        }
        if let Some(at) = sizes.windows(2).position(|pair| pair.first() >= pair.last()) {
            let pair: Vec<String> = sizes.iter().skip(at).take(2).map(u32::to_string).collect();
            problems.push(format!("cudagraph_capture_sizes must ascend, {} do not", pair.join(", ")));
        }
        if let Some(largest) = sizes.iter().max() {
            if *largest > self.max_num_batched_tokens {
                problems.push(format!(
                    "cudagraph_capture_sizes has {largest}, more than max_num_batched_tokens = {}",
                    self.max_num_batched_tokens
                ));
            }
            if let Some(limit) = self.max_cudagraph_capture_size.filter(|limit| limit != largest) {
                problems.push(format!(
                    "max_cudagraph_capture_size = {limit} contradicts cudagraph_capture_sizes, whose largest is {largest}"
                ));
            }
        }
        problems
    }
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
