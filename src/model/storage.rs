//! Sets the storage formats of the layers, from the checkpoint's rules for representative modules of each layer.

use super::family::Family;
use super::pattern::ModuleName;
use super::quantisation::Quantisation;
use super::shape::{Attention, LayerGroup};
use crate::dtype::WeightFormat;
use crate::input::Log;

/// Storage of one layer's modules.
pub(super) struct Storage<'a> {
    pub(super) quantisation: &'a Quantisation,
    pub(super) family: &'a Family,
    pub(super) plain: WeightFormat,
    pub(super) log: &'a Log,
}

impl Storage<'_> {
    /// Sets the formats of layer number `index`. Routers stay unquantised, as engines keep them.
    pub(super) fn apply(&self, index: usize, layer: &mut LayerGroup) {
        if self.quantisation.is_empty() {
            return;
        }
        let (mlp, moe) = (self.family.dense_module, self.family.moe_module);
        let up: &[&str] = if self.family.fused_projections { &["gate_up_proj"] } else { &["gate_proj", "up_proj"] };
        let block = |module: &str| -> Vec<String> {
            up.iter().chain(&["down_proj"]).map(|projection| format!("{module}.{projection}")).collect()
        };
        match &mut layer.attention {
            Attention::Gqa(gqa) => {
                let mut inputs: &[&str] = &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
                if self.family.fused_projections {
                    inputs = &["self_attn.qkv_proj"];
                } else if gqa.k_eq_v {
                    inputs = &["self_attn.q_proj", "self_attn.k_proj"];
                }
                gqa.qkv_weights = self.format(index, inputs, false);
                gqa.o_weights = self.format(index, &["self_attn.o_proj"], false);
            }
            Attention::Mla(mla) => {
                let query = if mla.q_lora_rank.is_some() { "self_attn.q_b_proj" } else { "self_attn.q_proj" };
                mla.weights = self.format(index, &["self_attn.o_proj", query, "self_attn.kv_b_proj"], false);
            }
        }
        if let Some(dense) = &mut layer.dense {
            dense.weights = self.format(index, &block(mlp), false);
        }
        if let Some(experts) = &mut layer.moe {
            let names: Vec<String> = if moe == "block_sparse_moe" {
                ["w1", "w3", "w2"].iter().map(|w| format!("{moe}.experts.0.{w}")).collect()
            } else {
                block(&format!("{moe}.experts.0"))
            };
            experts.weights = self.format(index, &names, true);
            if let Some(shared) = &mut experts.shared {
                // DeepSeek and GLM name the block in the plural, Qwen and Llama-4 in the singular.
                let plural = matches!(self.family.ffn, super::family::FfnRule::FirstDense);
                let name = if plural { "shared_experts" } else { "shared_expert" };
                shared.weights = self.format(index, &block(&format!("{moe}.{name}")), false);
            }
        }
    }

    /// The LM head is stored plainly unless the checkpoint names it.
    pub(super) fn lm_head(&self) -> WeightFormat {
        self.quantisation.named_only_format(&ModuleName::new("lm_head")).unwrap_or(self.plain)
    }

    fn format(&self, index: usize, modules: &[impl AsRef<str>], is_expert: bool) -> WeightFormat {
        let stored = |module: &str| {
            let name = ModuleName::new(&format!("layers.{index}.{module}"));
            self.quantisation.layer_format(&name, is_expert).unwrap_or(self.plain)
        };
        let Some((first, others)) = modules.split_first() else { return self.plain };
        let (first, format) = (first.as_ref(), stored(first.as_ref()));
        if others.iter().any(|module| stored(module.as_ref()) != format) {
            self.log.note(format!("{first} and its neighbours are stored differently; all are taken as {format}"));
        }
        format
    }
}
