//! The measured calls, one type per operator. Sizes are those of one rank.

use ridgepoint::DType;
use ridgepoint::internals::dtype::MatmulFormat;
use ridgepoint::internals::efficiency::family::{AllReduceKind, HeadSize};
use ridgepoint::internals::model::{Recurrence, Window};
use ridgepoint::internals::physics::StateKernel;

/// A call and its measured time.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed<C> {
    /// The call.
    pub call: C,
    /// Time of the call, µs, finite and above 0.
    pub latency_us: f64,
    /// Index into [`Measurements::sources`](super::Measurements::sources).
    pub source: usize,
}

/// A projection: `y[m,n] = x[m,k] · W[k,n]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GemmCall {
    /// Storage of W.
    pub dtype: MatmulFormat,
    /// Rows of the activations: tokens.
    pub m: u64,
    /// Outputs.
    pub n: u64,
    /// Inputs.
    pub k: u64,
}

/// The heads that an attention call works on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Heads {
    /// Query heads of the rank.
    pub num_heads: u64,
    /// KV heads of the rank; divides `num_heads`.
    pub num_kv_heads: u64,
    /// Width of a head.
    pub head_size: HeadSize,
    /// Format of the KV cache.
    pub kv_dtype: DType,
    /// Visible earlier tokens: [`Window::Full`] if a file has 0, else [`Window::Sliding`].
    pub window: Window,
}

/// Causal attention over equal prefill chunks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PrefillCall {
    /// Heads.
    pub heads: Heads,
    /// Requests in the call.
    pub batch_size: u64,
    /// New tokens of each request (`isl` in the public data).
    pub num_scheduled_tokens: u64,
    /// Tokens of each request that were in the cache before (`step` in the public data, where it is 0).
    pub num_computed_tokens: u64,
}

/// Attention with one new token per request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DecodeCall {
    /// Heads.
    pub heads: Heads,
    /// Requests in the call.
    pub batch_size: u64,
    /// Contexts of all requests: cached tokens and the new ones, **not** cut to the window. In the public data every
    /// request has `step` tokens in the cache, so this is `batch_size · (step + 1)`.
    pub kv_tokens_total: u64,
    /// Context of the longest request, counted alike.
    pub kv_tokens_max: u64,
}

impl DecodeCall {
    /// Mean context of a request.
    pub fn kv_tokens_mean(&self) -> f64 {
        self.kv_tokens_total as f64 / self.batch_size as f64
    }
}

/// The routed experts' fused kernel on one GPU, without router and shared experts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MoeCall {
    /// Storage of the experts.
    pub dtype: MatmulFormat,
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
    /// How tokens were spread over the experts: `balanced`, or `power_law_<alpha>` if the experts' loads were drawn from
    /// a density that falls as load^−alpha.
    pub distribution: String,
}

/// An all-reduce.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AllReduceCall {
    /// Ranks, at least 2.
    pub num_gpus: u64,
    /// Bytes of the message on each rank.
    pub message_bytes: u64,
    /// How it was launched.
    pub backend: AllReduceKind,
}

/// A kernel of a layer with a state, over requests of equal length.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StateCall {
    /// Update rule of the state, token by token.
    pub recurrence: Recurrence,
    /// Which kernel.
    pub kernel: StateKernel,
    /// Heads of keys and queries of the rank.
    pub num_key_heads: u64,
    /// Heads with a state of their own of the rank; `num_key_heads` divides it.
    pub num_heads: u64,
    /// Width of a key.
    pub key_head_dim: u64,
    /// Width of a head's values.
    pub head_dim: u64,
    /// Tokens that the convolution sees.
    pub conv_kernel: u64,
    /// Requests in the call.
    pub batch_size: u64,
    /// New tokens of each request; 1 for decodes.
    pub num_scheduled_tokens: u64,
}

/// A kernel that only moves bytes: a norm, rotary embedding, activation, residual add or KV write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SmallKernelCall {
    /// Name of the kernel.
    pub kernel: String,
    /// Tokens it works on.
    pub num_tokens: u64,
    /// Elements per token.
    pub width: u64,
    /// Kernel launches in the timed call.
    pub launches: u64,
}
