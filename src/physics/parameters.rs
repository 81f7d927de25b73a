//! The weights of a model: how many there are, and what they take as they are stored.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of whole numbers; floats saturate")]

use serde::Serialize;

use crate::deployment::Deployment;
use crate::model::{Attention, DenseFfn, LayerGroup, Model};

use super::experts::Experts;
use super::ranks::Context;
use super::weights::{qkv_width, stored_matrices};
use super::{sparse, state};

/// Number of parameters of a model; exact below 2⁵³.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
pub(super) struct Part {
    /// Elements.
    total: f64,
    /// Elements that one token uses.
    active: f64,
    /// Bytes of an element.
    bytes: f64,
}

impl Part {
    fn whole(elements: f64, bytes: f64) -> Self {
        Part { total: elements, active: elements, bytes }
    }

    pub fn stored_bytes(&self) -> f64 {
        self.total * self.bytes
    }
}

impl Model {
    /// Counts the parameters from the shape.
    pub fn parameters(&self) -> ParameterCounts {
        let parts = parts(self);
        let sum = |of: fn(&Part) -> f64| parts.iter().map(|(count, part)| count * of(part)).sum::<f64>() as u64;
        ParameterCounts {
            total: sum(|part| part.total),
            active: sum(|part| part.active),
            embedding: self.vocab_size * self.hidden_size,
        }
    }

    /// Returns the bytes of all stored weights, with their scales and with the towers.
    pub fn weight_bytes(&self) -> f64 {
        parts(self).iter().map(|(count, part)| count * part.stored_bytes()).sum::<f64>() + tower_bytes(self)
    }
}

/// Bytes of the vision and audio towers, which are stored in the model's number format.
pub(super) fn tower_bytes(model: &Model) -> f64 {
    model.tower_params.unwrap_or(0) as f64 * model.dtype.bytes()
}

/// Returns every part of a model with the number of layers that have it.
fn parts(model: &Model) -> Vec<(f64, Part)> {
    let context = Context::new(model, &Deployment::default());
    let plain = model.dtype.bytes();
    let table = (model.vocab_size * model.hidden_size) as f64;
    let mut parts = vec![(1.0, Part::whole(table + model.hidden_size as f64, plain))];
    if !model.tie_word_embeddings {
        parts.push((1.0, Part::whole(table, model.lm_head_weights.bytes_per_weight())));
    }
    for group in &model.layers {
        parts.extend(layer_parts(group, context, false).into_iter().map(|part| (group.count as f64, part)));
    }
    parts
}

/// Returns the parts of a layer that one rank stores: as the engine allocates them, with [copies](stored_matrices) and whole tiles, or as the
/// checkpoint has them.
pub(super) fn layer_parts(group: &LayerGroup, context: Context, as_allocated: bool) -> Vec<Part> {
    let matrices = stored_matrices(group, context, as_allocated);
    let mut parts: Vec<Part> =
        matrices.map(|matrix| Part::whole(matrix.elements(), matrix.weights.bytes_per_weight())).collect();
    let (mut all, mut visited) = (0, 0);
    if let Some(moe) = &group.moe {
        let experts = Experts::new(context.hidden, moe, context.ranks);
        (all, visited) = (experts.local_experts, experts.top_k);
        let elements =
            |number| if as_allocated { experts.allocated_elements(number) } else { experts.elements(number) };
        parts.push(Part { total: elements(all), active: elements(visited), bytes: moe.weights.bytes_per_weight() });
    }
    let other = |experts| other_elements(group, context, experts) as f64;
    parts.push(Part { total: other(all), active: other(visited), bytes: context.activation.bytes() });
    parts
}

/// Norms, biases and other parameters outside matrices, elements of one rank with this number of experts.
fn other_elements(group: &LayerGroup, context: Context, experts: u64) -> u64 {
    let Context { hidden, ranks, .. } = context;
    let attention = match &group.attention {
        Attention::Gqa(gqa) => {
            let biases = qkv_width(gqa, ranks) * u64::from(gqa.qkv_bias) + hidden * u64::from(gqa.o_bias);
            biases + gqa.qk_norm_params + gqa.extra_params / ranks.tensor
        }
        Attention::Mla(mla) => {
            let norms = mla.kv_lora_rank + mla.q_lora_rank.unwrap_or(0);
            // The norm of index keys, a `LayerNorm`, has a weight and a bias.
            norms + sparse::indexer(mla).map_or(0, |indexer| 2 * indexer.head_dim)
        }
        Attention::State(mixer) => state::other_elements(mixer, context),
        Attention::None => 0,
    };
    let ffn_bias = |ffn: &DenseFfn| {
        let width = ffn.intermediate_size / ranks.tensor;
        u64::from(ffn.bias) * (hidden + width * if ffn.gated { 2 } else { 1 })
    };
    let moe = group.moe.as_ref().map_or(0, |moe| {
        let width = moe.intermediate_size / ranks.expert_slices();
        let biases =
            u64::from(moe.bias) * (experts * (if moe.gated { 2 } else { 1 } * width + hidden) + moe.num_experts);
        biases + moe.extra_params + moe.shared.as_ref().map_or(0, ffn_bias)
    });
    group.norm_params + attention + moe + group.dense.as_ref().map_or(0, ffn_bias)
}
