//! Mixture of experts: visited experts, and the FLOPs and bytes of the routed ones.
//!
//! Without expert parallelism every expert is sliced over all tensor- and data-parallel ranks; with it each rank holds
//! whole experts. Either way, with data parallelism the experts see the tokens of all replicas: a step's requests are
//! those of one replica, and the others are assumed to run the same batch.
//!
//! FLOPs and bytes count uniform routing. The effect of skewed routing is in the efficiencies of the tables: above 16 experts they
//! were measured under a power law.

use super::work::{Shape, Work};

/// Experts that at least one of `num_tokens` tokens visits, in expectation.
///
/// # Formula
/// `E·(1 − (1 − k/E)^T)`.
///
/// # Source
/// Each token misses an expert with probability `1 − k/E`, if tokens are independent and routing is uniform.
///
/// ```
/// use ridgepoint::physics::moe::expected_active_experts;
/// assert_eq!(expected_active_experts(8.0, 2.0, 1.0), 2.0);
/// assert_eq!(expected_active_experts(8.0, 2.0, 2.0), 3.5);
/// ```
pub fn expected_active_experts(num_experts: f64, top_k: f64, num_tokens: f64) -> f64 {
    let num_experts = num_experts.max(top_k);
    num_experts * (1.0 - (1.0 - top_k / num_experts).powf(num_tokens))
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

/// Matrices of an expert: up and down, and gate.
fn matrices(gated: bool) -> f64 {
    if gated { 3.0 } else { 2.0 }
}

/// FLOPs of experts for `pairs` token-expert pairs.
///
/// # Formula
/// `2·3·d·f·pairs`: gate, up and down matrices; `2·2·d·f·pairs` without gate.
///
/// # Source
/// SwiGLU experts, as in Mixtral (Jiang et al., 2024). vLLM, `NemotronHMoE`, has none.
///
/// ```
/// assert_eq!(ridgepoint::physics::moe::experts_flops(10.0, 4.0, 8.0, true), 1920.0);
/// assert_eq!(ridgepoint::physics::moe::experts_flops(10.0, 4.0, 8.0, false), 1280.0);
/// ```
pub fn experts_flops(pairs: f64, hidden: f64, intermediate: f64, gated: bool) -> f64 {
    2.0 * matrices(gated) * pairs * hidden * intermediate
}

/// Bytes of the weights of `experts` experts.
///
/// # Formula
/// `experts·3·d·f·b_weight`; 2 without gate.
///
/// ```
/// assert_eq!(ridgepoint::physics::moe::expert_weight_bytes(2.0, 4.0, 8.0, true, 1.0), 192.0);
/// ```
pub fn expert_weight_bytes(experts: f64, hidden: f64, intermediate: f64, gated: bool, weight_bytes: f64) -> f64 {
    matrices(gated) * experts * hidden * intermediate * weight_bytes
}

/// Bytes of activations that the fused kernel moves: two grouped matrix multiplications with the activation function as
/// a kernel between them.
///
/// # Formula
/// Per pair: `d·b_in` read, `2f` written and read, `f` written, `f·b_in` read, `d` written, in `b_out` where not given;
/// `b_in` is the size of the matrix unit's operand. Without gate `f` is written and read in place of `2f`.
///
/// # Source
/// vLLM, `fused_experts_impl` (`fused_moe/fused_moe.py`): its two intermediate caches go through device memory.
///
/// ```
/// use ridgepoint::physics::moe::expert_activation_bytes;
/// assert_eq!(expert_activation_bytes(1.0, 4.0, 8.0, true, 2.0, 2.0), 2.0 * (4.0 + 48.0 + 4.0));
/// assert_eq!(expert_activation_bytes(1.0, 4.0, 8.0, false, 2.0, 2.0), 2.0 * (4.0 + 32.0 + 4.0));
/// ```
pub fn expert_activation_bytes(
    pairs: f64,
    hidden: f64,
    intermediate: f64,
    gated: bool,
    input_bytes: f64,
    output_bytes: f64,
) -> f64 {
    let passed_on = if gated { 5.0 } else { 3.0 };
    pairs * ((hidden + intermediate) * input_bytes + (passed_on * intermediate + hidden) * output_bytes)
}

/// Routed experts of one layer on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MoeShape {
    /// Tokens before routing.
    pub tokens: f64,
    /// Width of the experts' inputs and outputs.
    pub hidden: f64,
    /// Width of an expert on this rank.
    pub intermediate: f64,
    /// Three matrices to an expert instead of two.
    pub gated: bool,
    /// Experts per token.
    pub top_k: f64,
    /// Experts of the layer.
    pub experts: f64,
    /// Experts on this rank.
    pub local_experts: f64,
    /// Bytes of a weight.
    pub weight_bytes: f64,
    /// Bytes of an activation as the matrix unit reads it.
    pub input_bytes: f64,
    /// Bytes of an activation as kernels write it.
    pub output_bytes: f64,
}

impl MoeShape {
    /// Token-expert pairs that come to this rank, on average.
    pub fn pairs(&self) -> f64 {
        self.tokens * self.top_k * self.local_experts / self.experts
    }

    /// Bytes of the weights of the visited experts.
    pub(crate) fn weight_bytes_read(&self) -> f64 {
        let MoeShape { hidden, intermediate, gated, weight_bytes, .. } = *self;
        expert_weight_bytes(self.active_experts(), hidden, intermediate, gated, weight_bytes)
    }

    /// Expected number of this rank's experts that receive at least one token.
    pub fn active_experts(&self) -> f64 {
        let active = expected_active_experts(self.experts, self.top_k, self.tokens);
        active * self.local_experts / self.experts
    }
}

impl Shape for MoeShape {
    /// See [`experts_flops`], [`expert_weight_bytes`] of the visited experts and [`expert_activation_bytes`].
    fn work(&self) -> Work {
        let MoeShape { hidden, intermediate, gated, input_bytes, output_bytes, .. } = *self;
        let pairs = self.pairs();
        let read = self.weight_bytes_read();
        let moved = expert_activation_bytes(pairs, hidden, intermediate, gated, input_bytes, output_bytes);
        Work { flops: experts_flops(pairs, hidden, intermediate, gated), bytes: read + moved }
    }
}
