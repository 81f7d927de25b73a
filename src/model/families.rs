//! The supported families of models, as one table, and other names of their keys.

use super::family::{AttentionRule, BiasRule, Family, FfnRule, Hybrid, QkNorm, WindowRule};

/// The other names are families that add multipliers, embed positions otherwise or fuse matrices; their sizes and the work of a step are
/// Llama's.
const LLAMA: Family = Family {
    model_types: &[
        "llama",
        "granite",
        "aquila",
        "baichuan",
        "cwm",
        "fairseq2_llama",
        "internlm",
        "internlm2",
        "internlm3",
        "iquestcoder",
        "solar",
        "teleflm",
        "xverse",
        "yi",
    ],
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
    gated: true,
    defaults: &[],
    on: &[],
};

/// An optional norm over all heads of queries and of keys.
const OPTIONAL_NORM_OVER_HEADS: Family = Family { qk_norm: QkNorm::FullWidth, qk_norm_is_optional: true, ..LLAMA };

/// An optional norm of each head.
const HUNYUAN: Family = Family { qk_norm: QkNorm::PerHead, qk_norm_is_optional: true, ..LLAMA };

/// DeepSeek's layers with explicit keys and values.
pub(super) const WITHOUT_LATENT: &str = "deepseek";

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

pub(super) static FAMILIES: &[Family] = &[
    LLAMA,
    Family { model_types: &["smollm3", "ernie4_5", "minicpm", "paddleocr_vl"], tied_by_default: true, ..LLAMA },
    Family { model_types: &["seed_oss"], bias: BiasRule::KeyWithoutOutput, on: &["attention_bias"], ..LLAMA },
    // Norms with a bias.
    Family { model_types: &["stablelm"], bias: BiasRule::KeyWithoutOutput, norms: 4, ..OPTIONAL_NORM_OVER_HEADS },
    Family { model_types: &["orion"], norms: 4, ..LLAMA },
    // Attention and block in parallel, behind one norm.
    Family { model_types: &["cohere"], norms: 1, tied_by_default: true, ..OPTIONAL_NORM_OVER_HEADS },
    Family {
        model_types: &["cohere2"],
        norms: 1,
        tied_by_default: true,
        windows: WindowRule::AllButEveryIfSet { n: 4 },
        ..LLAMA
    },
    Family { model_types: &["olmo"], norms: 0, ..LLAMA },
    Family { model_types: &["olmo2"], qk_norm: QkNorm::FullWidth, ..LLAMA },
    Family {
        model_types: &["olmo3"],
        qk_norm: QkNorm::FullWidth,
        windows: WindowRule::AllButEveryIfSet { n: 4 },
        ..LLAMA
    },
    Family { model_types: &["olmoe"], qk_norm: QkNorm::FullWidth, ffn: FfnRule::AllExperts, ..LLAMA },
    Family { model_types: &["exaone"], tied_by_default: true, ..LLAMA },
    Family {
        model_types: &["exaone4"],
        qk_norm: QkNorm::PerHead,
        windows: WindowRule::AllButEveryIfSet { n: 4 },
        ..LLAMA
    },
    Family {
        model_types: &["exaone_moe"],
        qk_norm: QkNorm::PerHead,
        windows: WindowRule::AllButEveryIfSet { n: 4 },
        ffn: FfnRule::FirstDense,
        ..LLAMA
    },
    Family { model_types: &["hunyuan_v1_dense"], ..HUNYUAN },
    Family { model_types: &["hunyuan_vl", "hunyuan_vl_text"], tied_by_default: true, ..HUNYUAN },
    Family { model_types: &["hunyuan_v1_moe"], ffn: FfnRule::AllExperts, ..HUNYUAN },
    Family { model_types: &["glm", "chatglm"], bias: BiasRule::KeyWithoutOutput, ..BASE },
    Family { model_types: &["glm4", "glm4v", "glm4v_text"], bias: BiasRule::KeyWithoutOutput, norms: 4, ..BASE },
    // Blocks without gate. Norms of all but Arcee and Apertus have a bias.
    Family { model_types: &["arcee"], gated: false, ..LLAMA },
    Family { model_types: &["apertus"], gated: false, qk_norm: QkNorm::PerHead, ..LLAMA },
    Family { model_types: &["nemotron"], gated: false, norms: 4, ..LLAMA },
    Family {
        model_types: &["starcoder2"],
        windows: WindowRule::All,
        norms: 4,
        gated: false,
        tied_by_default: true,
        on: &["attention_bias", "mlp_bias"],
        ..LLAMA
    },
    Family { model_types: &["gpt_neox"], norms: 4, gated: false, on: &["attention_bias", "mlp_bias"], ..LLAMA },
    // Tables of learned positions, at most 1.3 % of the parameters (OPT-125M), are left out. Norms of all but MPT have a bias.
    Family {
        model_types: &["opt", "gpt2", "gpt_bigcode", "bloom"],
        norms: 4,
        gated: false,
        tied_by_default: true,
        on: &["attention_bias", "mlp_bias"],
        defaults: &[("max_position_embeddings", 2048)],
        ..LLAMA
    },
    Family {
        model_types: &["falcon", "mpt"],
        norms: 2,
        gated: false,
        tied_by_default: true,
        defaults: &[("max_position_embeddings", 2048)],
        ..LLAMA
    },
    Family { model_types: &["gptj"], norms: 2, gated: false, on: &["mlp_bias"], ..LLAMA },
    Family { model_types: &["phi"], norms: 2, gated: false, on: &["attention_bias", "mlp_bias"], ..LLAMA },
    Family { model_types: &["mistral", "ministral", "ministral3"], windows: WindowRule::All, ..BASE },
    Family {
        model_types: &["mixtral"],
        windows: WindowRule::All,
        ffn: FfnRule::AllExperts,
        moe_module: "block_sparse_moe",
        ..BASE
    },
    Family { model_types: &["phimoe"], windows: WindowRule::All, norms: 4, ffn: FfnRule::AllExperts, ..LLAMA },
    Family {
        model_types: &["granitemoe", "granitemoeshared"],
        ffn: FfnRule::AllExperts,
        moe_module: "block_sparse_moe",
        ..LLAMA
    },
    // MiMo-7B is a Qwen2 with a head for multi-token prediction (vLLM, `vllm/model_executor/models/mimo.py`).
    Family {
        model_types: &[
            "qwen2",
            "mimo",
            "qwen2_vl",
            "qwen2_vl_text",
            "qwen2_5_vl",
            "qwen2_5_vl_text",
            "qwen2_5_omni_text",
            "dots_ocr",
        ],
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
        model_types: &["qwen3", "qwen3_vl_text", "qwen3_vl", "keye", "keyevl1_5"],
        bias: BiasRule::Key,
        qk_norm: QkNorm::PerHead,
        windows: WindowRule::FromMaxWindowLayers,
        defaults: &[("head_dim", 128)],
        ..BASE
    },
    Family {
        model_types: &["qwen3_moe", "qwen3_vl_moe_text", "qwen3_vl_moe", "qwen3_omni_moe_text", "mellum"],
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
    Family { model_types: &["gemma"], norms: 2, ..GEMMA },
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
        model_types: &["phi3", "phi3_v", "phi4mm"],
        windows: WindowRule::All,
        kv_heads_default_to_heads: true,
        fused_projections: true,
        ..BASE
    },
    Family {
        model_types: &["glm4_moe", "glm4v_moe", "glm4v_moe_text", "solar_open", "bailing_moe", "bailing_moe_v2"],
        bias: BiasRule::KeyWithoutOutput,
        qk_norm: QkNorm::PerHead,
        qk_norm_is_optional: true,
        ffn: FfnRule::FirstDense,
        ..BASE
    },
    Family { model_types: &["ernie4_5_moe"], ffn: FfnRule::FirstDense, tied_by_default: true, ..BASE },
    Family { model_types: &["dots1"], qk_norm: QkNorm::PerHead, ffn: FfnRule::FirstDense, ..LLAMA },
    // Also DeepSeek-V2 and V3 without a latent.
    Family { model_types: &[WITHOUT_LATENT], ffn: FfnRule::FirstDense, ..LLAMA },
    Family { model_types: &["minicpm3"], attention: AttentionRule::Mla, tied_by_default: true, ..BASE },
    Family { model_types: &["deepseek_v2"], attention: AttentionRule::Mla, ffn: FfnRule::FirstDense, ..BASE },
    Family {
        model_types: &["deepseek_v3", "glm4_moe_lite"],
        attention: AttentionRule::Mla,
        ffn: FfnRule::FirstDense,
        ..BASE
    },
    QWEN_HYBRID,
    Family { model_types: &["qwen3_next", "qwen3_5_moe_text", "qwen3_5_moe"], ffn: FfnRule::QwenSparse, ..QWEN_HYBRID },
    Family {
        model_types: &["nemotron_h"],
        ffn: FfnRule::ByLayerKind,
        gated: false,
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

/// `model_type`s, and pairs of their own key and the one that is read.
type RenamedKeys = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// Keys that families call otherwise.
///
/// # Source
/// The classes of `vllm/model_executor/models` and `vllm/transformers_utils/configs`.
pub(super) static RENAMED: &[RenamedKeys] = &[
    (&["internlm", "internlm2"], &[("bias", "attention_bias")]),
    (&["internlm3"], &[("qkv_bias", "attention_bias")]),
    (&["ernie4_5", "paddleocr_vl", "starcoder2"], &[("use_bias", "attention_bias"), ("use_bias", "mlp_bias")]),
    (&["stablelm"], &[("use_qkv_bias", "attention_bias"), ("qk_layernorm", "use_qk_norm")]),
    (&["opt"], &[("ffn_dim", "intermediate_size"), ("enable_bias", "attention_bias"), ("enable_bias", "mlp_bias")]),
    (
        &["gpt2", "gpt_bigcode", "gptj"],
        &[
            ("n_layer", "num_hidden_layers"),
            ("n_head", "num_attention_heads"),
            ("n_embd", "hidden_size"),
            ("n_inner", "intermediate_size"),
            ("n_positions", "max_position_embeddings"),
        ],
    ),
    (
        &["bloom", "falcon"],
        &[
            ("n_layer", "num_hidden_layers"),
            ("n_head", "num_attention_heads"),
            ("n_embed", "hidden_size"),
            ("ffn_hidden_size", "intermediate_size"),
            ("bias", "attention_bias"),
            ("bias", "mlp_bias"),
        ],
    ),
    (&["mpt"], &[("n_layers", "num_hidden_layers"), ("n_heads", "num_attention_heads"), ("d_model", "hidden_size")]),
    (&["exaone_moe"], &[("num_shared_experts", "n_shared_experts")]),
    (&["exaone"], &[("num_layers", "num_hidden_layers")]),
    (
        &["chatglm"],
        &[
            ("num_layers", "num_hidden_layers"),
            ("ffn_hidden_size", "intermediate_size"),
            ("kv_channels", "head_dim"),
            ("multi_query_group_num", "num_key_value_heads"),
            ("padded_vocab_size", "vocab_size"),
            ("add_qkv_bias", "attention_bias"),
        ],
    ),
    (
        &["bailing_moe", "bailing_moe_v2"],
        &[("use_qkv_bias", "attention_bias"), ("num_shared_experts", "n_shared_experts")],
    ),
    (
        &["ernie4_5_moe"],
        &[
            ("use_bias", "attention_bias"),
            ("moe_k", "num_experts_per_tok"),
            ("moe_num_shared_experts", "n_shared_experts"),
            ("moe_layer_start_index", "first_k_dense_replace"),
            ("moe_layer_interval", "moe_layer_freq"),
        ],
    ),
];
