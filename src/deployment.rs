//! How a model is served: those of vLLM's engine arguments that change what a rank does in a step. Relations to a model
//! (divisible heads, experts) are checked where both are known. Uses `dtype`, `error`, `input`, `model`.

use std::num::NonZeroU32;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dtype::DType;
use crate::error::{Error, Location, Result};
use crate::input::{Keys, Log, parse_json};
use crate::model::SamplingParams;

/// vLLM's engine arguments, under their own names and with their own defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Deployment {
    /// Ranks that share every layer's matrices.
    pub tensor_parallel_size: u32,
    /// Stages that share the layers.
    pub pipeline_parallel_size: u32,
    /// Replicas of the attention. With expert parallelism, the experts are spread over all of them.
    pub data_parallel_size: u32,
    /// Each rank holds whole experts instead of a slice of each.
    pub enable_expert_parallel: bool,
    /// Most requests in a step.
    pub max_num_seqs: u32,
    /// Most tokens in a step.
    pub max_num_batched_tokens: u32,
    /// Longest context; `None` is the model's own limit.
    pub max_model_len: Option<u32>,
    /// Share of device memory that the engine may use.
    pub gpu_memory_utilization: f64,
    /// GiB of each GPU's weights that stay in host memory, of the first layers. Kernels read them over the bus in every step.
    #[serde(skip_serializing_if = "crate::units::is_zero")]
    pub cpu_offload_gb: f64,
    /// KV cache format; `None` is vLLM's `auto`: the checkpoint's scheme, else the model's dtype.
    pub kv_cache_dtype: Option<DType>,
    /// Tokens of a KV block.
    pub block_size: u32,
    /// Launch every kernel from the host, without CUDA graphs and without compiled kernels.
    pub enforce_eager: bool,
    /// Steps that replay CUDA graphs; `None` is vLLM's default, [`CudagraphMode::FullAndPiecewise`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cudagraph_mode: Option<CudagraphMode>,
    /// Numbers of tokens that graphs are captured for, ascending; empty for vLLM's own choice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cudagraph_capture_sizes: Vec<u32>,
    /// Largest size of vLLM's own choice; `None` is `min(2·max_num_seqs, 512)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cudagraph_capture_size: Option<u32>,
    /// Attention kernels. `None` leaves the choice to vLLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_backend: Option<AttentionBackend>,
    /// Sum over tensor-parallel ranks by NCCL's ring instead of vLLM's own kernel.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_custom_all_reduce: bool,
    /// Source of the sampling parameters of requests that set none.
    pub generation_config: GenerationConfig,
    /// Sampling parameters in place of those of that source: the server's, or those that all requests set themselves.
    #[serde(skip_serializing_if = "crate::units::is_zero")]
    pub override_generation_config: SamplingParams,
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

/// A name in any case.
fn read_name<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(Value::String(value.as_str()?.to_uppercase())).ok()
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
            cpu_offload_gb: 0.0,
            kv_cache_dtype: None,
            block_size: 16,
            enforce_eager: false,
            cudagraph_mode: None,
            cudagraph_capture_sizes: Vec::new(),
            max_cudagraph_capture_size: None,
            attention_backend: None,
            disable_custom_all_reduce: false,
            generation_config: GenerationConfig::Auto,
            override_generation_config: SamplingParams::default(),
        }
    }
}

impl TryFrom<Map<String, Value>> for Deployment {
    type Error = Error;

    fn try_from(map: Map<String, Value>) -> Result<Self> {
        Deployment::from_map("deployment", &map)
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
        match parse_json(origin, json)? {
            Value::Object(map) => Deployment::from_map(origin, &map),
            _ => Err(Error::parse(origin, "must be a JSON object of engine arguments")),
        }
    }

    fn from_map(origin: &str, map: &Map<String, Value>) -> Result<Self> {
        let log = Log::default();
        let keys = Keys::of_map("", map, &log);
        let deployment = Deployment::read(&keys);
        keys.finish();
        Ok(log.finish(origin, Some(deployment))?.0)
    }

    /// Reads the fields of this type and records all problems; wrong values count as absent.
    pub fn read(keys: &Keys<'_>) -> Self {
        let mut deployment = Deployment::default();
        for (key, size) in deployment.sizes() {
            *size = keys.whole(key, 1..=u32::MAX).unwrap_or(*size);
        }
        for (key, flag) in [
            ("enable_expert_parallel", &mut deployment.enable_expert_parallel),
            ("enforce_eager", &mut deployment.enforce_eager),
            ("disable_custom_all_reduce", &mut deployment.disable_custom_all_reduce),
        ] {
            *flag = keys.flag(key).unwrap_or(*flag);
        }
        deployment.max_model_len = keys.whole("max_model_len", 1..=u32::MAX);
        let modes = "FULL_AND_PIECEWISE, FULL, FULL_DECODE_ONLY, PIECEWISE or NONE";
        deployment.cudagraph_mode = keys.read("cudagraph_mode", modes, read_name);
        let sizes = "a list of numbers of tokens, each at least 1";
        let read_sizes = |value: &Value| Vec::<NonZeroU32>::deserialize(value).ok();
        let sizes = keys.read("cudagraph_capture_sizes", sizes, read_sizes).unwrap_or_default();
        deployment.cudagraph_capture_sizes = sizes.into_iter().map(NonZeroU32::get).collect();
        deployment.max_cudagraph_capture_size = keys.whole("max_cudagraph_capture_size", 1..=u32::MAX);
        let backends = "a backend of vLLM: FLASH_ATTN, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION, FLASH_ATTN_MLA, \
                        FLASHINFER_MLA, FLASHMLA, CUTLASS_MLA or TRITON_MLA";
        deployment.attention_backend = keys.read("attention_backend", backends, read_name);
        let share = "a share of the memory, above 0 and at most 1";
        let utilization = keys.read("gpu_memory_utilization", share, |value| {
            value.as_f64().filter(|share| *share > 0.0 && *share <= 1.0)
        });
        deployment.gpu_memory_utilization = utilization.unwrap_or(deployment.gpu_memory_utilization);
        let offload = keys.read("cpu_offload_gb", OFFLOAD, |value| value.as_f64().filter(|gb| *gb >= 0.0));
        deployment.cpu_offload_gb = offload.unwrap_or_default();
        let kv_cache_dtype = keys
            .read("kv_cache_dtype", "auto, fp8, bfloat16 or float16", |value| DType::parse_or_auto(value.as_str()?));
        deployment.kv_cache_dtype = kv_cache_dtype.flatten();
        let source = "auto or vllm: the file of another folder is not read";
        let generation_config =
            keys.read("generation_config", source, |value| GenerationConfig::deserialize(value).ok());
        deployment.generation_config = generation_config.unwrap_or_default();
        deployment.override_generation_config = SamplingParams::read_override(keys);
        deployment.problems().into_iter().for_each(|problem| keys.log.problem(problem));
        deployment
    }

    /// The sizes with their keys, parallel groups first.
    fn sizes(&mut self) -> [(&'static str, &mut u32); 6] {
        [
            ("tensor_parallel_size", &mut self.tensor_parallel_size),
            ("pipeline_parallel_size", &mut self.pipeline_parallel_size),
            ("data_parallel_size", &mut self.data_parallel_size),
            ("max_num_seqs", &mut self.max_num_seqs),
            ("max_num_batched_tokens", &mut self.max_num_batched_tokens),
            ("block_size", &mut self.block_size),
        ]
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
        let mut own = self.clone();
        let sizes = own.sizes().map(|(key, size)| (key, *size));
        let zeros = sizes.into_iter().chain([("max_model_len", self.max_model_len.unwrap_or(1))]);
        let zeros = zeros.filter(|(_, value)| *value == 0);
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
