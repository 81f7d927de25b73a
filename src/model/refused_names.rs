//! Names of published models that cannot be predicted by name, each with its reason.

use super::classes;
use super::names::ParsedName;
use super::unsupported::reason_of;
use crate::error::Error;

/// Published models that cannot be read: the name, `model_type`, and the key in their `config.json` that means layers whose work is not known.
const REFUSED: [(&str, &str, &str); 10] = [
    ("gemma-3n-e2b", "gemma3n_text", "hidden_size_per_layer_input"),
    ("gemma-3n-e4b", "gemma3n_text", "hidden_size_per_layer_input"),
    ("gemma-4-e2b", "gemma4_text", "hidden_size_per_layer_input"),
    ("gemma-4-e4b", "gemma4_text", "hidden_size_per_layer_input"),
    ("deepseek-v4-flash", "deepseek_v4", "compress_ratios"),
    ("deepseek-v4-pro", "deepseek_v4", "compress_ratios"),
    ("kimi-k3", "kimi_linear", "linear_attn_config"),
    ("minimax-m3", "minimax_m3", "sparse_attention_config"),
    ("llama-3.3-nemotron-super-49b-v1", "nemotron-nas", "block_configs"),
    ("llama-3.3-nemotron-super-49b-v1.5", "nemotron-nas", "block_configs"),
];

/// Beginnings of the names of whole series that cannot be read, as in [`REFUSED`].
///
/// # Source
/// `vllm/model_executor/models/registry.py` of vLLM 0.24 for the classes; the configuration classes of transformers 5.24 for the keys.
const REFUSED_SERIES: [(&str, &str, &str); 8] = [
    ("lfm-2", "lfm2", "conv_L_cache"),
    ("kimi-linear", "kimi_linear", "linear_attn_config"),
    ("jamba", "jamba", "attn_layer_period"),
    ("falcon-h-1", "falcon_h1", "mamba_d_state"),
    ("granite-4-0-h", "granitemoehybrid", "mamba_d_state"),
    ("mimo-v-2", "mimo_v2", "hybrid_layer_pattern"),
    ("laguna", "laguna", "num_attention_heads_per_layer"),
    ("ernie-4-5-vl", "ernie4_5_vl_moe", "moe_intermediate_size"),
];

/// Beginnings of the names of models whose layers can be read and whose sizes are not built in, with their family.
///
/// # Source
/// vLLM 0.24: `mistral.py` and `deepseek_ocr.py` for the first two. transformers 5.24: `MellumConfig`, `HunYuanVLConfig` and `MiniCPMV4_6Config` for
/// the next four. vLLM's recipes serve the others with the drafts of that family.
const WITHOUT_SIZES: [(&str, &str); 9] = [
    ("mistral-large-3", "deepseek_v3"),
    ("deepseek-ocr", "deepseek_v2"),
    ("mellum-2", "mellum"),
    ("hunyuanocr", "hunyuan_vl"),
    ("hunyuan-ocr", "hunyuan_vl"),
    ("minicpm-v-4-6", "qwen3_5"),
    ("qwen-3-5-2b", "qwen3_5"),
    ("qwen-3-8-27b", "qwen3_5"),
    ("intern-s-2-preview", "qwen3_5_moe"),
];

/// Parts of the names of models whose requests are no prompts of tokens.
const SPEECH: [&str; 4] = ["whisper", "realtime", "tts", "asr"];

/// Returns why the name of a published model cannot be predicted, whatever its number format, with one way out; `None` for names of which
/// nothing is known.
pub(super) fn refused(name: &str) -> Option<Error> {
    let base = ParsedName::new(name).base;
    if classes::sounds_like_embedder(name) {
        let problem = "sounds like a model of embeddings or ranks, which generates no text; give the path of its config.json to predict it as \
                       one that does";
        return Some(Error::invalid(name, vec![problem.to_owned()]));
    }
    if base.split('-').any(|part| SPEECH.contains(&part)) {
        let problem = "sounds like a model of speech, whose requests are audio and not prompts of tokens; name the language model that it is \
                       built on, or give the path of a config.json";
        return Some(Error::invalid(name, vec![problem.to_owned()]));
    }
    if let Some((_, family)) = WITHOUT_SIZES.iter().find(|(start, _)| base.starts_with(start)) {
        return Some(Error::unsized_model(name, family));
    }
    let known = REFUSED.iter().find(|(known, ..)| ParsedName::new(known).base == base);
    let (_, model_type, key) = known.or_else(|| REFUSED_SERIES.iter().find(|(start, ..)| base.starts_with(start)))?;
    let reason = format!("{}; name a model of like size and known layers for an estimate", reason_of(key)?);
    Some(Error::unsupported_model(name, model_type, key, &reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::family;

    #[test]
    fn every_row_has_a_reason_and_stands_in_the_form_of_names() {
        for (name, model_type, key) in REFUSED.iter().chain(&REFUSED_SERIES) {
            assert!(reason_of(key).is_some(), "{name}: {key}");
            assert!(model_type.len() > 3);
        }
        let series = REFUSED_SERIES.iter().map(|(start, ..)| start).chain(WITHOUT_SIZES.iter().map(|(start, _)| start));
        for start in series {
            assert!(refused(start).is_some() && ParsedName::new(start).whole.starts_with(start), "{start}");
        }
    }

    #[test]
    fn families_of_models_without_sizes_are_known() {
        for (name, model_type) in WITHOUT_SIZES {
            assert!(family::find(model_type).is_some(), "{name}: {model_type}");
        }
    }
}
