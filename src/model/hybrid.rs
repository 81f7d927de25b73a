//! Reads the layers of hybrid models: which of them mix tokens by attention, which by a state, and which do not.

use serde_json::Value;

use super::family::{Hybrid, LayerKind};
use super::shape::{Recurrence, StateMixer};
use super::sizes::{LayerReader, check_length, optional_size, size};
use crate::dtype::DType;
use crate::input::Keys;

/// Tokens that the kernels of gated delta nets take at once.
///
/// # Source
/// FLA, `FLA_CHUNK_SIZE` (`vllm/third_party/flash_linear_attention`).
const DELTA_NET_CHUNK: u64 = 64;

/// Distance of two layers with attention in Qwen3-Next (`full_attention_interval`, its class default).
const FULL_ATTENTION_INTERVAL: u64 = 4;

/// The number of layers as the list of their kinds has it, for files that leave `num_hidden_layers` out.
pub(super) fn listed_layers(text: &Keys<'_>, hybrid: Option<Hybrid>) -> Option<u64> {
    (hybrid == Some(Hybrid::NemotronH)).then(|| pattern(text).len() as u64).filter(|layers| *layers > 0)
}

/// The kind of every layer; empty for families that are not hybrid.
pub(super) fn kinds(text: &Keys<'_>, hybrid: Option<Hybrid>, num_layers: u64) -> Vec<LayerKind> {
    let Some(hybrid) = hybrid else { return Vec::new() };
    let (key, kinds) = match hybrid {
        Hybrid::NemotronH => (pattern_key(text), pattern(text)),
        Hybrid::DeltaNet if text.has("layer_types") => {
            let kind = |name: &str| if name == "linear_attention" { LayerKind::State } else { LayerKind::Attention };
            ("layer_types", text.texts("layer_types").unwrap_or_default().into_iter().map(kind).collect())
        }
        Hybrid::DeltaNet => {
            let every = optional_size(text, "full_attention_interval").unwrap_or(FULL_ATTENTION_INTERVAL);
            let is_full = |layer: u64| (layer + 1).is_multiple_of(every);
            let kind = |layer| if is_full(layer) { LayerKind::Attention } else { LayerKind::State };
            ("full_attention_interval", (0..num_layers).map(kind).collect::<Vec<_>>())
        }
    };
    check_length(text, key, kinds.len(), num_layers);
    kinds
}

fn pattern_key(text: &Keys<'_>) -> &'static str {
    if text.has("hybrid_override_pattern") { "hybrid_override_pattern" } else { "layers_block_type" }
}

/// Nemotron-H lists its layers as letters or as words.
fn pattern(text: &Keys<'_>) -> Vec<LayerKind> {
    let key = pattern_key(text);
    let named = |name: &str| match name {
        "M" | "mamba" => Some(LayerKind::State),
        "*" | "attention" => Some(LayerKind::Attention),
        "-" | "mlp" => Some(LayerKind::Dense),
        "E" | "moe" => Some(LayerKind::Experts),
        _ => None,
    };
    let expected = "the layers' kinds: M, *, - and E, or a list of mamba, attention, mlp and moe";
    let read = |value: &Value| match value {
        Value::String(letters) => letters.chars().map(|letter| named(letter.encode_utf8(&mut [0; 4]))).collect(),
        Value::Array(names) => names.iter().map(|name| named(name.as_str()?)).collect(),
        _ => None,
    };
    text.require(&[key]);
    text.read(key, expected, read).unwrap_or_default()
}

/// Keys of the heads with a state, their width, the key heads, their width, and the tokens that the convolution sees.
const MAMBA_SIZES: [&str; 5] = ["mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"];
const DELTA_NET_SIZES: [&str; 5] = [
    "linear_num_value_heads",
    "linear_value_head_dim",
    "linear_num_key_heads",
    "linear_key_head_dim",
    "linear_conv_kernel_dim",
];

/// Reads the mixer that all layers with a state share.
pub(super) fn state_mixer(of: &LayerReader<'_>) -> StateMixer {
    let LayerReader { text, family, plain, .. } = *of;
    let state_dtype = |key: &str, default: DType| match text.text(key) {
        None | Some("auto") => default,
        Some(name) => DType::parse(name).unwrap_or_else(|| {
            text.problem(key, "must be float32, bfloat16, float16 or auto");
            default
        }),
    };
    let is_mamba = family.hybrid == Some(Hybrid::NemotronH);
    let sizes = if is_mamba { MAMBA_SIZES } else { DELTA_NET_SIZES };
    let [num_heads, head_dim, num_key_heads, key_head_dim, conv_kernel] = sizes.map(|key| size(text, key));
    let delta_net = StateMixer {
        recurrence: Recurrence::GatedDeltaNet,
        num_heads,
        head_dim,
        num_key_heads,
        key_head_dim,
        conv_kernel,
        chunk_size: DELTA_NET_CHUNK,
        conv_bias: false,
        bias: false,
        state_dtype: of.dtype,
        in_weights: plain,
        gate_weights: plain,
        out_weights: plain,
    };
    let mixer = if is_mamba {
        StateMixer {
            recurrence: Recurrence::Mamba2,
            chunk_size: size(text, "chunk_size"),
            conv_bias: text.flag("use_conv_bias").unwrap_or(true),
            bias: text.flag("use_bias").unwrap_or(false),
            // vLLM, `NemotronHForCausalLMConfig`: float32 unless the file says otherwise.
            state_dtype: state_dtype("mamba_ssm_cache_dtype", DType::Float32),
            ..delta_net
        }
    } else {
        // vLLM, `Qwen3_5ForConditionalGenerationConfig`; Qwen3-Next has no such key and takes the model's format.
        StateMixer { state_dtype: state_dtype("mamba_ssm_dtype", of.dtype), ..delta_net }
    };
    if !mixer.num_heads.is_multiple_of(mixer.num_key_heads) {
        let [heads, _, key, ..] = sizes;
        text.problem(key, format!("must divide {heads} = {}", mixer.num_heads));
    }
    mixer
}
