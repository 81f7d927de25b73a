//! Reads the attention of every layer.

use super::family::{AttentionRule, BiasRule, Family, QkNormRule};
use super::shape::{Attention, GqaAttention, MlaAttention, Window};
use super::sizes::{optional_size, size};
use super::window;
use crate::dtype::WeightFormat;
use crate::input::Keys;

/// Returns the attention of every layer, in order, with weights stored as `plain`; `None` after a problem.
pub(super) fn layers(
    text: &Keys<'_>,
    family: &Family,
    hidden_size: Option<u64>,
    num_layers: Option<u64>,
    plain: WeightFormat,
) -> Option<Vec<Attention>> {
    if family.attention == AttentionRule::Mla {
        let mla = latent(text, plain);
        let repeated = usize::try_from(num_layers?).ok()?;
        return Some(vec![Attention::Mla(mla?); repeated]);
    }
    let local = Geometry::read(text, family, hidden_size);
    let global = match family.attention {
        AttentionRule::GqaTwoGeometries => local.and_then(|local| local.global(text)),
        AttentionRule::Gqa | AttentionRule::Mla => local,
    };
    let biases = biases(text, family.bias);
    let norm = qk_norm(text, family.qk_norm);
    let output_gate = text.flag("attn_output_gate").unwrap_or(false);
    let windows = num_layers.and_then(|n| window::layers(text, family.windows, n));
    let (local, global) = (local?, global?);
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
            qkv_bias: biases.0,
            o_bias: biases.1,
            extra_params: if family.sinks { shape.heads } else { 0 },
            qkv_weights: plain,
            o_weights: plain,
        })
    };
    Some(windows?.into_iter().map(build).collect())
}

#[derive(Clone, Copy)]
struct Geometry {
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    k_eq_v: bool,
}

impl Geometry {
    fn read(text: &Keys<'_>, family: &Family, hidden_size: Option<u64>) -> Option<Geometry> {
        let heads = size(text, "num_attention_heads");
        let kv_heads = if family.kv_heads_default_to_heads && text.get("num_key_value_heads").is_none() {
            heads
        } else {
            size(text, "num_key_value_heads")
        };
        let explicit = optional_size(text, "head_dim");
        let head_dim = match (explicit, text.get("head_dim"), hidden_size, heads) {
            (Some(dim), ..) => Some(dim),
            (None, None, Some(hidden), Some(heads)) => divided(text, hidden, heads),
            _ => None,
        };
        let (heads, kv_heads) = (heads?, kv_heads?);
        check_divides(text, "num_key_value_heads", heads, kv_heads);
        Some(Geometry { heads, kv_heads, head_dim: head_dim?, k_eq_v: false })
    }

    /// Gemma 4's global layers: `global_head_dim` wide, and with `attention_k_eq_v` fewer KV heads and no values.
    fn global(self, text: &Keys<'_>) -> Option<Geometry> {
        let k_eq_v = text.flag("attention_k_eq_v").unwrap_or(false);
        let head_dim = optional_size(text, "global_head_dim").unwrap_or(self.head_dim);
        let global_kv_heads = optional_size(text, "num_global_key_value_heads");
        let kv_heads = if k_eq_v { global_kv_heads.unwrap_or(self.kv_heads) } else { self.kv_heads };
        check_divides(text, "num_global_key_value_heads", self.heads, kv_heads);
        Some(Geometry { kv_heads, head_dim, k_eq_v, ..self })
    }
}

fn divided(text: &Keys<'_>, hidden: u64, heads: u64) -> Option<u64> {
    if hidden.is_multiple_of(heads) {
        return Some(hidden / heads);
    }
    text.problem(
        "head_dim",
        format!("is missing and hidden_size = {hidden} does not divide by num_attention_heads = {heads}"),
    );
    None
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

#[derive(Clone, Copy)]
enum QkNorm {
    None,
    WeightlessOnLocal,
    PerHead,
    FullWidth,
}

fn qk_norm(text: &Keys<'_>, rule: QkNormRule) -> QkNorm {
    let used = text.flag("use_qk_norm").unwrap_or(false);
    match rule {
        QkNormRule::Never => QkNorm::None,
        QkNormRule::PerHead => QkNorm::PerHead,
        QkNormRule::PerHeadIfUsed if used => QkNorm::PerHead,
        QkNormRule::FullWidthIfUsed if used => match text.text("qk_norm_type") {
            None | Some("per_layer") => QkNorm::FullWidth,
            Some("per_head") => QkNorm::PerHead,
            Some(_) => {
                text.problem("qk_norm_type", "must be per_layer or per_head");
                QkNorm::None
            }
        },
        QkNormRule::WeightlessOnLocalIfUsed if used => QkNorm::WeightlessOnLocal,
        QkNormRule::PerHeadIfUsed | QkNormRule::FullWidthIfUsed | QkNormRule::WeightlessOnLocalIfUsed => QkNorm::None,
    }
}

/// Reads a latent attention, which does not use `num_key_value_heads` and `head_dim`.
fn latent(text: &Keys<'_>, plain: WeightFormat) -> Option<MlaAttention> {
    let num_heads = size(text, "num_attention_heads");
    let q_lora_rank = optional_size(text, "q_lora_rank");
    let kv_lora_rank = size(text, "kv_lora_rank");
    let qk_nope_head_dim = size(text, "qk_nope_head_dim");
    let qk_rope_head_dim = size(text, "qk_rope_head_dim");
    let v_head_dim = size(text, "v_head_dim");
    if text.flag("attention_bias").unwrap_or(false) {
        text.problem("attention_bias", "is not supported with a latent (kv_lora_rank)");
    }
    Some(MlaAttention {
        num_heads: num_heads?,
        q_lora_rank,
        kv_lora_rank: kv_lora_rank?,
        qk_nope_head_dim: qk_nope_head_dim?,
        qk_rope_head_dim: qk_rope_head_dim?,
        v_head_dim: v_head_dim?,
        weights: plain,
    })
}
