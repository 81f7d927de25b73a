//! Reads the indexer of sparse attention, and which layers have one (DeepSeek-V3.2, GLM-5).

use super::family::Family;
use super::shape::{Indexer, SparseAttention};
use super::sizes::{check_length, optional_count, optional_size, size};
use crate::dtype::WeightFormat;
use crate::input::Keys;

/// Layers from the first on that have an indexer of their own, if only some do, and the file does not say
/// (`index_skip_topk_offset`; vLLM, `DeepseekV2MLAAttention`).
const DEFAULT_OFFSET: u64 = 2;

/// Returns the sparse attention of every layer; `None` for each in families without an indexer.
///
/// `index_topk_pattern` names layers with an indexer (`F`) and those that use the picks of an earlier one (`S`). Without it, every
/// `index_topk_freq`th layer has one, counted from `index_skip_topk_offset − 1`, and all layers before.
pub(super) fn layers(
    text: &Keys<'_>,
    family: &Family,
    num_layers: u64,
    plain: WeightFormat,
) -> Vec<Option<SparseAttention>> {
    if !family.sparse {
        return (0..num_layers).map(|_| None).collect();
    }
    let topk = size(text, "index_topk");
    let (num_heads, head_dim) = (size(text, "index_n_heads"), size(text, "index_head_dim"));
    // The indexer projects the query's latent.
    text.require(&["q_lora_rank"]);
    if !head_dim.is_multiple_of(128) {
        text.problem("index_head_dim", "must be a multiple of 128, which is how many values of a key share a scale");
    }
    let indexer = Indexer { num_heads, head_dim, query_weights: plain, key_weights: plain };
    let frequency = optional_size(text, "index_topk_freq").unwrap_or(1);
    let offset = optional_count(text, "index_skip_topk_offset").unwrap_or(DEFAULT_OFFSET);
    let by_frequency = |layer: u64| (layer + 1).saturating_sub(offset).is_multiple_of(frequency);
    let pattern = text.text("index_topk_pattern").map(|pattern| pattern.chars().collect::<Vec<char>>());
    if let Some(pattern) = &pattern {
        check_length(text, "index_topk_pattern", pattern.len(), num_layers);
        if pattern.iter().any(|kind| !matches!(kind, 'F' | 'S')) {
            text.problem(
                "index_topk_pattern",
                "must have F for a layer with an indexer and S for one that shares picks",
            );
        }
    }
    let listed = text.texts("indexer_types");
    let has_indexer = |layer: u64| match &pattern {
        Some(pattern) => usize::try_from(layer).ok().and_then(|at| pattern.get(at)) != Some(&'S'),
        None => by_frequency(layer),
    };
    if let Some(listed) = &listed {
        check_length(text, "indexer_types", listed.len(), num_layers);
        let differs = |(layer, kind): (u64, &&str)| (*kind == "full") != has_indexer(layer);
        if let Some(layer) = (0..).zip(listed).position(differs) {
            text.problem(
                "indexer_types",
                format!("contradicts index_topk_freq and index_topk_pattern at layer {layer}"),
            );
        }
    }
    if !has_indexer(0) {
        text.problem("index_topk_pattern", "must begin with F: the first layer has no earlier picks to share");
    }
    (0..num_layers)
        .map(|layer| Some(SparseAttention { topk, indexer: has_indexer(layer).then_some(indexer) }))
        .collect()
}
