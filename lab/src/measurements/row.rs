//! The typed rows of kernel measurements, one struct per operator. Sizes are those of one rank and times are
//! microseconds of one call. Uses `dtype` and `model::Window`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use ridgepoint::DType;
use ridgepoint::model::Window;

/// How the weights (and operands) of a measured projection are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GemmDtype {
    /// bfloat16 weights and activations.
    Bfloat16,
    /// float16 weights and activations.
    Float16,
    /// 8-bit float, one scale per tensor or per token and channel.
    Fp8,
    /// 8-bit float with a scale per 128 × 128 block of weights.
    Fp8Block,
    /// 8-bit integer weights and activations.
    Int8,
    /// 8-bit integer weights, 16-bit activations.
    #[serde(rename = "int8_wo")]
    Int8WeightOnly,
    /// 4-bit integer weights, 16-bit activations.
    #[serde(rename = "int4_wo")]
    Int4WeightOnly,
    /// NVIDIA fp4.
    Nvfp4,
    /// OCP microscaling fp4 weights.
    Mxfp4,
}

impl GemmDtype {
    /// Every format, in the order of the documentation.
    pub const ALL: [GemmDtype; 9] = [
        GemmDtype::Bfloat16,
        GemmDtype::Float16,
        GemmDtype::Fp8,
        GemmDtype::Fp8Block,
        GemmDtype::Int8,
        GemmDtype::Int8WeightOnly,
        GemmDtype::Int4WeightOnly,
        GemmDtype::Nvfp4,
        GemmDtype::Mxfp4,
    ];

    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            GemmDtype::Bfloat16 => "bfloat16",
            GemmDtype::Float16 => "float16",
            GemmDtype::Fp8 => "fp8",
            GemmDtype::Fp8Block => "fp8_block",
            GemmDtype::Int8 => "int8",
            GemmDtype::Int8WeightOnly => "int8_wo",
            GemmDtype::Int4WeightOnly => "int4_wo",
            GemmDtype::Nvfp4 => "nvfp4",
            GemmDtype::Mxfp4 => "mxfp4",
        }
    }

    /// The format of that name in a file; `None` where there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        GemmDtype::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

/// How the weights of measured experts are stored: the same formats as for projections.
pub type MoeDtype = GemmDtype;

/// One call of `y[m,n] = x[m,k] · W[k,n]`.
#[derive(Debug, Clone, PartialEq)]
pub struct GemmRow {
    /// Storage of W.
    pub dtype: GemmDtype,
    /// Rows of the activations: tokens.
    pub m: u64,
    /// Outputs.
    pub n: u64,
    /// Inputs.
    pub k: u64,
    /// Time of the call, finite and above 0.
    pub latency_us: f64,
    /// Index into [`Measurements::sources`](super::Measurements::sources).
    pub source: u16,
}

/// One call of causal attention over equal prompt chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefillRow {
    /// Query heads of the rank.
    pub num_heads: u64,
    /// KV heads of the rank; divides `num_heads`.
    pub num_kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Format of the KV cache.
    pub kv_dtype: DType,
    /// Visible earlier tokens; a file says 0 for [`Window::Full`] and `n` for [`Window::Sliding`].
    pub window: Window,
    /// Requests in the call.
    pub batch_size: u64,
    /// New tokens of each request (`isl` in the public data).
    pub num_scheduled_tokens: u64,
    /// Tokens of each request that were in the cache before (`step` in the public data, where it is 0).
    pub num_computed_tokens: u64,
    /// Time of the call, finite and above 0.
    pub latency_us: f64,
    /// Index into [`Measurements::sources`](super::Measurements::sources).
    pub source: u16,
}

/// One call of attention with one new token per request.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodeRow {
    /// Query heads of the rank.
    pub num_heads: u64,
    /// KV heads of the rank; divides `num_heads`.
    pub num_kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Format of the KV cache.
    pub kv_dtype: DType,
    /// Visible earlier tokens; a file says 0 for [`Window::Full`] and `n` for [`Window::Sliding`].
    pub window: Window,
    /// Requests in the call.
    pub batch_size: u64,
    /// Context of a request, mean over the call: cached tokens and the new one. **Not** cut to the window.
    /// In the public data every request has `step` tokens in the cache, so this is `step + 1`.
    pub kv_tokens_mean: f64,
    /// Context of the longest request, counted alike.
    pub kv_tokens_max: u64,
    /// Time of the call, finite and above 0.
    pub latency_us: f64,
    /// Index into [`Measurements::sources`](super::Measurements::sources).
    pub source: u16,
}

/// How tokens were spread over the experts when the call was timed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Every expert got the same share: `balanced` in files.
    Balanced,
    /// The experts' loads were drawn from a density that falls as load^−alpha: `power_law_<alpha>` in files, alpha
    /// above 0.
    PowerLaw(f64),
}

impl Distribution {
    /// The distribution of that name in a file; `None` where there is none.
    ///
    /// ```
    /// use crate::measurements::Distribution;
    /// assert_eq!(Distribution::from_name("power_law_1.2"), Some(Distribution::PowerLaw(1.2)));
    /// assert_eq!(Distribution::from_name("power_law_-1"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "balanced" {
            return Some(Distribution::Balanced);
        }
        let alpha: f64 = name.strip_prefix("power_law_")?.parse().ok()?;
        (alpha.is_finite() && alpha > 0.0).then_some(Distribution::PowerLaw(alpha))
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Distribution::Balanced => f.write_str("balanced"),
            Distribution::PowerLaw(alpha) => write!(f, "power_law_{alpha}"),
        }
    }
}

/// One call of the routed experts' fused kernel on one GPU; router and shared experts are not in it.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeRow {
    /// Storage of the experts.
    pub dtype: MoeDtype,
    /// Name of the kernel where the rows of the file give one, the same as that of their source.
    pub kernel_source: Option<Arc<str>>,
    /// Tokens that are routed, over all GPUs that share the experts: in the public data the time of a large call falls
    /// with `moe_ep_size` at the same count.
    pub num_tokens: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Width of one expert of the whole model; the GPU holds `intermediate_size / moe_tp_size` of it.
    pub intermediate_size: u64,
    /// Experts per token.
    pub top_k: u64,
    /// Experts of the whole layer; the GPU holds `num_experts / moe_ep_size` of them.
    pub num_experts: u64,
    /// GPUs that share every expert; divides `intermediate_size`.
    pub moe_tp_size: u64,
    /// GPUs that the experts are spread over; divides `num_experts`.
    pub moe_ep_size: u64,
    /// How tokens were spread over experts.
    pub distribution: Distribution,
    /// Time of the call, finite and above 0.
    pub latency_us: f64,
    /// Index into [`Measurements::sources`](super::Measurements::sources).
    pub source: u16,
}

/// How a collective was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllReduceBackend {
    /// Inside a CUDA graph.
    Graph,
    /// Launched from the host.
    Eager,
}

impl AllReduceBackend {
    /// The backend of that name in a file (`graph` or `eager`, in the public data after `vllm_`).
    pub fn from_name(name: &str) -> Option<Self> {
        match name.strip_prefix("vllm_").unwrap_or(name) {
            "graph" => Some(AllReduceBackend::Graph),
            "eager" => Some(AllReduceBackend::Eager),
            _ => None,
        }
    }
}

/// One all-reduce.
#[derive(Debug, Clone, PartialEq)]
pub struct AllReduceRow {
    /// Ranks, at least 2.
    pub num_gpus: u64,
    /// Bytes of the message on each rank (the public data counts elements; they are multiplied by their width).
    pub message_bytes: f64,
    /// How it was launched.
    pub backend: AllReduceBackend,
    /// Time of the call, finite and above 0.
    pub latency_us: f64,
    /// Index into [`Measurements::sources`](super::Measurements::sources).
    pub source: u16,
}

/// A kernel that only moves bytes: a norm, rotary embedding, activation, residual add or KV write.
#[derive(Debug, Clone, PartialEq)]
pub struct SmallKernelRow {
    /// Name of the kernel.
    pub kernel: String,
    /// Tokens it works on.
    pub num_tokens: u64,
    /// Elements per token.
    pub width: u64,
    /// Kernel launches in the timed call.
    pub launches: u64,
    /// Time of all the launches together, finite and above 0.
    pub latency_us: f64,
    /// Index into [`Measurements::sources`](super::Measurements::sources).
    pub source: u16,
}

/// The format a measurement was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceFormat {
    /// One of the public kernel tables.
    Parquet,
    /// One's own measurements.
    Csv,
}

/// Where rows come from. `None` is what the file does not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFile {
    /// File name, without its directory.
    pub file: String,
    /// Format of the file.
    pub format: SourceFormat,
    /// Serving engine whose kernels were timed.
    pub framework: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// GPU, as the driver names it: `NVIDIA H100 80GB HBM3`.
    pub device: Option<String>,
    /// Kernel, as the engine names it.
    pub kernel_source: Option<String>,
    /// Driver version.
    pub driver: Option<String>,
    /// Day of the measurement.
    pub date: Option<String>,
    /// Command that took it.
    pub command: Option<String>,
}
