//! Recognises layers whose physics is not known by their keys.

use serde_json::Value;

use super::classes;
use super::families::WITHOUT_LATENT;
use super::family::{self, AttentionRule, Family, Hybrid};
use crate::error::{Error, Result};
use crate::input::{Keys, did_you_mean};

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

const KEYS: [(&str, &str); 28] = [
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
    ("num_attention_heads_per_layer", OWN_GEOMETRY),
    ("moe_intermediate_size", "lists experts of several widths, for text and for images"),
    ("use_cla", "means layers that use the keys and values of an earlier layer"),
    ("conv_L_cache", "means layers of short convolutions, which keep a state instead of a KV cache"),
];

/// Why a key means layers that are not supported.
pub(super) fn reason_of(key: &str) -> Option<&'static str> {
    KEYS.iter().find(|(known, _)| *known == key).map(|(_, reason)| *reason)
}

/// What says the family of a configuration.
pub(super) struct FamilyChoice<'a> {
    /// Its `model_type`.
    pub(super) named: Option<&'a str>,
    /// The family that the caller or the file asks for in its place.
    pub(super) asked: Option<&'a str>,
}

/// Returns the `model_type` whose keys and layers a configuration has, and its family: the one that is asked for, its own, or the one of the
/// class in `architectures`, by which engines choose their layers too. DeepSeek's without a latent is a family of its own.
///
/// # Errors
/// `ErrorKind::UnsupportedModel` if none is known, or if a key means layers that are not supported. `ErrorKind::Invalid` for a file without
/// `model_type` and class, and for an asked family that is not known.
pub(super) fn family_of<'a>(
    origin: &str,
    choice: &FamilyChoice<'a>,
    text: &Keys<'_>,
    outer: &Keys<'_>,
) -> Result<(&'a str, &'static Family)> {
    let model_type = model_type(origin, choice, text, outer)?;
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
        Some(family) if family.attention == AttentionRule::Mla && has_no_latent(text) => {
            let explicit = family::find(WITHOUT_LATENT).unwrap_or(family);
            text.log.note("there is no latent (use_mla, qk_nope_head_dim): attention has explicit keys and values");
            Ok((model_type, explicit))
        }
        Some(family) => Ok((model_type, family)),
        None => {
            let near = family::longest_beginning(model_type).unwrap_or("llama");
            error(
                text,
                "model_type",
                &format!(
                    "is no known family; if its keys and layers are those of one, say so, as in as_family = {near}"
                ),
            )
        }
    }
}

/// The `model_type` that is read.
fn model_type<'a>(origin: &str, choice: &FamilyChoice<'a>, text: &Keys<'_>, outer: &Keys<'_>) -> Result<&'a str> {
    let named = choice.named;
    if let Some(asked) = choice.asked {
        if family::find(asked).is_none() {
            let near = did_you_mean(asked, family::model_types()).map_or_else(String::new, |near| format!(": {near}"));
            return Err(Error::invalid(
                origin,
                vec![format!("as_family = {} is no known family{near}", shown_name(asked))],
            ));
        }
        if named != Some(asked) {
            let own = named.map_or("without a model_type".to_owned(), |own| format!("with model_type = {own}"));
            text.log.note(format!(
                "a file {own} is read as {asked}, as as_family asks: sizes and times hold if its layers are those"
            ));
        }
        return Ok(asked);
    }
    if let Some(known) = named.filter(|named| family::find(named).is_some()) {
        return Ok(known);
    }
    if let Some((implied, class)) = classes::implied_model_type(text, outer) {
        let own =
            named.map_or("model_type is missing".to_owned(), |own| format!("model_type = {own} is no known family"));
        text.log.note(format!("{own}: {implied} follows from architectures = {class}"));
        return Ok(implied);
    }
    named.ok_or_else(|| {
        let problem = "model_type is missing, which says what the keys mean: give the config.json of the checkpoint, or say its family, \
                       as in as_family = llama";
        Error::invalid(origin, vec![problem.to_owned()])
    })
}

/// The beginning of a name, quoted.
fn shown_name(name: &str) -> String {
    format!("'{}'", name.chars().take(60).collect::<String>())
}

/// Whether a file of a family with a latent says that it has none.
///
/// # Source
/// vLLM, `DeepseekV2DecoderLayer` (`vllm/model_executor/models/deepseek_v2.py`): explicit keys and values where `qk_nope_head_dim` and
/// `qk_rope_head_dim` are 0.
fn has_no_latent(text: &Keys<'_>) -> bool {
    let is_zero = |key: &str| text.get(key).and_then(Value::as_u64) == Some(0);
    let is_off = text.get("use_mla").and_then(Value::as_bool) == Some(false);
    is_off || (is_zero("qk_nope_head_dim") && is_zero("qk_rope_head_dim"))
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

/// Whether a key of [`KEYS`] means layers that are not known. MiniMax lists 1 for softmax attention and 0 for linear. A width, or a list of
/// equal numbers, is that of every layer.
fn switches_on(key: &str, value: &Value) -> bool {
    let listed = value.as_array();
    match key {
        "attn_type_list" => {
            is_set(value) && !listed.is_some_and(|kinds| kinds.iter().all(|kind| kind.as_u64() == Some(1)))
        }
        "moe_intermediate_size" | "num_attention_heads_per_layer" => {
            listed.is_some_and(|each| each.iter().any(|one| Some(one) != each.first()))
        }
        _ => is_set(value),
    }
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
