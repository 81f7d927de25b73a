//! Layers that keep a state instead of a KV cache: gated delta nets and Mamba-2. A short causal convolution over queries, keys
//! and values, a recurrence over heads, a gated norm.
//!
//! A prefill chunk goes through the recurrence in pieces of `chunk_size` tokens by matrix multiplications, and reads and writes the
//! state of its request once. A decode is one step of the recurrence: it reads and writes the state, and little else. So the
//! work depends on the numbers of tokens and requests alone, whatever the context.

use crate::dtype::DType;
use crate::model::{Recurrence, StateMixer};

use super::operator_id::OperatorKind::{self, *};
use super::ranks::Ranks;
use super::work::{Shape, Work};

/// Bytes of a gate or step size, which the recurrences read as 32-bit floats.
const GATE_BYTES: f64 = 4.0;

/// The four kernels of a layer with a state, each for one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKernel {
    /// Convolution over prefill chunks (`causal_conv1d_fn`).
    ConvPrefill,
    /// Convolution of one token per request (`causal_conv1d_update`).
    ConvDecode,
    /// Recurrence over prefill chunks (`chunk_gated_delta_rule`, `mamba_chunk_scan_combined`).
    ChunkScan,
    /// One step of the recurrence per request (`fused_recurrent_gated_delta_rule`, `selective_state_update`).
    StateUpdate,
}

/// The kernels of a layer with a state, in order of execution.
pub(super) const STATE_KERNELS: [StateKernel; 4] =
    [StateKernel::ConvPrefill, StateKernel::ConvDecode, StateKernel::ChunkScan, StateKernel::StateUpdate];

/// Heads and formats of a layer with a state on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateHeads {
    /// Update rule of the state, token by token.
    pub recurrence: Recurrence,
    /// Heads with a state of their own on this rank.
    pub num_heads: u64,
    /// Width of a head's values.
    pub head_dim: u64,
    /// Heads of keys and queries on this rank.
    pub num_key_heads: u64,
    /// Width of a key.
    pub key_head_dim: u64,
    /// Tokens that the convolution sees.
    pub conv_kernel: u64,
    /// Tokens that prefill computes at once.
    pub chunk_size: u64,
    /// Number format of activations and of the convolution's state.
    pub activation: DType,
    /// Number format of the recurrence's state.
    pub state_dtype: DType,
}

impl StateHeads {
    /// The share of one tensor-parallel rank. A single key head is replicated.
    ///
    /// # Source
    /// vLLM, `MambaStateShapeCalculator` (`vllm/model_executor/layers/mamba/mamba_utils.py`).
    pub(crate) fn new(mixer: &StateMixer, activation: DType, ranks: Ranks) -> Self {
        StateHeads {
            recurrence: mixer.recurrence,
            num_heads: mixer.num_heads / ranks.tensor,
            head_dim: mixer.head_dim,
            num_key_heads: (mixer.num_key_heads / ranks.tensor).max(1),
            key_head_dim: mixer.key_head_dim,
            conv_kernel: mixer.conv_kernel,
            chunk_size: mixer.chunk_size,
            activation,
            state_dtype: mixer.state_dtype,
        }
    }

    /// Width of the values of all heads.
    pub fn value_dim(&self) -> u64 {
        self.num_heads * self.head_dim
    }

    /// Channels of the convolution.
    pub fn conv_dim(&self) -> u64 {
        2 * self.num_key_heads * self.key_head_dim + self.value_dim()
    }

    /// Bytes of the convolution's state of a request.
    ///
    /// # Formula
    /// `(w − 1)·D·b`: the last tokens that the convolution still sees.
    ///
    /// # Source
    /// vLLM, `MambaStateShapeCalculator`.
    pub fn conv_state_bytes(&self) -> f64 {
        (self.conv_kernel.saturating_sub(1) * self.conv_dim()) as f64 * self.activation.bytes()
    }

    /// Bytes of the recurrence's state of a request.
    ///
    /// # Formula
    /// `h·e_v·e_k·b_state`.
    ///
    /// # Source
    /// vLLM, `MambaStateShapeCalculator`.
    pub fn recurrent_state_bytes(&self) -> f64 {
        (self.value_dim() * self.key_head_dim) as f64 * self.state_dtype.bytes()
    }

    /// Bytes of both states of a request in one layer on this rank.
    ///
    /// ```
    /// use ridgepoint::DType;
    /// use ridgepoint::model::Recurrence;
    /// use ridgepoint::physics::StateHeads;
    /// // Qwen3.5-397B-A17B on eight ranks.
    /// let heads = StateHeads {
    ///     recurrence: Recurrence::GatedDeltaNet, num_heads: 8, head_dim: 128, num_key_heads: 2, key_head_dim: 128,
    ///     conv_kernel: 4, chunk_size: 64, activation: DType::Bfloat16, state_dtype: DType::Float32,
    /// };
    /// assert_eq!(heads.state_bytes(), 3.0 * 1536.0 * 2.0 + 8.0 * 128.0 * 128.0 * 4.0);
    /// ```
    pub fn state_bytes(&self) -> f64 {
        self.conv_state_bytes() + self.recurrent_state_bytes()
    }

    /// Gates per head and token: decay and strength of a delta net, the step size of Mamba-2.
    pub(super) fn gates(&self) -> u64 {
        match self.recurrence {
            Recurrence::GatedDeltaNet => 2,
            Recurrence::Mamba2 => 1,
        }
    }

    /// FLOPs per token of the recurrence in pieces of `chunk_size` tokens `c`.
    ///
    /// # Formula
    /// Gated delta net, per head: `c·(6·e_k + 4·e_v) + 6·e_k·e_v`. Scores of queries and of keys with keys, keys and values
    /// corrected within the piece, values weighed; then the old state read by queries and by keys, and the new one written.
    /// Mamba-2: `2·c·e_v + 4·e_k·e_v` per head and `2·c·e_k` per key head, whose scores its heads share. Pieces count whole.
    ///
    /// # Source
    /// Yang, Kautz and Hatamizadeh, Gated Delta Networks (2024), section 3.3; Dao and Gu, Transformers are SSMs (2024), section 6.
    fn scan_flops_per_token(&self) -> f64 {
        let [keys, values, piece] = [self.key_head_dim, self.head_dim, self.chunk_size].map(|size| size as f64);
        let (heads, key_heads) = (self.num_heads as f64, self.num_key_heads as f64);
        match self.recurrence {
            Recurrence::GatedDeltaNet => heads * (piece * (6.0 * keys + 4.0 * values) + 6.0 * keys * values),
            Recurrence::Mamba2 => heads * (2.0 * piece * values + 4.0 * keys * values) + key_heads * 2.0 * piece * keys,
        }
    }

    /// FLOPs of one step of the recurrence of a request.
    ///
    /// # Formula
    /// Per head, `6·e_k·e_v` for a gated delta net (state by key, outer product, state by query) and `4·e_k·e_v` for Mamba-2
    /// (outer product, state by query).
    fn update_flops(&self) -> f64 {
        let products = match self.recurrence {
            Recurrence::GatedDeltaNet => 6.0,
            Recurrence::Mamba2 => 4.0,
        };
        products * (self.value_dim() * self.key_head_dim) as f64
    }

    /// Bytes per token of the recurrence other than its state: queries, keys, values and gates read, outputs written.
    fn token_bytes(&self) -> f64 {
        let width = self.conv_dim() + self.value_dim();
        width as f64 * self.activation.bytes() + (self.gates() * self.num_heads) as f64 * GATE_BYTES
    }
}

/// A call of one of the kernels of a layer with a state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateShape {
    /// The kernel.
    pub kernel: StateKernel,
    /// Heads and formats.
    pub heads: StateHeads,
    /// Requests, each with a state.
    pub requests: f64,
    /// Tokens of all requests.
    pub tokens: f64,
}

impl Shape for StateShape {
    /// FLOPs and bytes; linear in tokens and in requests.
    ///
    /// # Formula
    /// Convolution: `2·w·D` FLOPs a token; `2·D·b` bytes a token, and its state read and written a request. Recurrence: FLOPs by
    /// chunk or step; queries, keys, values and gates read and outputs written a token, and its state read and written a request.
    ///
    /// # Source
    /// Compulsory traffic. What kernels of several launches pass on between them is left to their efficiency.
    ///
    /// ```
    /// use ridgepoint::DType;
    /// use ridgepoint::model::Recurrence;
    /// use ridgepoint::physics::{Shape, StateHeads, StateKernel, StateShape};
    /// let heads = StateHeads {
    ///     recurrence: Recurrence::GatedDeltaNet, num_heads: 4, head_dim: 8, num_key_heads: 2, key_head_dim: 16,
    ///     conv_kernel: 4, chunk_size: 64, activation: DType::Bfloat16, state_dtype: DType::Float32,
    /// };
    /// let call = |kernel, requests, tokens| StateShape { kernel, heads, requests, tokens }.work();
    /// // 2·2·16 + 4·8 = 96 channels; the state has 4·8·16 = 512 values.
    /// let conv = call(StateKernel::ConvDecode, 3.0, 3.0);
    /// assert_eq!((conv.flops, conv.bytes), (3.0 * 8.0 * 96.0, 3.0 * (4.0 * 96.0 + 2.0 * 3.0 * 96.0 * 2.0)));
    /// let step = call(StateKernel::StateUpdate, 3.0, 3.0);
    /// assert_eq!((step.flops, step.bytes), (3.0 * 6.0 * 512.0, 3.0 * (2.0 * 2048.0 + 2.0 * 128.0 + 8.0 * 4.0)));
    /// let scan = call(StateKernel::ChunkScan, 1.0, 1000.0);
    /// assert_eq!(scan.flops, 1000.0 * 4.0 * (64.0 * (96.0 + 32.0) + 6.0 * 128.0));
    /// assert_eq!(scan.bytes, 1000.0 * (2.0 * 128.0 + 8.0 * 4.0) + 2.0 * 2048.0);
    /// ```
    fn work(&self) -> Work {
        let StateShape { kernel, heads, requests, tokens } = *self;
        let channels = heads.conv_dim() as f64;
        let (flops, token_bytes, state_bytes) = match kernel {
            StateKernel::ConvPrefill | StateKernel::ConvDecode => (
                2.0 * heads.conv_kernel as f64 * channels,
                2.0 * channels * heads.activation.bytes(),
                heads.conv_state_bytes(),
            ),
            StateKernel::ChunkScan => {
                (heads.scan_flops_per_token(), heads.token_bytes(), heads.recurrent_state_bytes())
            }
            StateKernel::StateUpdate => (heads.update_flops(), heads.token_bytes(), heads.recurrent_state_bytes()),
        };
        Work { flops: tokens * flops, bytes: tokens * token_bytes + requests * 2.0 * state_bytes }
    }
}

impl StateKernel {
    /// Kernel launches of one call.
    ///
    /// # Source
    /// vLLM: `chunk_gated_delta_rule` norms queries and keys, sums the decay, and makes scores, their inverse, corrected keys and
    /// values, states and outputs; `mamba_chunk_scan_combined` makes sums, states, their passing on, scores and outputs.
    pub(super) fn launches(self, recurrence: Recurrence) -> u64 {
        match (self, recurrence) {
            (StateKernel::ChunkScan, Recurrence::GatedDeltaNet) => 8,
            (StateKernel::ChunkScan, Recurrence::Mamba2) => 5,
            _ => 1,
        }
    }

    /// Name in tables and measurement files.
    pub fn name(self) -> &'static str {
        self.kind().name()
    }

    /// The kernel of a name in tables and measurement files.
    pub fn parse(name: &str) -> Option<Self> {
        STATE_KERNELS.into_iter().find(|kernel| kernel.name() == name)
    }

    /// Whether it runs over prefill chunks.
    pub fn is_prefill(self) -> bool {
        matches!(self, StateKernel::ConvPrefill | StateKernel::ChunkScan)
    }

    pub(super) fn kind(self) -> OperatorKind {
        match self {
            StateKernel::ConvPrefill => ConvPrefill,
            StateKernel::ConvDecode => ConvDecode,
            StateKernel::ChunkScan => ChunkScan,
            StateKernel::StateUpdate => StateUpdate,
        }
    }
}
