//! What the class in `architectures`, the `model_type` and the name of a checkpoint say: its family, or that it is no model that generates
//! text by itself.

use super::family::{self, Family};
use crate::error::{Error, Result};
use crate::input::Keys;

/// `model_type`s of encoders, which keep no KV cache.
const ENCODERS: [&str; 16] = [
    "albert",
    "bert",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "gte",
    "jina_bert",
    "modernbert",
    "mpnet",
    "new",
    "nomic_bert",
    "roberta",
    "xlm-roberta",
    "xlm_roberta",
    "xlnet",
];
/// `model_type`s of towers, and parts that their names have.
const TOWERS: [&str; 8] = ["clip", "siglip", "siglip2", "dinov2", "vit", "pixtral_vision", "intern_vit_6b", "radio"];
const TOWER_ENDINGS: [&str; 4] = ["_vision_model", "_vision", "_vision_tower", "_audio_encoder"];
/// Keys that heads of speculative decoding alone have.
const DRAFT_KEYS: [&str; 5] =
    ["draft_vocab_size", "eagle_config", "speculators_model_type", "medusa_num_heads", "dflash_config"];
/// `model_type`s of such heads.
const DRAFT_TYPES: [&str; 6] = ["eagle", "eagle3", "medusa", "mlp_speculator", "speculators", "dflash"];

/// Returns the names of a checkpoint: the one that was given, and the one in the file.
pub(super) fn names<'a>(name: &'a str, outer: &Keys<'a>) -> impl Iterator<Item = &'a str> {
    [Some(name), outer.text("_name_or_path")].into_iter().flatten()
}

/// The class in `architectures`.
fn class<'a>(config: &Keys<'a>) -> Option<&'a str> {
    config.texts("architectures")?.into_iter().next()
}

/// The known `model_type` that the class in `architectures` implies.
pub(super) fn implied_model_type(text: &Keys<'_>, outer: &Keys<'_>) -> Option<(&'static str, String)> {
    [text, outer].into_iter().find_map(|config| {
        let class = class(config)?;
        Some((family::model_type_of(class)?, class.to_owned()))
    })
}

/// Refuses what does not generate text by itself: draft heads, encoders, towers.
pub(super) fn refuse_parts(name: &str, origin: &str, model_type: &str, outer: &Keys<'_>) -> Result<()> {
    let class = class(outer).unwrap_or_default();
    let problem = if let Some(sign) = draft_sign(name, model_type, class, outer) {
        format!(
            "{sign} means a draft head of speculative decoding, not a model that is served alone: give the model that it drafts for; \
             a server names it in speculative_config"
        )
    } else if ENCODERS.contains(&model_type) {
        format!(
            "model_type = {model_type} means an encoder, which keeps no KV cache and generates no text: models that generate text alone \
             are predicted"
        )
    } else if outer.get("text_config").is_none()
        && (TOWERS.contains(&model_type) || TOWER_ENDINGS.iter().any(|end| model_type.ends_with(end)))
    {
        format!("model_type = {model_type} means a vision or audio tower: give the config.json of the whole model")
    } else {
        return Ok(());
    };
    Err(Error::invalid(origin, vec![problem]))
}

/// The key, class or name that marks a draft head.
fn draft_sign(name: &str, model_type: &str, class: &str, outer: &Keys<'_>) -> Option<String> {
    let lower = class.to_lowercase();
    let is_draft_class = (lower.contains("eagle") && (lower.contains("forcausallm") || lower.contains("mtp")))
        || lower.ends_with("mtpmodel")
        || lower.ends_with("mtp")
        || ["medusa", "speculator", "draftmodel", "dflash"].iter().any(|part| lower.contains(part));
    if is_draft_class {
        return Some(format!("architectures = {class}"));
    }
    if DRAFT_TYPES.contains(&model_type) || model_type.ends_with("_mtp") {
        return Some(format!("model_type = {model_type}"));
    }
    if let Some(key) = DRAFT_KEYS.iter().find(|key| outer.has(key)) {
        return Some((*key).to_owned());
    }
    // The first heads call themselves a Llama of one layer; their name alone tells.
    let layers = outer.get("num_hidden_layers").and_then(serde_json::Value::as_u64);
    let named = names(name, outer).find(|name| {
        let name = name.to_lowercase();
        name.contains("eagle") || name.contains("medusa") || name.contains("-draft")
    });
    named
        .filter(|_| layers.is_some_and(|layers| layers <= 2))
        .map(|named| format!("the name '{named}' with num_hidden_layers = {}", layers.unwrap_or_default()))
}

/// Notes a class in `architectures` with other feed-forward blocks than the `model_type` has, and a class or name of a model that
/// generates no text.
pub(super) fn note_class(name: &str, config: &Keys<'_>, model_type: &str, family: &Family) {
    let class = class(config);
    if let Some(class) = class {
        let implied = family::model_type_of(class).and_then(family::find);
        if implied.is_some_and(|implied| implied.ffn != family.ffn) {
            config.log.note(format!(
                "architectures = {class} is of another family than model_type = {model_type}, which is predicted"
            ));
        }
        let is_headless = ["TextModel", "EmbeddingModel", "BidirectionalModel", "BidirecModel"]
            .iter()
            .any(|end| class.ends_with(end))
            || class.strip_suffix("Model").is_some_and(family::is_class_prefix);
        let ends = ["SequenceClassification", "TokenClassification", "QuestionAnswering", "RewardModel"];
        if is_headless || ends.iter().any(|end| class.ends_with(end)) {
            config.log.note(format!("architectures = {class} generates no text; it is predicted as a model that does"));
            return;
        }
    }
    if let Some(embedder) = names(name, config).find(|name| sounds_like_embedder(name)) {
        config.log.note(format!(
            "'{embedder}' sounds like a model of embeddings or ranks, which generates no text; it is predicted as a model that does"
        ));
    }
}

/// Whether a part of the last component of a name or path says that a model makes embeddings or ranks.
pub(super) fn sounds_like_embedder(name: &str) -> bool {
    let lower = name.to_lowercase();
    let last = lower.trim_end_matches("config.json").trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    last.split(['-', '_']).any(|part| matches!(part, "embedding" | "embed" | "embeddings" | "reranker"))
}
