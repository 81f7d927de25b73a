//! What families of models differ in; `families` is the table of them.

use super::families::{FAMILIES, RENAMED};

/// Attention of the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttentionRule {
    /// Explicit keys and values.
    Gqa,
    /// Explicit keys and values, with another geometry on the global layers (Gemma 4).
    GqaTwoGeometries,
    /// A latent.
    Mla,
}

/// Families whose layers keep a state instead of a KV cache, all or some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hybrid {
    /// Gated delta nets between layers with attention (`layer_types` or `full_attention_interval`).
    DeltaNet,
    /// Mamba-2, attention, a dense block or experts, one in each layer (`hybrid_override_pattern` or `layers_block_type`).
    NemotronH,
}

/// Work of a layer in a hybrid model, in addition to the feed-forward part that its family gives to all layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerKind {
    /// It attends to a KV cache.
    Attention,
    /// It keeps a state.
    State,
    /// It is a dense feed-forward part and nothing else.
    Dense,
    /// It is routed experts and nothing else.
    Experts,
}

/// Attention projections with a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BiasRule {
    /// None.
    Never,
    /// All four, if `attention_bias` is true.
    Key,
    /// Queries, keys and values, if `attention_bias` is true.
    KeyWithoutOutput,
    /// Queries, keys and values, unless `qkv_bias` is false (Qwen2).
    AlwaysQkv,
}

/// Norms on queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QkNorm {
    None,
    /// One vector of `head_dim` for queries, one for keys.
    PerHead,
    /// Over the full width of queries and of keys (MiniMax-M2).
    FullWidth,
    /// Norms without weights on the layers with rotary embedding (Llama-4; vLLM, `Llama4Attention`).
    WeightlessOnLocal,
}

/// Layers with a window, if the file has no `layer_types`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowRule {
    /// None.
    Full,
    /// All, if `sliding_window` is set (Mistral, Phi-3).
    All,
    /// Those from `max_window_layers` on, if `use_sliding_window` is true (Qwen).
    FromMaxWindowLayers,
    /// All but every `n`th and, if it is said, the last; `sliding_window_pattern` overrides `n`.
    AllButEvery { n: u64, and_last: bool },
    /// All but every `n`th if `sliding_window` is set, else none (Cohere 2, OLMo 3, EXAONE 4). `sliding_window_pattern` is a number or, as
    /// `LLLG`, a word of that many letters.
    AllButEveryIfSet { n: u64 },
    /// Chunks on all layers with rotary embedding; by default all but every fourth (Llama-4).
    ChunkedWhereRotary,
}

/// Layout of feed-forward blocks and experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FfnRule {
    /// One gated block per layer.
    Dense,
    /// Experts in every layer, `intermediate_size` wide (Mixtral, gpt-oss, MiniMax-M2).
    AllExperts,
    /// `decoder_sparse_step` and `mlp_only_layers` (Qwen).
    QwenSparse,
    /// `interleave_moe_layer_step`, one implicit shared expert (Llama-4).
    Interleaved,
    /// `first_k_dense_replace` and `moe_layer_freq` (DeepSeek, Kimi-K2, GLM-4.5).
    FirstDense,
    /// A dense block in parallel with the experts in every layer (Gemma 4).
    DenseBesideExperts,
    /// A layer has a dense block without gate, experts without gate, or neither (Nemotron-H).
    ByLayerKind,
}

/// The facts of one family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    /// Values of `model_type`.
    pub(super) model_types: &'static [&'static str],
    pub(super) attention: AttentionRule,
    pub(super) bias: BiasRule,
    pub(super) qk_norm: QkNorm,
    /// Only if `use_qk_norm` is true.
    pub(super) qk_norm_is_optional: bool,
    pub(super) windows: WindowRule,
    pub(super) ffn: FfnRule,
    /// An indexer picks the tokens that a query attends to.
    pub(super) sparse: bool,
    /// Layers with a state.
    pub(super) hybrid: Option<Hybrid>,
    /// Queries come with an output gate, unless `attn_output_gate` is false.
    pub(super) gated_attention: bool,
    /// Vectors of `hidden_size` weights in a layer's norms; a norm's bias is one more.
    pub(super) norms: u64,
    /// Default of `tie_word_embeddings`.
    pub(super) tied_by_default: bool,
    /// `num_key_value_heads` may be absent, and then equals the query heads.
    pub(super) kv_heads_default_to_heads: bool,
    /// Experts and router have biases (gpt-oss).
    pub(super) expert_bias: bool,
    /// One attention sink per query head (gpt-oss).
    pub(super) sinks: bool,
    /// Module of a layer that holds its attention.
    pub(super) attention_module: &'static str,
    /// Module of a layer that holds the dense block.
    pub(super) dense_module: &'static str,
    /// Module of a layer that holds experts.
    pub(super) moe_module: &'static str,
    /// Checkpoints store fused `qkv_proj` and `gate_up_proj`.
    pub(super) fused_projections: bool,
    /// Feed-forward blocks and experts have a gate; without one they are two matrices.
    pub(super) gated: bool,
    /// Sizes of the family's configuration class that published files leave out.
    pub(super) defaults: &'static [(&'static str, u64)],
    /// Switches that are on where published files leave them out.
    pub(super) on: &'static [&'static str],
}

/// Returns the family of a `model_type`.
pub(super) fn find(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.model_types.contains(&model_type))
}

/// A name of a class or a `model_type` without separators, in lower case.
fn squeezed(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// Returns the supported `model_type` of a class of transformers, such as `Qwen2MoeForCausalLM`.
pub(super) fn model_type_of(architecture: &str) -> Option<&'static str> {
    let class = squeezed(architecture.split_once("For")?.0);
    model_types().find(|known| squeezed(known) == class)
}

/// Whether a known `model_type` names its classes with this word. `ChatGLMModel` is the class that generates.
pub(super) fn is_class_prefix(word: &str) -> bool {
    let class = squeezed(word);
    class != "chatglm" && model_types().any(|known| squeezed(known) == class)
}

/// The longest known `model_type` that a name begins with, separators aside: of `qwen3moe_next`, `qwen3_moe`.
pub(super) fn longest_beginning(name: &str) -> Option<&'static str> {
    let name = squeezed(name);
    model_types().filter(|known| name.starts_with(&squeezed(known))).max_by_key(|known| known.len())
}

/// The pairs of a family's own name of a key and the one that is read.
pub(super) fn renamed(model_type: &str) -> impl Iterator<Item = (&'static str, &'static str)> + use<'_> {
    RENAMED.iter().filter(move |(of, _)| of.contains(&model_type)).flat_map(|(_, pairs)| pairs.iter().copied())
}

/// Every supported `model_type`.
pub(super) fn model_types() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.model_types).copied()
}

/// Sizes that configuration classes supply where the language part of a multimodal model leaves them out, as LLaVA's files do.
///
/// # Source
/// `LlamaConfig`, `MistralConfig` and `Qwen2Config` of transformers.
pub(super) fn nested_defaults(model_type: &str) -> &'static [(&'static str, u64)] {
    match model_type {
        "llama" => &[
            ("hidden_size", 4096),
            ("intermediate_size", 11_008),
            ("num_hidden_layers", 32),
            ("num_attention_heads", 32),
            ("vocab_size", 32_000),
            ("max_position_embeddings", 2048),
        ],
        "mistral" => &[
            ("hidden_size", 4096),
            ("intermediate_size", 14_336),
            ("num_hidden_layers", 32),
            ("num_attention_heads", 32),
            ("num_key_value_heads", 8),
            ("vocab_size", 32_000),
            ("max_position_embeddings", 131_072),
        ],
        "qwen2" => &[
            ("hidden_size", 4096),
            ("intermediate_size", 22_016),
            ("num_hidden_layers", 32),
            ("num_attention_heads", 32),
            ("num_key_value_heads", 32),
            ("vocab_size", 151_936),
            ("max_position_embeddings", 32_768),
        ],
        _ => &[],
    }
}
