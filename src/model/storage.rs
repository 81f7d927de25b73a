//! Sets the storage formats of the layers, from the checkpoint's rules for representative modules of each layer.

use super::family::{Family, FfnRule};
use super::pattern::ModuleName;
use super::quantisation::Quantisation;
use super::shape::{Attention, LayerGroup, Recurrence};
use crate::dtype::WeightFormat;
use crate::input::Log;

/// Storage of one layer's modules.
pub(super) struct Storage<'a> {
    pub(super) quantisation: &'a Quantisation,
    pub(super) family: &'a Family,
    pub(super) plain: WeightFormat,
    /// Gated delta nets have one input projection (Qwen3-Next).
    pub(super) is_fused_delta_net: bool,
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
        let block = |module: &str, gated: bool| -> Vec<String> {
            let up: &[&str] = if gated { up } else { &["up_proj"] };
            up.iter().chain(&["down_proj"]).map(|projection| format!("{module}.{projection}")).collect()
        };
        let of = |module: &str, names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{module}.{name}")).collect()
        };
        match &mut layer.attention {
            Attention::Gqa(gqa) => {
                let mut inputs: &[&str] = &["q_proj", "k_proj", "v_proj"];
                if self.family.fused_projections {
                    inputs = &["qkv_proj"];
                } else if gqa.k_eq_v {
                    inputs = &["q_proj", "k_proj"];
                }
                let module = self.family.attention_module;
                gqa.qkv_weights = self.format(index, &of(module, inputs), false);
                gqa.o_weights = self.format(index, &of(module, &["o_proj"]), false);
            }
            Attention::State(mixer) => {
                let (module, inputs, gates): (_, &[&str], &[&str]) = match mixer.recurrence {
                    Recurrence::Mamba2 => ("mixer", &["in_proj"], &["in_proj"]),
                    // Qwen3-Next stores the projections fused, Qwen3.5 apart.
                    Recurrence::GatedDeltaNet if self.is_fused_delta_net => {
                        ("linear_attn", &["in_proj_qkvz"], &["in_proj_ba"])
                    }
                    Recurrence::GatedDeltaNet => {
                        ("linear_attn", &["in_proj_qkv", "in_proj_z"], &["in_proj_b", "in_proj_a"])
                    }
                };
                mixer.in_weights = self.format(index, &of(module, inputs), false);
                mixer.gate_weights = self.format(index, &of(module, gates), false);
                mixer.out_weights = self.format(index, &of(module, &["out_proj"]), false);
            }
            Attention::None => {}
            Attention::Mla(mla) => {
                let query = if mla.q_lora_rank.is_some() { "self_attn.q_b_proj" } else { "self_attn.q_proj" };
                let inputs = [query, "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"];
                mla.weights = self.format(index, &inputs, false);
                mla.o_weights = self.format(index, &["self_attn.o_proj"], false);
                // The key's projection is fused with that of the heads' weights and so dequantised to 16 bits by vLLM.
                if let Some(indexer) = mla.sparse.as_mut().and_then(|sparse| sparse.indexer.as_mut()) {
                    indexer.query_weights = self.format(index, &["self_attn.indexer.wq_b"], false);
                }
            }
        }
        if let Some(dense) = &mut layer.dense {
            dense.weights = self.format(index, &block(mlp, dense.gated), false);
        }
        if let Some(experts) = &mut layer.moe {
            let names: Vec<String> = if moe == "block_sparse_moe" {
                ["w1", "w3", "w2"].iter().map(|w| format!("{moe}.experts.0.{w}")).collect()
            } else {
                block(&format!("{moe}.experts.0"), experts.gated)
            };
            experts.weights = self.format(index, &names, true);
            if experts.latent_size.is_some() {
                experts.latent_weights = self.format(index, &of(moe, &["fc1_latent_proj", "fc2_latent_proj"]), false);
            }
            if let Some(shared) = &mut experts.shared {
                // DeepSeek and GLM name the block in the plural, Qwen and Llama-4 in the singular.
                let plural = matches!(self.family.ffn, FfnRule::FirstDense | FfnRule::ByLayerKind);
                let name = if plural { "shared_experts" } else { "shared_expert" };
                shared.weights = self.format(index, &block(&format!("{moe}.{name}"), shared.gated), false);
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
