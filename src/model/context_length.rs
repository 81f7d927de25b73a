//! The longest context of a model: its position embeddings, stretched by a scaling of rotary embeddings.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length times a factor, both limited")]

use super::sizes::{length, optional_length};
use crate::input::{Keys, NumberRange};

/// Range of `rope_scaling.factor`.
const FACTOR: NumberRange = NumberRange::above_zero(1e6, "");

/// Tokens of the longest context.
///
/// # Formula
/// `original_max_position_embeddings · factor` for `yarn`; `max_position_embeddings` for `llama3`, `longrope` and Gemma 3, which have
/// their scaling in it; `max_position_embeddings · factor` for other scalings.
///
/// # Source
/// vLLM 0.18, `_get_and_verify_max_len` (`vllm/config/model.py`).
pub(super) fn context_length(text: &Keys<'_>, model_type: &str) -> u64 {
    let stated = stated(text);
    if model_type.contains("gemma3") {
        return stated;
    }
    let Some(rope) = text.section("rope_parameters").or_else(|| text.section("rope_scaling")) else { return stated };
    let kind = rope.text("rope_type").or_else(|| rope.text("type"));
    let Some(kind) = kind.filter(|kind| !matches!(*kind, "su" | "longrope" | "llama3")) else { return stated };
    let Some(factor) = rope.number("factor", FACTOR) else { return stated };
    let original = optional_length(&rope, "original_max_position_embeddings").filter(|_| kind == "yarn");
    let scaled = (original.unwrap_or(stated) as f64 * factor) as u64;
    scaled.max(1)
}

/// Keys of the longest context beside `max_position_embeddings`.
const OTHER_KEYS: [&str; 7] = [
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
];

/// The longest context that the file states: the smallest number under any of its keys, but `model_max_length` goes before all.
fn stated(text: &Keys<'_>) -> u64 {
    if let Some(length) = optional_length(text, "model_max_length") {
        return length;
    }
    let own = optional_length(text, "max_position_embeddings");
    let others: Vec<u64> = OTHER_KEYS.iter().filter_map(|key| optional_length(text, key)).collect();
    if let Some(shortest) = own.into_iter().chain(others).min() {
        return shortest;
    }
    length(text, "max_position_embeddings")
}

#[cfg(test)]
mod tests {
    use super::super::Model;

    /// The context of Qwen3-8B's sizes with a scaling.
    fn context(scaling: &str) -> u64 {
        let config = format!(
            r#"{{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 2,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
            "max_position_embeddings": 40960, "torch_dtype": "bfloat16"{scaling}}}"#
        );
        Model::from_config_str("test", "config.json", &config, None).expect("a model").max_position_embeddings
    }

    #[test]
    fn a_scaling_stretches_the_context_as_in_vllm() {
        assert_eq!(context(""), 40_960);
        assert_eq!(context(r#", "rope_scaling": null"#), 40_960);
        // The model card of Qwen3-8B gives this scaling for prompts of up to 131,072 tokens.
        let yarn = r#"{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}"#;
        assert_eq!(context(&format!(r#", "rope_scaling": {yarn}"#)), 131_072);
        assert_eq!(context(&format!(r#", "rope_parameters": {yarn}"#)), 131_072);
        assert_eq!(context(r#", "rope_scaling": {"type": "linear", "factor": 2.0}"#), 81_920);
        let llama = r#"{"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}"#;
        assert_eq!(context(&format!(r#", "rope_scaling": {llama}"#)), 40_960);
        assert_eq!(context(r#", "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}"#), 40_960);
    }

    #[test]
    fn a_factor_that_is_no_number_is_named() {
        let config = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2,
            "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096,
            "torch_dtype": "float16", "rope_scaling": {"type": "linear", "factor": -1}}"#;
        let error =
            Model::from_config_str("test", "config.json", config, None).expect_err("a negative factor").to_string();
        assert!(error.contains("rope_scaling.factor"), "{error}");
    }
}
