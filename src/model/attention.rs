//! Reads the attention of every layer.

use super::family::{AttentionRule, BiasRule, Family, QkNorm};
use super::shape::{Attention, GqaAttention, MlaAttention, Window};
use super::sizes::{optional_size, size};
use super::window;
use crate::dtype::WeightFormat;
use crate::input::Keys;

/// Returns the attention of every layer, in order, with weights stored as `plain`.
pub(super) fn layers(
    text: &Keys<'_>,
    family: &Family,
    hidden_size: u64,
    num_layers: u64,
    plain: WeightFormat,
) -> Vec<Attention> {
    if family.attention == AttentionRule::Mla {
        return vec![Attention::Mla(latent(text, plain)); num_layers as usize];
    }
    let local = Geometry::read(text, family, hidden_size);
    let global = if family.attention == AttentionRule::GqaTwoGeometries { local.global(text) } else { local };
    let (qkv_bias, o_bias) = biases(text, family.bias);
    let norm = qk_norm(text, family);
    let output_gate = text.flag("attn_output_gate").unwrap_or(false);
    let build = |window: Window| {
        let shape = if window == Window::Full { global } else { local };
        Attention::Gqa(GqaAttention {
            num_heads: shape.heads,
            num_kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            v_head_dim: shape.head_dim,
            window,
            k_eq_v: shape.k_eq_v,
            output_gate,
            qk_norm: match norm {
                QkNorm::None => false,
                QkNorm::WeightlessOnLocal => window != Window::Full,
                QkNorm::PerHead | QkNorm::FullWidth => true,
            },
            qk_norm_params: match norm {
                QkNorm::None | QkNorm::WeightlessOnLocal => 0,
                QkNorm::PerHead => 2 * shape.head_dim,
                QkNorm::FullWidth => shape.head_dim.saturating_mul(shape.heads.saturating_add(shape.kv_heads)),
            },
            qkv_bias,
            o_bias,
            extra_params: if family.sinks { shape.heads } else { 0 },
            qkv_weights: plain,
            o_weights: plain,
        })
    };
    window::layers(text, family.windows, num_layers).into_iter().map(build).collect()
}

#[derive(Clone, Copy)]
struct Geometry {
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    k_eq_v: bool,
}

impl Geometry {
    fn read(text: &Keys<'_>, family: &Family, hidden_size: u64) -> Geometry {
        let heads = size(text, "num_attention_heads");
        let kv_heads = if family.kv_heads_default_to_heads && text.get("num_key_value_heads").is_none() {
            heads
        } else {
            size(text, "num_key_value_heads")
        };
        let head_dim = match optional_size(text, "head_dim") {
            Some(head_dim) => head_dim,
            None if text.has("head_dim") || hidden_size.is_multiple_of(heads) => hidden_size / heads,
            None => {
                let reason = format!(
                    "is missing and hidden_size = {hidden_size} does not divide by num_attention_heads = {heads}"
                );
                text.problem("head_dim", reason);
                1
            }
        };
        check_divides(text, "num_key_value_heads", heads, kv_heads);
        Geometry { heads, kv_heads, head_dim, k_eq_v: false }
    }

    /// Gemma 4's global layers: `global_head_dim` wide, and with `attention_k_eq_v` fewer KV heads and no values.
    fn global(self, text: &Keys<'_>) -> Geometry {
        let k_eq_v = text.flag("attention_k_eq_v").unwrap_or(false);
        let head_dim = optional_size(text, "global_head_dim").unwrap_or(self.head_dim);
        let global_kv_heads = optional_size(text, "num_global_key_value_heads");
        let kv_heads = if k_eq_v { global_kv_heads.unwrap_or(self.kv_heads) } else { self.kv_heads };
        check_divides(text, "num_global_key_value_heads", self.heads, kv_heads);
        Geometry { kv_heads, head_dim, k_eq_v, ..self }
    }
}

fn check_divides(text: &Keys<'_>, key: &str, heads: u64, kv_heads: u64) {
    if !heads.is_multiple_of(kv_heads) {
        text.problem(key, format!("must divide num_attention_heads = {heads}"));
    }
}

fn biases(text: &Keys<'_>, rule: BiasRule) -> (bool, bool) {
    let key = text.flag("attention_bias").unwrap_or(false);
    match rule {
        BiasRule::Never => (false, false),
        BiasRule::Key => (key, key),
        BiasRule::KeyWithoutOutput => (key, false),
        BiasRule::AlwaysQkv => (text.flag("qkv_bias").unwrap_or(true), false),
    }
}

/// Returns the family's norm of queries and keys, unless the file switches it off.
fn qk_norm(text: &Keys<'_>, family: &Family) -> QkNorm {
    if family.qk_norm_is_optional && !text.flag("use_qk_norm").unwrap_or(false) {
        return QkNorm::None;
    }
    match (family.qk_norm, text.text("qk_norm_type")) {
        (QkNorm::FullWidth, Some("per_head")) => QkNorm::PerHead,
        (QkNorm::FullWidth, Some(other)) if other != "per_layer" => {
            text.problem("qk_norm_type", "must be per_layer or per_head");
            QkNorm::None
        }
        (norm, _) => norm,
    }
}

/// Reads a latent attention, which does not use `num_key_value_heads` and `head_dim`.
fn latent(text: &Keys<'_>, plain: WeightFormat) -> MlaAttention {
    if text.flag("attention_bias").unwrap_or(false) {
        text.problem("attention_bias", "is not supported with a latent (kv_lora_rank)");
    }
    MlaAttention {
        num_heads: size(text, "num_attention_heads"),
        q_lora_rank: optional_size(text, "q_lora_rank"),
        kv_lora_rank: size(text, "kv_lora_rank"),
        qk_nope_head_dim: size(text, "qk_nope_head_dim"),
        qk_rope_head_dim: size(text, "qk_rope_head_dim"),
        v_head_dim: size(text, "v_head_dim"),
        weights: plain,
    }
}
