//! Keys that give away layers whose physics is not known. Uses `error` and this module's `fields` and `family`.

use serde_json::Value;

use super::family::{self, Family};
use super::fields::Section;
use crate::error::{Error, Result};

/// Kinds of attention in `layer_types` that are known.
pub(super) const KNOWN_LAYER_TYPES: [&str; 3] = ["full_attention", "sliding_attention", "chunked_attention"];

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
    ("index_topk", SPARSE),
    ("compress_ratios", "means layers that compress their KV cache, each by its own ratio"),
    ("sparse_attention_config", SPARSE),
    ("hybrid_layer_pattern", OWN_GEOMETRY),
    ("swa_num_key_value_heads", OWN_GEOMETRY),
    ("moe_latent_size", "means experts that work in a latent space"),
    ("num_kv_shared_layers", "means layers that use the KV cache of an earlier layer"),
    ("hidden_size_per_layer_input", "means embeddings per layer"),
    ("cross_attention_layers", "means cross-attention to another model's states"),
    ("is_encoder_decoder", "means an encoder beside the decoder"),
    ("num_zero_experts", "means experts without weights"),
];

/// The family of a `model_type`.
///
/// # Errors
/// `ErrorKind::UnsupportedModel` where it is not known, or where a key says that the layers are not.
pub(super) fn family_of(
    origin: &str,
    model_type: &str,
    text: &Section<'_>,
    outer: &Section<'_>,
) -> Result<&'static Family> {
    let error = |text: &Section<'_>, key: &str, reason: String| {
        Err(Error::unsupported_model(origin, model_type, text.path_of(key), reason))
    };
    if let Some(Value::Array(types)) = text.get("layer_types") {
        let unknown = types.iter().filter_map(Value::as_str).find(|t| !KNOWN_LAYER_TYPES.contains(t));
        if let Some(unknown) = unknown {
            let reason = format!("has '{unknown}' layers; known are {}", KNOWN_LAYER_TYPES.join(", "));
            return error(text, "layer_types", reason);
        }
    }
    for section in [text, outer] {
        if let Some((key, reason)) = KEYS.iter().find(|(key, _)| section.is_set(key)) {
            return error(section, key, (*reason).to_owned());
        }
    }
    match family::find(model_type) {
        Some(family) => Ok(family),
        None => error(text, "model_type", format!("is none of the known ones: {}", family::known_model_types())),
    }
}
