//! The supported model families and their differences, as one table.

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
    /// Norms of `hidden_size` weights per layer.
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
    /// Sizes of the family's configuration class that published files leave out.
    pub(super) defaults: &'static [(&'static str, u64)],
}

const LLAMA: Family = Family {
    model_types: &["llama"],
    attention: AttentionRule::Gqa,
    bias: BiasRule::Key,
    qk_norm: QkNorm::None,
    qk_norm_is_optional: false,
    windows: WindowRule::Full,
    ffn: FfnRule::Dense,
    hybrid: None,
    sparse: false,
    gated_attention: false,
    norms: 2,
    tied_by_default: false,
    kv_heads_default_to_heads: true,
    expert_bias: false,
    sinks: false,
    attention_module: "self_attn",
    dense_module: "mlp",
    moe_module: "mlp",
    fused_projections: false,
    defaults: &[],
};

const BASE: Family = Family { kv_heads_default_to_heads: false, bias: BiasRule::Never, ..LLAMA };

/// Qwen's hybrid models with a dense block in every layer.
///
/// # Source
/// vLLM, `Qwen3NextAttention` (`vllm/model_executor/models/qwen3_next.py`) and `vllm/model_executor/models/qwen3_5.py`.
const QWEN_HYBRID: Family = Family {
    model_types: &["qwen3_5_text", "qwen3_5"],
    bias: BiasRule::Key,
    qk_norm: QkNorm::PerHead,
    hybrid: Some(Hybrid::DeltaNet),
    gated_attention: true,
    ..BASE
};

const GEMMA: Family =
    Family { bias: BiasRule::Key, norms: 4, tied_by_default: true, defaults: &[("head_dim", 256)], ..BASE };

static FAMILIES: [Family; 22] = [
    LLAMA,
    Family { model_types: &["mistral"], windows: WindowRule::All, ..BASE },
    Family {
        model_types: &["mixtral"],
        windows: WindowRule::All,
        ffn: FfnRule::AllExperts,
        moe_module: "block_sparse_moe",
        ..BASE
    },
    // MiMo-7B is a Qwen2 with a head for multi-token prediction (vLLM, `vllm/model_executor/models/mimo.py`).
    Family {
        model_types: &["qwen2", "mimo"],
        bias: BiasRule::AlwaysQkv,
        windows: WindowRule::FromMaxWindowLayers,
        ..BASE
    },
    Family {
        model_types: &["qwen2_moe"],
        bias: BiasRule::AlwaysQkv,
        windows: WindowRule::FromMaxWindowLayers,
        ffn: FfnRule::QwenSparse,
        ..BASE
    },
    Family {
        model_types: &["qwen3", "qwen3_vl_text", "qwen3_vl"],
        bias: BiasRule::Key,
        qk_norm: QkNorm::PerHead,
        windows: WindowRule::FromMaxWindowLayers,
        defaults: &[("head_dim", 128)],
        ..BASE
    },
    Family {
        model_types: &["qwen3_moe", "qwen3_vl_moe_text", "qwen3_vl_moe"],
        bias: BiasRule::Key,
        qk_norm: QkNorm::PerHead,
        windows: WindowRule::FromMaxWindowLayers,
        ffn: FfnRule::QwenSparse,
        ..BASE
    },
    Family {
        model_types: &["llama4_text", "llama4"],
        bias: BiasRule::Key,
        qk_norm: QkNorm::WeightlessOnLocal,
        qk_norm_is_optional: true,
        windows: WindowRule::ChunkedWhereRotary,
        ffn: FfnRule::Interleaved,
        dense_module: "feed_forward",
        moe_module: "feed_forward",
        ..BASE
    },
    Family {
        model_types: &["gpt_oss"],
        bias: BiasRule::Key,
        windows: WindowRule::AllButEvery { n: 2, and_last: false },
        ffn: FfnRule::AllExperts,
        expert_bias: true,
        sinks: true,
        defaults: &[("head_dim", 64)],
        ..BASE
    },
    Family {
        model_types: &["minimax_m2"],
        qk_norm: QkNorm::FullWidth,
        qk_norm_is_optional: true,
        ffn: FfnRule::AllExperts,
        moe_module: "block_sparse_moe",
        ..BASE
    },
    Family { model_types: &["gemma2"], windows: WindowRule::AllButEvery { n: 2, and_last: false }, ..GEMMA },
    Family {
        model_types: &["gemma3_text", "gemma3"],
        qk_norm: QkNorm::PerHead,
        windows: WindowRule::AllButEvery { n: 6, and_last: false },
        defaults: &[
            ("head_dim", 256),
            ("num_attention_heads", 8),
            ("num_key_value_heads", 4),
            ("vocab_size", 262_208),
            ("max_position_embeddings", 131_072),
        ],
        ..GEMMA
    },
    Family {
        model_types: &["gemma4_text", "gemma4"],
        attention: AttentionRule::GqaTwoGeometries,
        qk_norm: QkNorm::PerHead,
        windows: WindowRule::AllButEvery { n: 6, and_last: true },
        ffn: FfnRule::DenseBesideExperts,
        moe_module: "moe",
        ..GEMMA
    },
    Family {
        model_types: &["phi3"],
        windows: WindowRule::All,
        kv_heads_default_to_heads: true,
        fused_projections: true,
        ..BASE
    },
    Family {
        model_types: &["glm4_moe"],
        bias: BiasRule::KeyWithoutOutput,
        qk_norm: QkNorm::PerHead,
        qk_norm_is_optional: true,
        ffn: FfnRule::FirstDense,
        ..BASE
    },
    Family { model_types: &["deepseek_v2"], attention: AttentionRule::Mla, ffn: FfnRule::FirstDense, ..BASE },
    Family { model_types: &["deepseek_v3"], attention: AttentionRule::Mla, ffn: FfnRule::FirstDense, ..BASE },
    QWEN_HYBRID,
    Family { model_types: &["qwen3_next", "qwen3_5_moe_text", "qwen3_5_moe"], ffn: FfnRule::QwenSparse, ..QWEN_HYBRID },
    Family {
        model_types: &["nemotron_h"],
        ffn: FfnRule::ByLayerKind,
        hybrid: Some(Hybrid::NemotronH),
        norms: 1,
        attention_module: "mixer",
        dense_module: "mixer",
        moe_module: "mixer",
        ..BASE
    },
    Family { model_types: &["kimi_k2"], attention: AttentionRule::Mla, ffn: FfnRule::FirstDense, ..BASE },
    Family {
        model_types: &["deepseek_v32", "glm_moe_dsa"],
        attention: AttentionRule::Mla,
        sparse: true,
        ffn: FfnRule::FirstDense,
        ..BASE
    },
];

/// Returns the family of a `model_type`.
pub(super) fn find(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.model_types.contains(&model_type))
}

/// Returns the supported `model_type` of a class of transformers, such as `Qwen2MoeForCausalLM`.
pub(super) fn model_type_of(architecture: &str) -> Option<&'static str> {
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    let class = plain(architecture.split_once("For")?.0);
    FAMILIES.iter().flat_map(|family| family.model_types).copied().find(|known| plain(known) == class)
}

/// Lists every supported `model_type`, for messages.
pub(super) fn known_model_types() -> String {
    let all: Vec<&str> = FAMILIES.iter().flat_map(|f| f.model_types.iter().copied()).collect();
    all.join(", ")
}
