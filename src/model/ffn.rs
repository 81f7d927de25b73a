//! Reads the dense feed-forward block and the experts of every layer.

use serde_json::Value;

use super::family::{Family, FfnRule};
use super::shape::{DenseFfn, Moe};
use super::sizes::{check_length, optional_count, optional_size, size};
use crate::dtype::WeightFormat;
use crate::input::Keys;

/// The part of a layer after its attention.
pub(super) type Block = (Option<DenseFfn>, Option<Moe>);

/// Returns the blocks of every layer, in order, with weights stored as `plain`.
pub(super) fn layers(
    text: &Keys<'_>,
    family: &Family,
    hidden_size: u64,
    num_layers: u64,
    plain: WeightFormat,
) -> Vec<Block> {
    let each = |block: Block| vec![block; num_layers as usize];
    match family.ffn {
        FfnRule::Dense => each((Some(dense(text, "intermediate_size", plain)), None)),
        FfnRule::AllExperts => {
            let mut moe = routed(text, "intermediate_size", plain);
            moe.bias = family.expert_bias;
            moe.shared = shared(text, "shared_intermediate_size", plain);
            moe.extra_params = if text.flag("use_routing_bias").unwrap_or(false) { moe.num_experts } else { 0 };
            each((None, Some(moe)))
        }
        FfnRule::QwenSparse => qwen(text, num_layers, plain),
        FfnRule::Interleaved => llama4(text, num_layers, plain),
        FfnRule::FirstDense => deepseek(text, family, num_layers, plain),
        FfnRule::DenseBesideExperts => {
            let dense = dense(text, "intermediate_size", plain);
            let moe = text.flag("enable_moe_block").unwrap_or(false).then(|| {
                let moe = routed(text, "moe_intermediate_size", plain);
                // The router scales its input (hidden_size) and each expert's output (num_experts).
                Moe { extra_params: hidden_size.saturating_add(moe.num_experts), ..moe }
            });
            each((Some(dense), moe))
        }
    }
}

fn gated(intermediate_size: u64, weights: WeightFormat) -> DenseFfn {
    DenseFfn { intermediate_size, gated: true, bias: false, weights }
}

fn dense(text: &Keys<'_>, key: &str, plain: WeightFormat) -> DenseFfn {
    DenseFfn { bias: text.flag("mlp_bias").unwrap_or(false), ..gated(size(text, key), plain) }
}

/// The shared experts, if their width is above 0.
fn shared(text: &Keys<'_>, width_key: &str, plain: WeightFormat) -> Option<DenseFfn> {
    optional_count(text, width_key).filter(|width| *width > 0).map(|width| gated(width, plain))
}

fn routed(text: &Keys<'_>, width_key: &str, plain: WeightFormat) -> Moe {
    let (num_experts, top_k) = (size(text, "num_experts"), size(text, "num_experts_per_tok"));
    if top_k > num_experts {
        text.problem("num_experts_per_tok", format!("must not exceed the {num_experts} experts"));
    }
    Moe {
        num_experts,
        top_k,
        intermediate_size: size(text, width_key),
        bias: false,
        extra_params: 0,
        weights: plain,
        router_weights: plain,
        shared: None,
        shared_gate: false,
    }
}

/// One block per layer: experts where `is_sparse`, else the dense one, whose width is only needed if a layer has it.
fn mixed(
    text: &Keys<'_>,
    num_layers: u64,
    dense_key: &str,
    plain: WeightFormat,
    moe: Moe,
    is_sparse: impl Fn(u64) -> bool,
) -> Vec<Block> {
    let sparse: Vec<bool> = (0..num_layers).map(is_sparse).collect();
    let dense = sparse.contains(&false).then(|| dense(text, dense_key, plain));
    sparse.into_iter().map(|s| if s { (None, Some(moe.clone())) } else { (dense.clone(), None) }).collect()
}

fn qwen(text: &Keys<'_>, num_layers: u64, plain: WeightFormat) -> Vec<Block> {
    let shared = shared(text, "shared_expert_intermediate_size", plain);
    let moe = Moe { shared_gate: shared.is_some(), shared, ..routed(text, "moe_intermediate_size", plain) };
    let step = optional_size(text, "decoder_sparse_step").unwrap_or(1);
    let dense_layers = text.wholes("mlp_only_layers").unwrap_or_default();
    check_indices(text, "mlp_only_layers", &dense_layers, num_layers);
    mixed(text, num_layers, "intermediate_size", plain, moe, |layer| {
        (layer + 1).is_multiple_of(step) && !dense_layers.contains(&layer)
    })
}

fn llama4(text: &Keys<'_>, num_layers: u64, plain: WeightFormat) -> Vec<Block> {
    let mut moe = routed(text, "intermediate_size", plain);
    moe.shared = Some(gated(moe.intermediate_size, plain));
    let listed = text.wholes("moe_layers").filter(|layers| !layers.is_empty());
    let step = if listed.is_some() { 1 } else { size(text, "interleave_moe_layer_step") };
    check_indices(text, "moe_layers", listed.as_deref().unwrap_or_default(), num_layers);
    mixed(text, num_layers, "intermediate_size_mlp", plain, moe, |layer| match &listed {
        Some(list) => list.contains(&layer),
        None => (layer + 1).is_multiple_of(step),
    })
}

fn deepseek(text: &Keys<'_>, family: &Family, num_layers: u64, plain: WeightFormat) -> Vec<Block> {
    let mut moe = routed(text, "moe_intermediate_size", plain);
    match optional_count(text, "n_shared_experts").unwrap_or(0).checked_mul(moe.intermediate_size) {
        Some(0) => {}
        Some(width) => moe.shared = Some(gated(width, plain)),
        None => text.problem("n_shared_experts", "times moe_intermediate_size is too large"),
    }
    let is_corrected = match text.text("topk_method") {
        Some(method) => method == "noaux_tc",
        None => !family.model_types.contains(&"deepseek_v2"),
    };
    moe.extra_params = if is_corrected { moe.num_experts } else { 0 };
    let first = optional_count(text, "first_k_dense_replace").unwrap_or(0);
    if first > num_layers {
        text.problem("first_k_dense_replace", format!("exceeds num_hidden_layers = {num_layers}"));
    }
    let dense_key = "intermediate_size";
    if text.get("moe_layer_freq").is_some_and(Value::is_array) {
        let listed = text.wholes("moe_layer_freq").unwrap_or_default();
        check_length(text, "moe_layer_freq", listed.len(), num_layers);
        let is_sparse = |layer| listed.get(layer as usize).is_some_and(|sparse| *sparse != 0);
        return mixed(text, num_layers, dense_key, plain, moe, is_sparse);
    }
    let every = optional_size(text, "moe_layer_freq").unwrap_or(1);
    mixed(text, num_layers, dense_key, plain, moe, |layer| layer >= first && layer.is_multiple_of(every))
}

fn check_indices(text: &Keys<'_>, key: &str, layers: &[u64], num_layers: u64) {
    if let Some(layer) = layers.iter().find(|layer| **layer >= num_layers) {
        text.problem(key, format!("names layer {layer}, but the last layer is {}", num_layers - 1));
    }
}
