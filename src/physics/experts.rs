//! The routed experts of a layer that one rank holds.

use crate::dtype::WeightFormat;
use crate::model::Moe;

use super::moe::{MoeShape, expert_weight_bytes};
use super::ranks::Ranks;

/// Routed experts of one layer on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// Width of the experts' inputs and outputs: the residual stream's, or that of their latent space.
    pub hidden_size: u64,
    /// Width of one expert on this rank (already divided by the tensor-parallel size where that applies).
    pub intermediate_size: u64,
    /// Three matrices to an expert instead of two.
    pub gated: bool,
    /// Experts per token.
    pub top_k: u64,
    /// Experts of the layer.
    pub num_experts: u64,
    /// Experts on this rank.
    pub local_experts: u64,
    /// Data-parallel replicas whose tokens come to this rank.
    pub token_replicas: u64,
    /// Storage of the experts.
    pub weights: WeightFormat,
}

/// Multiple of an mxfp4 expert's hidden size.
const HIDDEN_TILE: u64 = 256;
/// Multiple of an mxfp4 expert's width on a rank.
const WIDTH_TILE: u64 = 128;

impl Experts {
    pub(super) fn new(hidden_size: u64, moe: &Moe, ranks: Ranks) -> Self {
        Experts {
            hidden_size: moe.latent_size.unwrap_or(hidden_size),
            intermediate_size: moe.intermediate_size / ranks.expert_slices(),
            gated: moe.gated,
            top_k: moe.top_k,
            num_experts: moe.num_experts,
            local_experts: ranks.local_experts(moe.num_experts),
            token_replicas: ranks.data,
            weights: moe.weights,
        }
    }

    /// The fused kernel's shape for `tokens`, uniformly routed, with activations of these widths.
    pub fn shape(&self, tokens: f64, input_bytes: f64, output_bytes: f64) -> MoeShape {
        MoeShape {
            tokens,
            hidden: self.hidden_size as f64,
            intermediate: self.intermediate_size as f64,
            gated: self.gated,
            top_k: self.top_k as f64,
            experts: self.num_experts as f64,
            local_experts: self.local_experts as f64,
            weight_bytes: self.weights.bytes_per_weight(),
            input_bytes,
            output_bytes,
        }
    }

    /// Elements of the weights of so many of this rank's experts.
    pub(super) fn elements(&self, experts: u64) -> f64 {
        expert_weight_bytes(experts as f64, self.hidden_size as f64, self.intermediate_size as f64, self.gated, 1.0)
    }

    /// Elements that the rank allocates for so many of its experts. Widths of mxfp4 are whole tiles of Marlin's kernel.
    ///
    /// # Source
    /// vLLM 0.10 to 0.24, `Mxfp4MoEMethod.create_weights` (`vllm/model_executor/layers/quantization/mxfp4.py`). gpt-oss-120b has 60.8 GiB of
    /// weights by their elements and 66.0 by these; logs of its servers have 66.0 (0.10.1) and 64.4 (0.14.1, whose kernel pads less).
    pub(super) fn allocated_elements(&self, experts: u64) -> f64 {
        let (hidden, width) = (self.hidden_size, self.intermediate_size);
        let (hidden, width) = match self.weights {
            WeightFormat::Mxfp4 => (hidden.next_multiple_of(HIDDEN_TILE), width.next_multiple_of(WIDTH_TILE)),
            _ => (hidden, width),
        };
        Experts { hidden_size: hidden, intermediate_size: width, ..*self }.elements(experts)
    }

    /// Token-expert pairs that come to this rank for each token of its replica.
    pub(super) fn pairs_per_token(&self) -> f64 {
        let local_share = self.local_experts as f64 / self.num_experts as f64;
        self.token_replicas as f64 * self.top_k as f64 * local_share
    }
}
