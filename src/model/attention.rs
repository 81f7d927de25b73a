//! Reads the attention of every layer.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "layers are limited when they are read")]

use super::family::{AttentionRule, BiasRule, Family, Hybrid, LayerKind, QkNorm};
use super::hybrid;
use super::shape::{Attention, GqaAttention, MlaAttention, Window};
use super::sizes::{LayerReader, has_size, optional_size, size};
use super::{sparse, window};
use crate::dtype::WeightFormat;
use crate::input::{Keys, NumberRange};

/// A part of a whole.
const SHARE: NumberRange = NumberRange::from_zero(1.0, "");

/// Share of a head with rotary embedding in Qwen3-Next and Qwen3.5 (`partial_rotary_factor`, their class default).
const DELTA_NET_ROTARY_SHARE: f64 = 0.25;

/// Returns the token mixer of every layer, in order.
pub(super) fn layers(of: &LayerReader<'_>) -> Vec<Attention> {
    let LayerReader { text, family, num_layers, plain, .. } = *of;
    if family.attention == AttentionRule::Mla {
        let latent = latent(text, plain);
        let sparse = sparse::layers(text, family, num_layers, plain).into_iter();
        return sparse.map(|sparse| Attention::Mla(MlaAttention { sparse, ..latent.clone() })).collect();
    }
    let local = grouped_query(of);
    let two = family.attention == AttentionRule::GqaTwoGeometries;
    let global = if two { global(text, &local) } else { local.clone() };
    let norm = qk_norm(text, family);
    let build = |window: Window| {
        let is_global = window == Window::Full;
        let shape = if is_global { &global } else { &local };
        let (qk_norm, qk_norm_params) = match norm {
            QkNorm::None => (false, 0),
            QkNorm::WeightlessOnLocal => (!is_global, 0),
            QkNorm::PerHead => (true, 2 * shape.head_dim),
            QkNorm::FullWidth => (true, shape.head_dim * (shape.num_heads + shape.num_kv_heads)),
        };
        Attention::Gqa(GqaAttention { window, qk_norm, qk_norm_params, ..shape.clone() })
    };
    let attentions = window::layers(text, family.windows, num_layers).into_iter().map(build);
    if of.kinds.is_empty() {
        return attentions.collect();
    }
    let state = Attention::State(hybrid::state_mixer(of));
    let mixer = |(attention, kind): (Attention, &LayerKind)| match kind {
        LayerKind::Attention => attention,
        LayerKind::State => state.clone(),
        LayerKind::Dense | LayerKind::Experts => Attention::None,
    };
    attentions.zip(of.kinds).map(mixer).collect()
}

/// Reads what all layers share; windows and norms are left out.
fn grouped_query(of: &LayerReader<'_>) -> GqaAttention {
    let LayerReader { text, family, hidden_size, plain, .. } = *of;
    let num_heads = size(text, "num_attention_heads");
    let is_multi_head = family.kv_heads_default_to_heads && text.get("num_key_value_heads").is_none();
    let num_kv_heads = if is_multi_head { num_heads } else { size(text, "num_key_value_heads") };
    check_divides(text, "num_key_value_heads", num_heads, num_kv_heads);
    let head_dim = match optional_size(text, "head_dim") {
        Some(head_dim) => head_dim,
        None if text.has("head_dim") || !has_size(text, "hidden_size") || hidden_size.is_multiple_of(num_heads) => {
            hidden_size / num_heads
        }
        None => {
            let reason = format!(
                "is missing and hidden_size = {hidden_size} does not divide by num_attention_heads = {num_heads}"
            );
            text.problem("head_dim", reason);
            1
        }
    };
    let (qkv_bias, o_bias) = biases(text, family.bias);
    GqaAttention {
        num_heads,
        num_kv_heads,
        head_dim,
        v_head_dim: head_dim,
        window: Window::Full,
        k_eq_v: false,
        output_gate: text.flag("attn_output_gate").unwrap_or(family.gated_attention),
        qk_norm: false,
        qk_norm_params: 0,
        rotary_dim: rotary_dim(text, family, head_dim),
        qkv_bias,
        o_bias,
        extra_params: if family.sinks { num_heads } else { 0 },
        qkv_weights: plain,
        o_weights: plain,
    }
}

/// Gemma 4's global layers: `global_head_dim` wide, and with `attention_k_eq_v` fewer KV heads and no values.
fn global(text: &Keys<'_>, local: &GqaAttention) -> GqaAttention {
    let k_eq_v = text.flag("attention_k_eq_v").unwrap_or(false);
    let head_dim = optional_size(text, "global_head_dim").unwrap_or(local.head_dim);
    let fewer = optional_size(text, "num_global_key_value_heads").filter(|_| k_eq_v);
    let num_kv_heads = fewer.unwrap_or(local.num_kv_heads);
    check_divides(text, "num_global_key_value_heads", local.num_heads, num_kv_heads);
    GqaAttention { num_kv_heads, head_dim, v_head_dim: head_dim, rotary_dim: head_dim, k_eq_v, ..local.clone() }
}

/// The part of a head with rotary embedding. Families that are not hybrid count the whole head, as the correction was fitted.
fn rotary_dim(text: &Keys<'_>, family: &Family, head_dim: u64) -> u64 {
    match family.hybrid {
        None => head_dim,
        Some(Hybrid::NemotronH) => 0,
        Some(Hybrid::DeltaNet) => {
            let key = "partial_rotary_factor";
            let nested = || text.section("rope_parameters")?.number(key, SHARE);
            let share = text.number(key, SHARE).or_else(nested).unwrap_or(DELTA_NET_ROTARY_SHARE);
            (head_dim as f64 * share) as u64
        }
    }
}

fn check_divides(text: &Keys<'_>, key: &str, heads: u64, kv_heads: u64) {
    if has_size(text, "num_attention_heads") && !heads.is_multiple_of(kv_heads) {
        text.problem(key, format!("must divide num_attention_heads = {heads}"));
    }
}

fn biases(text: &Keys<'_>, rule: BiasRule) -> (bool, bool) {
    let key = text.flag("attention_bias").unwrap_or(false);
    match rule {
        BiasRule::Never => (false, false),
        BiasRule::Key => (key, key),
        BiasRule::KeyWithoutOutput => (key, text.flag("attention_out_bias").unwrap_or(false)),
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
        o_weights: plain,
        sparse: None,
    }
}
