//! Mixture of experts: router, routed experts and shared experts, sliced or spread over ranks.
//! Uses `model`, `dtype`, `projection`.
//!
//! Without expert parallelism every expert is sliced over all tensor- and data-parallel ranks; with it each rank holds
//! whole experts. Either way, with data parallelism the experts see the tokens of all replicas: a step's requests are
//! those of one replica, and the others are assumed to run the same batch.

use crate::dtype::{DType, WeightFormat};
use crate::model::Moe;

use super::operator::{Kernel, OperatorGroup};
use super::projection::{compute_dtype, ffn_matrices};
use super::ranks::Ranks;
use super::template::{Matrix, Template, Work};

/// Experts that at least one of `num_tokens` tokens visits, in expectation.
///
/// # Formula
/// `E'·(1 − (1 − k/E')^T)` with `E' = max(k, E·(1 − skew))`: `skew` is the share of experts that no token visits while
/// the others share the tokens evenly; 0 is uniform routing.
///
/// # Source
/// Each token misses an expert with probability `1 − k/E`, tokens being independent.
///
/// ```
/// use ridgepoint::physics::moe::expected_active_experts;
/// assert_eq!(expected_active_experts(8, 2, 1, 0.0), 2.0);
/// assert_eq!(expected_active_experts(8, 2, 2, 0.0), 3.5);
/// assert_eq!(expected_active_experts(8, 2, 2, 0.5), 3.0);
/// ```
pub fn expected_active_experts(num_experts: u64, top_k: u64, num_tokens: u64, skew: f64) -> f64 {
    let k = top_k as f64;
    let reachable = (num_experts as f64 * (1.0 - skew)).max(k);
    reachable * (1.0 - (1.0 - k / reachable).powf(num_tokens as f64))
}

/// Experts on the fullest rank when `num_experts` are spread over `ranks`.
///
/// # Formula
/// `⌈E/n⌉`: the first `E mod n` ranks hold one more.
///
/// # Source
/// vLLM, `determine_expert_map` (`fused_moe/layer.py`).
///
/// ```
/// assert_eq!(ridgepoint::physics::moe::local_experts(60, 8), 8);
/// ```
pub fn local_experts(num_experts: u64, ranks: u64) -> u64 {
    num_experts.div_ceil(ranks.max(1))
}

/// FLOPs of gated experts for `pairs` token-expert pairs.
///
/// # Formula
/// `2·3·d·f·pairs`: gate, up and down matrices.
///
/// # Source
/// SwiGLU experts, as in Mixtral (Jiang et al., 2024).
///
/// ```
/// assert_eq!(ridgepoint::physics::moe::experts_flops(10.0, 4, 8), 1920.0);
/// ```
pub fn experts_flops(pairs: f64, hidden_size: u64, intermediate_size: u64) -> f64 {
    6.0 * pairs * hidden_size as f64 * intermediate_size as f64
}

/// Bytes of the weights of `experts` gated experts.
///
/// # Formula
/// `experts·3·d·f·b_weight`.
///
/// ```
/// use ridgepoint::WeightFormat;
/// use ridgepoint::physics::moe::expert_weight_bytes;
/// assert_eq!(expert_weight_bytes(2.0, 4, 8, WeightFormat::Fp8), 192.0);
/// ```
pub fn expert_weight_bytes(experts: f64, hidden_size: u64, intermediate_size: u64, weights: WeightFormat) -> f64 {
    3.0 * experts * hidden_size as f64 * intermediate_size as f64 * weights.bytes_per_weight()
}

/// Bytes of activations that the two grouped matrix multiplications and the activation between them move.
///
/// # Formula
/// Per pair: `d·b_in` read, `2f` written and read, `f` written, `f·b_in` read, `d` written, in the activations' format
/// where not given; `b_in` is the size of the matrix unit's operand.
///
/// ```
/// use ridgepoint::{DType, WeightFormat};
/// use ridgepoint::physics::moe::expert_activation_bytes;
/// let bf16 = DType::Bfloat16;
/// assert_eq!(expert_activation_bytes(1.0, 4, 8, WeightFormat::Plain(bf16), bf16), 2.0 * (4.0 + 48.0 + 4.0));
/// ```
pub fn expert_activation_bytes(
    pairs: f64,
    hidden_size: u64,
    intermediate_size: u64,
    weights: WeightFormat,
    activation: DType,
) -> f64 {
    let (hidden, width) = (hidden_size as f64, intermediate_size as f64);
    let (input, output) = (compute_dtype(weights, activation).bytes(), activation.bytes());
    pairs * ((hidden + width) * input + (5.0 * width + hidden) * output)
}

/// Routed experts of one layer on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Experts {
    pub hidden_size: u64,
    /// Width of an expert on this rank.
    pub intermediate_size: u64,
    pub top_k: u64,
    pub num_experts: u64,
    pub local_experts: u64,
    /// Replicas whose tokens come to this rank.
    pub token_replicas: u64,
    pub weights: WeightFormat,
}

impl Experts {
    pub fn new(hidden_size: u64, moe: &Moe, ranks: Ranks) -> Self {
        Experts {
            hidden_size,
            intermediate_size: moe.intermediate_size / ranks.expert_slices(),
            top_k: moe.top_k,
            num_experts: moe.num_experts,
            local_experts: ranks.local_experts(moe.num_experts),
            token_replicas: ranks.data,
            weights: moe.weights,
        }
    }

    /// Token-expert pairs that come to this rank for each of its replica's tokens.
    pub fn pairs_per_token(&self) -> f64 {
        self.pairs(self.token_replicas)
    }

    fn pairs(&self, num_tokens: u64) -> f64 {
        num_tokens as f64 * self.top_k as f64 * self.local_share()
    }

    fn local_share(&self) -> f64 {
        self.local_experts as f64 / self.num_experts as f64
    }

    /// Bytes of the experts that this rank stores.
    pub fn stored_bytes(&self) -> f64 {
        expert_weight_bytes(self.local_experts as f64, self.hidden_size, self.intermediate_size, self.weights)
    }

    /// FLOPs and bytes for the tokens of all replicas, `active` of the layer's experts being visited.
    pub fn work(&self, num_tokens: u64, active: f64, activation: DType) -> (f64, f64) {
        let (hidden, width, pairs) = (self.hidden_size, self.intermediate_size, self.pairs(num_tokens));
        let read = expert_weight_bytes(active * self.local_share(), hidden, width, self.weights);
        let moved = expert_activation_bytes(pairs, hidden, width, self.weights, activation);
        (experts_flops(pairs, hidden, width), read + moved)
    }

    pub fn kernel(&self, num_tokens: u64) -> Kernel {
        Kernel::Moe {
            num_tokens,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            top_k: self.top_k,
            num_experts: self.num_experts,
            local_experts: self.local_experts,
            weights: self.weights,
        }
    }

    pub fn template(self) -> Template {
        Template { name: "experts", group: OperatorGroup::Experts, work: Work::Experts(self), calls: 1 }
    }
}

/// The matrices of a mixture that every token meets: router (replicated), shared gate (replicated), shared experts.
pub(super) fn dense_matrices(hidden: u64, moe: &Moe, ranks: Ranks) -> Vec<Matrix> {
    let mut matrices = vec![Matrix::new("router", moe.num_experts, hidden, moe.router_weights)];
    if let Some(shared) = &moe.shared {
        matrices.extend(ffn_matrices(hidden, shared, ranks, true));
        if moe.shared_gate {
            matrices.push(Matrix::new("shared_gate", 1, hidden, moe.router_weights));
        }
    }
    matrices
}
