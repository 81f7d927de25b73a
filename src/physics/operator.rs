//! An operator: one kind of kernel call of one rank, with its exact work and how often it runs.

use crate::dtype::{DType, WeightFormat};
use crate::model::Window;

use super::communication::{Collective, RankGroup};
use super::experts::Experts;
use super::operator_id::{OperatorGroup, OperatorId};
use super::state_shape::{StateHeads, StateKernel};

/// Heads and formats of an attention call on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionHeads {
    /// Query heads of this rank.
    pub num_heads: u64,
    /// KV heads of this rank (1 for absorbed MLA).
    pub num_kv_heads: u64,
    /// Width of a query and key head (for absorbed MLA: `kv_lora_rank + qk_rope_head_dim`).
    pub head_dim: u64,
    /// Width of a value head (for absorbed MLA: `kv_lora_rank`; 0 for an indexer, which stops at the scores).
    pub v_head_dim: u64,
    /// Format of the KV cache.
    pub kv_dtype: DType,
    /// Visible earlier tokens.
    pub window: Window,
    /// The call is absorbed multi-head latent attention.
    pub is_mla: bool,
}

impl AttentionHeads {
    /// Whether these are heads of an indexer: they score keys and have no values.
    pub fn is_indexer(&self) -> bool {
        self.v_head_dim == 0
    }

    /// Whether each query attends to tokens that an indexer picked for it.
    pub fn is_sparse(&self) -> bool {
        matches!(self.window, Window::Picked(_))
    }
}

/// Shape of a kernel call, as its efficiency depends on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kernel {
    /// `y[m,n] = x[m,k] · W[k,n]`, or a batch of them.
    Gemm {
        /// Rows of the activations: tokens.
        m: u64,
        /// Outputs of this rank, of one product.
        n: u64,
        /// Inputs of this rank, of one product.
        k: u64,
        /// Products in the call, each with inputs and weights of its own.
        copies: u64,
        /// Storage of W.
        weights: WeightFormat,
    },
    /// Causal attention of prefill chunks, each after its own cached tokens.
    AttentionPrefill {
        /// Heads and formats.
        heads: AttentionHeads,
        /// Chunks in the call.
        num_requests: u64,
        /// Scheduled tokens of all chunks.
        query_tokens: u64,
        /// Visible (query, key) pairs of all chunks, per head.
        pairs: f64,
        /// Keys read at least once, summed over chunks: visible cached tokens and the chunk's own.
        kv_tokens: u64,
        /// Scheduled tokens of the chunk that a token is part of, on average over tokens: `Σq² / Σq`.
        mean_query_tokens: f64,
    },
    /// One new token per request on top of its cache.
    AttentionDecode {
        /// Heads and formats.
        heads: AttentionHeads,
        /// Requests in the call.
        num_requests: u64,
        /// Keys read, summed over requests: visible cached tokens and the new one.
        kv_tokens: u64,
    },
    /// Routed experts' fused kernel: both grouped GEMMs with the activation between them.
    Moe {
        /// Tokens whose experts may be on this rank (all of the data-parallel group with experts in parallel).
        num_tokens: u64,
        /// The layer's experts and those of this rank.
        experts: Experts,
    },
    /// Sum over the ranks of a tensor-parallel group.
    AllReduce {
        /// Bytes of the message on each rank.
        message_bytes: f64,
        /// Ranks.
        num_gpus: u64,
        /// By NCCL's ring instead of the engine's own kernel.
        is_ring: bool,
    },
    /// Any other exchange, priced by the bytes that leave this rank.
    Exchange {
        /// How.
        collective: Collective,
        /// Bytes that this rank sends.
        sent_bytes: f64,
        /// Ranks; of a hand-over all stages.
        group: RankGroup,
    },
    /// A kernel of a layer with a state.
    State {
        /// Which one, and for which phase.
        kernel: StateKernel,
        /// Heads and formats.
        heads: StateHeads,
        /// Requests in the call.
        num_requests: u64,
        /// Tokens of all requests.
        num_tokens: u64,
        /// Scheduled tokens of the request that a token is part of, on average over tokens: `Σq² / Σq`.
        mean_query_tokens: f64,
    },
    /// Kernels that only move bytes.
    Elementwise {
        /// Kernel launches.
        launches: u64,
    },
    /// Radix sort of rows with their indices.
    Sort {
        /// Kernel launches.
        launches: u64,
    },
    /// Sums or searches over rows. One block of threads walks each row.
    RowScan {
        /// Kernel launches.
        launches: u64,
        /// Values that the block visits, row after row of its sweeps.
        row: u64,
        /// Values that it takes at once.
        tile: u64,
    },
}

impl Kernel {
    /// Kernel launches of one call.
    pub(super) fn launches(&self) -> u64 {
        match self {
            Kernel::Elementwise { launches } | Kernel::Sort { launches } | Kernel::RowScan { launches, .. } => {
                *launches
            }
            Kernel::State { kernel, heads, .. } => kernel.launches(heads.recurrence),
            _ => 1,
        }
    }

    /// Whether the call does no FLOPs that a matrix unit would do, so that its bytes determine its time.
    pub(crate) fn only_moves_bytes(&self) -> bool {
        matches!(self, Kernel::Elementwise { .. } | Kernel::Sort { .. } | Kernel::RowScan { .. })
    }
}

/// One kind of kernel call of one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operator {
    /// Identity within its plan.
    pub id: OperatorId,
    /// Name, as printed and as in the JSON.
    pub name: &'static str,
    /// Group it is summed in.
    pub group: OperatorGroup,
    /// Calls per step.
    pub count: u64,
    /// FLOPs of one call on this rank.
    pub flops: f64,
    /// Bytes that one call moves to or from device memory, or sends where it is communication.
    pub bytes: f64,
    /// Format of the operands of the matrix unit that does the FLOPs.
    pub compute_dtype: DType,
    /// Shape of the call.
    pub kernel: Kernel,
}

impl Operator {
    /// Kernel launches of one call.
    pub fn launches(&self) -> u64 {
        self.kernel.launches()
    }
}
