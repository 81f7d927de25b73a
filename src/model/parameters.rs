//! Parameter counts and weight bytes of a model, with one formula per kind of layer.

use serde::Serialize;

use super::shape::{Attention, DenseFfn, GqaAttention, LayerGroup, MlaAttention, Model, Moe};
use crate::dtype::WeightFormat;

/// Sums of whole numbers below this are exact in an `f64`: 2⁵³.
pub(super) const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Number of parameters of a model.
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
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Elements.
    total: f64,
    /// Elements that one token uses.
    active: f64,
    format: WeightFormat,
}

impl Model {
    /// Counts the parameters from the shape.
    pub fn parameters(&self) -> ParameterCounts {
        let parts = parts(self);
        let sum = |each: fn(&(f64, Part)) -> f64| exact(parts.iter().map(each).sum());
        ParameterCounts {
            total: sum(|(count, part)| count * part.total),
            active: sum(|(count, part)| count * part.active),
            embedding: exact(size(self.vocab_size) * size(self.hidden_size)),
        }
    }

    /// Returns the bytes of all stored weights, with their scales.
    pub fn weight_bytes(&self) -> f64 {
        parts(self).iter().map(|(count, part)| count * part.total * part.format.bytes_per_weight()).sum()
    }
}

/// Returns the number of parameters, which is inexact above [`MAX_EXACT`].
pub(super) fn total(model: &Model) -> f64 {
    parts(model).iter().map(|(count, part)| count * part.total).sum()
}

/// Returns every part with the number of layers that have it.
fn parts(model: &Model) -> Vec<(f64, Part)> {
    let hidden = size(model.hidden_size);
    let plain = WeightFormat::Plain(model.dtype);
    let table = size(model.vocab_size) * hidden;
    let mut parts = vec![(1.0, whole(table, plain)), (1.0, whole(hidden, plain))];
    if !model.tie_word_embeddings {
        parts.push((1.0, whole(table, model.lm_head_weights)));
    }
    for group in &model.layers {
        parts.extend(layer(group, hidden, plain).into_iter().map(|part| (size(group.count), part)));
    }
    parts
}

fn layer(group: &LayerGroup, hidden: f64, plain: WeightFormat) -> Vec<Part> {
    let mut parts = vec![whole(size(group.norm_params), plain)];
    match &group.attention {
        Attention::Gqa(gqa) => parts.extend(grouped_query(gqa, hidden, plain)),
        Attention::Mla(mla) => parts.extend(latent(mla, hidden, plain)),
    }
    if let Some(dense) = &group.dense {
        parts.extend(feed_forward(dense, hidden, plain));
    }
    if let Some(moe) = &group.moe {
        parts.extend(experts(moe, hidden, plain));
    }
    parts
}

fn grouped_query(gqa: &GqaAttention, hidden: f64, plain: WeightFormat) -> [Part; 3] {
    let gates = if gqa.output_gate { 2.0 } else { 1.0 };
    let query = size(gqa.num_heads) * size(gqa.head_dim) * gates;
    let key = size(gqa.num_kv_heads) * size(gqa.head_dim);
    let value = if gqa.k_eq_v { 0.0 } else { size(gqa.num_kv_heads) * size(gqa.v_head_dim) };
    let output = size(gqa.num_heads) * size(gqa.v_head_dim);
    let qkv = query + key + value;
    let small = size(gqa.qk_norm_params)
        + size(gqa.extra_params)
        + if gqa.qkv_bias { qkv } else { 0.0 }
        + if gqa.o_bias { hidden } else { 0.0 };
    [whole(qkv * hidden, gqa.qkv_weights), whole(output * hidden, gqa.o_weights), whole(small, plain)]
}

fn latent(mla: &MlaAttention, hidden: f64, plain: WeightFormat) -> [Part; 2] {
    let heads = size(mla.num_heads);
    let kv_rank = size(mla.kv_lora_rank);
    let rope = size(mla.qk_rope_head_dim);
    let query_width = heads * (size(mla.qk_nope_head_dim) + rope);
    let (query, query_norm) = match mla.q_lora_rank {
        None => (hidden * query_width, 0.0),
        Some(rank) => (size(rank) * (hidden + query_width), size(rank)),
    };
    let down = hidden * (kv_rank + rope);
    let up = kv_rank * heads * (size(mla.qk_nope_head_dim) + size(mla.v_head_dim));
    let output = heads * size(mla.v_head_dim) * hidden;
    [whole(query + down + up + output, mla.weights), whole(query_norm + kv_rank, plain)]
}

fn feed_forward(dense: &DenseFfn, hidden: f64, plain: WeightFormat) -> [Part; 2] {
    let (matrices, bias) = block(size(dense.intermediate_size), dense.gated, hidden);
    [whole(matrices, dense.weights), whole(if dense.bias { bias } else { 0.0 }, plain)]
}

fn experts(moe: &Moe, hidden: f64, plain: WeightFormat) -> Vec<Part> {
    let (matrices, bias) = block(size(moe.intermediate_size), true, hidden);
    let bias = if moe.bias { bias } else { 0.0 };
    let (all, visited) = (size(moe.num_experts), size(moe.top_k));
    let router_bias = if moe.bias { all } else { 0.0 };
    let gate = if moe.shared_gate { hidden } else { 0.0 };
    let mut parts = vec![
        Part { total: all * matrices, active: visited * matrices, format: moe.weights },
        Part { total: all * bias, active: visited * bias, format: plain },
        whole(all * hidden, moe.router_weights),
        whole(router_bias + gate + size(moe.extra_params), plain),
    ];
    if let Some(shared) = &moe.shared {
        parts.extend(feed_forward(shared, hidden, plain));
    }
    parts
}

/// Returns the elements of a feed-forward block's matrices and of its biases.
fn block(width: f64, gated: bool, hidden: f64) -> (f64, f64) {
    let inputs = if gated { 2.0 } else { 1.0 };
    ((inputs + 1.0) * width * hidden, inputs * width + hidden)
}

fn whole(elements: f64, format: WeightFormat) -> Part {
    Part { total: elements, active: elements, format }
}

/// Sizes are checked to lie below 2⁴⁰ and their products below 2⁵³, so nothing is rounded.
#[allow(clippy::cast_precision_loss)]
fn size(n: u64) -> f64 {
    n as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn exact(n: f64) -> u64 {
    n as u64
}
