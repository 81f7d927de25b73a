//! Reads the dense feed-forward block and the experts of every layer.
#![expect(clippy::cast_possible_truncation, reason = "layers are limited when they are read")]

use serde_json::Value;

use super::family::{FfnRule, LayerKind};
use super::shape::{DenseFfn, Moe};
use super::sizes::{LayerReader, check_length, optional_count, optional_size, size};
use crate::input::Keys;

/// The part of a layer after its attention.
pub(super) type Block = (Option<DenseFfn>, Option<Moe>);

/// Returns the blocks of every layer, in order.
pub(super) fn layers(of: &LayerReader<'_>) -> Vec<Block> {
    let LayerReader { text, family, hidden_size, num_layers, .. } = *of;
    let each = |block: Block| vec![block; num_layers as usize];
    match family.ffn {
        FfnRule::Dense => {
            if let Some(num_experts) = optional_count(text, "num_experts").filter(|number| *number > 1) {
                text.log.note(format!(
                    "num_experts = {num_experts} is not used: layers of this model_type have no experts"
                ));
            }
            each((Some(of.dense("intermediate_size")), None))
        }
        FfnRule::AllExperts => {
            let mut moe = of.routed("intermediate_size");
            moe.bias = family.expert_bias;
            moe.shared = of.shared("shared_intermediate_size");
            moe.extra_params = if text.flag("use_routing_bias").unwrap_or(false) { moe.num_experts } else { 0 };
            each((None, Some(moe)))
        }
        FfnRule::QwenSparse => of.qwen(),
        FfnRule::Interleaved => of.llama4(),
        FfnRule::FirstDense => of.deepseek(),
        FfnRule::ByLayerKind => of.nemotron(),
        FfnRule::DenseBesideExperts => {
            let moe = text.flag("enable_moe_block").unwrap_or(false).then(|| {
                let moe = of.routed("moe_intermediate_size");
                // The router scales its input (hidden_size) and each expert's output (num_experts).
                Moe { extra_params: hidden_size + moe.num_experts, ..moe }
            });
            each((Some(of.dense("intermediate_size")), moe))
        }
    }
}

impl LayerReader<'_> {
    fn block(&self, intermediate_size: u64) -> DenseFfn {
        DenseFfn { intermediate_size, gated: self.family.gated, bias: false, weights: self.plain }
    }

    fn dense(&self, key: &str) -> DenseFfn {
        let block = self.block(size(self.text, key));
        DenseFfn { bias: self.text.flag("mlp_bias").unwrap_or(false), ..block }
    }

    /// The shared experts, if their width is above 0.
    fn shared(&self, width_key: &str) -> Option<DenseFfn> {
        optional_count(self.text, width_key).filter(|width| *width > 0).map(|width| self.block(width))
    }

    fn routed(&self, width_key: &str) -> Moe {
        let (num_experts, top_k) = (size(self.text, "num_experts"), size(self.text, "num_experts_per_tok"));
        if top_k > num_experts {
            self.text.problem("num_experts_per_tok", format!("must not exceed the {num_experts} experts"));
        }
        Moe {
            num_experts,
            top_k,
            intermediate_size: size(self.text, width_key),
            gated: self.family.gated,
            latent_size: None,
            bias: false,
            extra_params: 0,
            weights: self.plain,
            router_weights: self.plain,
            latent_weights: self.plain,
            shared: None,
            shared_gate: false,
        }
    }

    /// One block per layer: experts where `is_sparse`, else the dense one, whose width is only needed if a layer has it.
    fn mixed(&self, dense_key: &str, moe: Moe, is_sparse: impl Fn(u64) -> bool) -> Vec<Block> {
        let sparse: Vec<bool> = (0..self.num_layers).map(is_sparse).collect();
        let dense = sparse.contains(&false).then(|| self.dense(dense_key));
        sparse.into_iter().map(|s| if s { (None, Some(moe.clone())) } else { (dense.clone(), None) }).collect()
    }

    fn qwen(&self) -> Vec<Block> {
        let shared = self.shared("shared_expert_intermediate_size");
        let moe = Moe { shared_gate: shared.is_some(), shared, ..self.routed("moe_intermediate_size") };
        let step = optional_size(self.text, "decoder_sparse_step").unwrap_or(1);
        let dense_layers = self.text.wholes("mlp_only_layers").unwrap_or_default();
        check_indices(self.text, "mlp_only_layers", &dense_layers, self.num_layers);
        self.mixed("intermediate_size", moe, |layer| (layer + 1).is_multiple_of(step) && !dense_layers.contains(&layer))
    }

    /// Nemotron-H: one kind of part in each layer, without gates.
    ///
    /// # Source
    /// vLLM, `NemotronHMLP` and `NemotronHMoE` (`vllm/model_executor/models/nemotron_h.py`).
    fn nemotron(&self) -> Vec<Block> {
        let has = |kind| self.kinds.contains(&kind);
        let dense = has(LayerKind::Dense).then(|| self.dense("intermediate_size"));
        let moe = has(LayerKind::Experts).then(|| {
            let moe = self.routed("moe_intermediate_size");
            let num_shared = optional_count(self.text, "n_shared_experts").filter(|number| *number > 0);
            let shared =
                num_shared.map(|number| self.block(number * size(self.text, "moe_shared_expert_intermediate_size")));
            let latent_size = optional_size(self.text, "moe_latent_size");
            Moe { latent_size, extra_params: moe.num_experts, shared, ..moe }
        });
        let block = |kind: &LayerKind| match kind {
            LayerKind::Dense => (dense.clone(), None),
            LayerKind::Experts => (None, moe.clone()),
            LayerKind::Attention | LayerKind::State => (None, None),
        };
        self.kinds.iter().map(block).collect()
    }

    fn llama4(&self) -> Vec<Block> {
        let mut moe = self.routed("intermediate_size");
        moe.shared = Some(self.block(moe.intermediate_size));
        let listed = self.text.wholes("moe_layers").filter(|layers| !layers.is_empty());
        let step = if listed.is_some() { 1 } else { size(self.text, "interleave_moe_layer_step") };
        check_indices(self.text, "moe_layers", listed.as_deref().unwrap_or_default(), self.num_layers);
        self.mixed("intermediate_size_mlp", moe, |layer| match &listed {
            Some(list) => list.contains(&layer),
            None => (layer + 1).is_multiple_of(step),
        })
    }

    fn deepseek(&self) -> Vec<Block> {
        let LayerReader { text, family, num_layers, .. } = *self;
        let mut moe = self.routed("moe_intermediate_size");
        let num_shared = optional_count(text, "n_shared_experts").filter(|number| *number > 0);
        let shared_width = optional_size(text, "moe_shared_expert_intermediate_size").unwrap_or(moe.intermediate_size);
        moe.shared = num_shared.map(|number| self.block(number * shared_width));
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
            return self.mixed(dense_key, moe, |layer| listed.get(layer as usize).is_some_and(|sparse| *sparse != 0));
        }
        let every = optional_size(text, "moe_layer_freq").unwrap_or(1);
        self.mixed(dense_key, moe, |layer| layer >= first && layer.is_multiple_of(every))
    }
}

fn check_indices(text: &Keys<'_>, key: &str, layers: &[u64], num_layers: u64) {
    if let Some(layer) = layers.iter().find(|layer| **layer >= num_layers) {
        text.problem(key, format!("names layer {layer}, but the last layer is {}", num_layers - 1));
    }
}
