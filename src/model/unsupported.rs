//! Recognises layers whose physics is not known by their keys.

use serde_json::Value;

use super::family::{self, Family, Hybrid};
use super::names::ParsedName;
use crate::error::{Error, Result};
use crate::input::Keys;

/// Supported kinds of attention in `layer_types`.
pub(super) const KNOWN_LAYER_TYPES: [&str; 3] = ["full_attention", "sliding_attention", "chunked_attention"];

/// Layers with a state, in hybrid families.
const LINEAR_LAYER: &str = "linear_attention";

/// Layers of latent attention with an indexer.
const SPARSE_LAYER: &str = "deepseek_sparse_attention";

const LINEAR: &str = "means linear attention layers, which keep a state instead of a KV cache";
const SSM: &str = "means state-space (Mamba) layers";
const SPARSE: &str = "means sparse attention over tokens picked by an indexer";
const OWN_GEOMETRY: &str = "gives layers a geometry of their own";

const KEYS: [(&str, &str); 24] = [
    ("full_attention_interval", LINEAR),
    ("linear_num_key_heads", LINEAR),
    ("linear_num_value_heads", LINEAR),
    ("linear_attn_config", LINEAR),
    ("attn_type_list", LINEAR),
    ("hybrid_override_pattern", SSM),
    ("layers_block_type", SSM),
    ("ssm_state_size", SSM),
    ("ssm_cfg", SSM),
    ("mamba_num_heads", SSM),
    ("mamba_d_state", SSM),
    ("attn_layer_period", SSM),
    ("block_configs", OWN_GEOMETRY),
    ("compress_ratios", "means layers that compress their KV cache, each by its own ratio"),
    ("index_topk", SPARSE),
    ("sparse_attention_config", SPARSE),
    ("hybrid_layer_pattern", OWN_GEOMETRY),
    ("swa_num_key_value_heads", OWN_GEOMETRY),
    ("moe_latent_size", "means experts that work in a latent space"),
    ("num_kv_shared_layers", "means layers that use the KV cache of an earlier layer"),
    ("hidden_size_per_layer_input", "means embeddings per layer"),
    ("cross_attention_layers", "means cross-attention to another model's states"),
    ("is_encoder_decoder", "means an encoder in front of the decoder"),
    ("num_zero_experts", "means experts without weights"),
];

/// Published models that cannot be read: the name, `model_type`, and the key of [`KEYS`] in their `config.json`.
const REFUSED: [(&str, &str, &str); 11] = [
    ("gemma-3n-e2b", "gemma3n_text", "hidden_size_per_layer_input"),
    ("gemma-3n-e4b", "gemma3n_text", "hidden_size_per_layer_input"),
    ("gemma-4-e2b", "gemma4_text", "hidden_size_per_layer_input"),
    ("gemma-4-e4b", "gemma4_text", "hidden_size_per_layer_input"),
    ("deepseek-v4-flash", "deepseek_v4", "compress_ratios"),
    ("deepseek-v4-pro", "deepseek_v4", "compress_ratios"),
    ("kimi-k3", "kimi_linear", "linear_attn_config"),
    ("minimax-m3", "minimax_m3", "sparse_attention_config"),
    ("mimo-v2-flash", "mimo_v2_flash", "hybrid_layer_pattern"),
    ("llama-3.3-nemotron-super-49b-v1", "nemotron-nas", "block_configs"),
    ("llama-3.3-nemotron-super-49b-v1.5", "nemotron-nas", "block_configs"),
];

/// Refuses the name of a published model whose layers are not supported, whatever its number format.
pub(super) fn refused_by_name(name: &str) -> Option<Error> {
    let base = ParsedName::new(name).base;
    let (_, model_type, key) = REFUSED.iter().find(|(known, ..)| ParsedName::new(known).base == base)?;
    let (_, reason) = KEYS.iter().find(|(known, _)| known == key)?;
    Some(Error::unsupported_model(name, model_type, key, reason))
}

/// Returns the family of a `model_type`.
///
/// # Errors
/// `ErrorKind::UnsupportedModel` if it is not known, or if a key means layers that are not supported.
pub(super) fn family_of(origin: &str, model_type: &str, text: &Keys<'_>, outer: &Keys<'_>) -> Result<&'static Family> {
    let error = |text: &Keys<'_>, key: &str, reason: &str| {
        Err(Error::unsupported_model(origin, model_type, &text.path_of(key), reason))
    };
    let known = family::find(model_type);
    let hybrid = known.and_then(|family| family.hybrid);
    let is_sparse = known.is_some_and(|family| family.sparse);
    if let Some(Value::Array(types)) = text.get("layer_types") {
        let is_known = |name: &str| {
            KNOWN_LAYER_TYPES.contains(&name)
                || (hybrid.is_some() && name == LINEAR_LAYER)
                || (is_sparse && name == SPARSE_LAYER)
        };
        let unknown = types.iter().filter_map(Value::as_str).find(|name| !is_known(name));
        if let Some(unknown) = unknown {
            let reason = format!("has '{unknown}' layers; known are {}", KNOWN_LAYER_TYPES.join(", "));
            return error(text, "layer_types", &reason);
        }
    }
    for section in [text, outer] {
        let is_read = |key: &str| {
            hybrid.is_some_and(|hybrid| read_by(hybrid).contains(&key)) || (is_sparse && key == "index_topk")
        };
        let is_on = |key: &str| !is_read(key) && section.get(key).is_some_and(|value| switches_on(key, value));
        if let Some((key, reason)) = KEYS.iter().find(|(key, _)| is_on(key)) {
            return error(section, key, reason);
        }
    }
    match known {
        Some(family) => Ok(family),
        None => error(text, "model_type", &format!("is none of the known ones: {}", family::known_model_types())),
    }
}

/// Keys of [`KEYS`] that a hybrid family reads.
fn read_by(hybrid: Hybrid) -> &'static [&'static str] {
    match hybrid {
        Hybrid::DeltaNet => &["full_attention_interval", "linear_num_key_heads", "linear_num_value_heads"],
        Hybrid::NemotronH => {
            &["hybrid_override_pattern", "layers_block_type", "ssm_state_size", "mamba_num_heads", "moe_latent_size"]
        }
    }
}

/// Whether a key of [`KEYS`] means layers that are not known. MiniMax lists 1 for softmax attention and 0 for linear.
fn switches_on(key: &str, value: &Value) -> bool {
    let is_softmax = |kinds: &Vec<Value>| kinds.iter().all(|kind| kind.as_u64() == Some(1));
    is_set(value) && !(key == "attn_type_list" && value.as_array().is_some_and(is_softmax))
}

/// Returns whether a value switches a feature on: it is not null, false, zero or empty.
pub(super) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(n) => n.as_f64().is_none_or(|n| n.abs() > 0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}
