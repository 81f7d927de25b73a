//! The weights of a model: how many there are, and what they take as they are stored.

use serde::Serialize;

use crate::deployment::Deployment;
use crate::model::{Attention, DenseFfn, LayerGroup, Model};

use super::moe::expert_weight_bytes;
use super::names::OperatorKind::{KvBProjContext, QAbsorb, VUp};
use super::projection::kv_heads_per_rank;
use super::ranks::Context;
use super::weights::{attention_matrices, feed_forward_matrices};

/// Number of parameters of a model; exact below 2⁵³.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ParameterCounts {
    /// All parameters; tied embeddings count once. Vision towers and multi-token prediction do not count.
    pub total: u64,
    /// Parameters that one token uses: all but the experts it does not visit. The embedding counts whole, as on most
    /// model cards.
    pub active: u64,
    /// Parameters of the input embedding.
    pub embedding: u64,
}

/// Weights that share a storage format.
struct Part {
    /// Elements.
    total: f64,
    /// Elements that one token uses.
    active: f64,
    /// Bytes of an element.
    bytes: f64,
}

impl Model {
    /// Counts the parameters from the shape.
    pub fn parameters(&self) -> ParameterCounts {
        let parts = parts(self);
        ParameterCounts {
            total: parts.iter().map(|part| part.total).sum::<f64>() as u64,
            active: parts.iter().map(|part| part.active).sum::<f64>() as u64,
            embedding: self.vocab_size * self.hidden_size,
        }
    }

    /// Returns the bytes of all stored weights, with their scales.
    pub fn weight_bytes(&self) -> f64 {
        parts(self).iter().map(|part| part.total * part.bytes).sum()
    }
}

fn parts(model: &Model) -> Vec<Part> {
    let context = Context::new(model, &Deployment::default());
    let whole = |elements: f64, bytes: f64| Part { total: elements, active: elements, bytes };
    let plain = model.dtype.bytes();
    let table = (model.vocab_size * model.hidden_size) as f64;
    let mut parts = vec![whole(table + model.hidden_size as f64, plain)];
    if !model.tie_word_embeddings {
        parts.push(whole(table, model.lm_head_weights.bytes_per_weight()));
    }
    for group in &model.layers {
        let layers = group.count as f64;
        // Absorbed projections are copies of the up-projection.
        let matrices = attention_matrices(group, context).into_iter().chain(feed_forward_matrices(group, context));
        let matrices = matrices.filter(|matrix| !matches!(matrix.kind, KvBProjContext | QAbsorb | VUp));
        parts.extend(matrices.map(|matrix| whole(layers * matrix.elements(), matrix.weights.bytes_per_weight())));
        let experts = group.moe.as_ref().map_or((0, 0), |moe| (moe.num_experts, moe.top_k));
        let other = |experts| layers * other_elements(group, context, experts) as f64;
        parts.push(Part { total: other(experts.0), active: other(experts.1), bytes: plain });
        if let Some(moe) = &group.moe {
            let one = layers * expert_weight_bytes(1.0, model.hidden_size as f64, moe.intermediate_size as f64, 1.0);
            let (total, active) = (experts.0 as f64 * one, experts.1 as f64 * one);
            parts.push(Part { total, active, bytes: moe.weights.bytes_per_weight() });
        }
    }
    parts
}

/// Norms, biases and other parameters outside matrices, elements of one rank with this number of experts.
pub(super) fn other_elements(group: &LayerGroup, context: Context, experts: u64) -> u64 {
    let Context { hidden, ranks, .. } = context;
    let attention = match &group.attention {
        Attention::Gqa(gqa) => {
            let heads = gqa.num_heads / ranks.tensor;
            let kv_heads = kv_heads_per_rank(gqa.num_kv_heads, ranks.tensor);
            let values = if gqa.k_eq_v { 0 } else { kv_heads * gqa.v_head_dim };
            let qkv = (heads * if gqa.output_gate { 2 } else { 1 } + kv_heads) * gqa.head_dim + values;
            let biases = qkv * u64::from(gqa.qkv_bias) + hidden * u64::from(gqa.o_bias);
            biases + gqa.qk_norm_params + gqa.extra_params / ranks.tensor
        }
        Attention::Mla(mla) => mla.kv_lora_rank + mla.q_lora_rank.unwrap_or(0),
    };
    let ffn_bias = |ffn: &DenseFfn| {
        let width = ffn.intermediate_size / ranks.tensor;
        u64::from(ffn.bias) * (hidden + width * if ffn.gated { 2 } else { 1 })
    };
    let moe = group.moe.as_ref().map_or(0, |moe| {
        let width = moe.intermediate_size / ranks.expert_slices();
        let biases = u64::from(moe.bias) * (experts * (2 * width + hidden) + moe.num_experts);
        biases + moe.extra_params + moe.shared.as_ref().map_or(0, ffn_bias)
    });
    group.norm_params + attention + moe + group.dense.as_ref().map_or(0, ffn_bias)
}
