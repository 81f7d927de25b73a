//! Families from before Llama, and those of experts with their own keys: parameters counted by hand from published sizes.

use ridgepoint::Model;
use ridgepoint::model::Attention;
use serde_json::{Value, json};

use crate::model_aliases::{billions, read};

/// Configurations as published, their parameters, and those of them that are left out: learned positions, the bias of the last norm, and
/// what the comment says.
fn published() -> Vec<(&'static str, Value, u64, u64)> {
    vec![
        (
            "gpt2",
            json!({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50_257}),
            124_439_808,
            1024 * 768 + 768,
        ),
        (
            "opt-125m",
            json!({"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
                "max_position_embeddings": 2048, "word_embed_proj_dim": 768, "vocab_size": 50_272}),
            125_239_296,
            2050 * 768 + 768,
        ),
        (
            "starcoder",
            json!({"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24_576, "n_positions": 8192,
                "multi_query": true, "vocab_size": 49_152}),
            15_517_456_384,
            8192 * 6144 + 6144,
        ),
        // Also the norm of embeddings.
        (
            "bloom-7b1",
            json!({"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32, "seq_length": 2048,
                "vocab_size": 250_880}),
            7_069_016_064,
            2 * 4096 + 4096,
        ),
        (
            "falcon-7b",
            json!({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "num_kv_heads": 71,
                "multi_query": true, "new_decoder_architecture": false, "bias": false, "vocab_size": 65_024}),
            6_921_720_704,
            4544,
        ),
        // Also a second norm in each layer.
        (
            "falcon-40b",
            json!({"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8,
                "multi_query": true, "new_decoder_architecture": true, "bias": false, "vocab_size": 65_024}),
            41_303_293_952,
            60 * 2 * 8192 + 8192,
        ),
        (
            "mpt-7b",
            json!({"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4, "max_seq_len": 2048,
                "no_bias": true, "vocab_size": 50_432, "attn_config": {"attn_type": "multihead_attention", "alibi": true}}),
            6_649_286_656,
            0,
        ),
        // Also the bias of the LM head.
        (
            "gpt-j-6b",
            json!({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048, "n_inner": null,
                "vocab_size": 50_400, "tie_word_embeddings": false}),
            6_050_882_784,
            50_400 + 4096,
        ),
        // 32 layers of attention (41,943,040), norms of heads (256), 64 experts and a shared one (37,748,736 each), a router (262,144) and
        // norms (8192); embeddings of 128,167 rows and the last norm of 4096.
        (
            "hunyuan-a13b",
            json!({"model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 32,
                "num_attention_heads": 32, "num_key_value_heads": 8, "attention_head_dim": 128, "num_experts": 64,
                "moe_topk": vec![8; 32], "moe_intermediate_size": vec![3072; 32], "num_shared_expert": vec![1; 32],
                "use_mixed_mlp_moe": true, "use_qk_norm": true, "use_cla": false, "max_position_embeddings": 32_768,
                "vocab_size": 128_167, "tie_word_embeddings": true}),
            80_393_183_232,
            0,
        ),
    ]
}

#[test]
fn parameters_are_those_published_but_for_what_is_left_out() {
    for (name, config, published, left_out) in published() {
        let model = read(&config).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(model.parameters().total, published - left_out, "{name}");
    }
}

#[test]
fn embeddings_of_another_width_are_noted() {
    let with = |width: u64| {
        let mut config = published()[1].1.clone();
        config["word_embed_proj_dim"] = json!(width);
        read(&config).unwrap().notes.join("; ")
    };
    assert!(with(512).contains("word_embed_proj_dim = 512 is not used") && !with(768).contains("word_embed_proj_dim"));
}

fn kv_heads(model: &Model) -> u64 {
    match &model.layers[0].attention {
        Attention::Gqa(gqa) => gqa.num_kv_heads,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_kv_head_serves_all_where_the_file_says_so() {
    let with = |model_type: &str, others: Value| {
        let mut config = json!({"model_type": model_type, "num_hidden_layers": 2, "hidden_size": 512, "num_attention_heads": 8,
            "vocab_size": 1000, "max_position_embeddings": 512});
        config.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
        kv_heads(&read(&config).unwrap_or_else(|error| panic!("{config}: {error}")))
    };
    for (model_type, others, heads) in [
        ("falcon", json!({"num_kv_heads": 8}), 1),
        ("falcon", json!({"multi_query": false}), 8),
        ("falcon", json!({"new_decoder_architecture": true, "num_kv_heads": 2}), 2),
        ("gpt_bigcode", json!({}), 1),
        ("gpt_bigcode", json!({"multi_query": false}), 8),
        ("mpt", json!({"attn_config": {"attn_type": "multiquery_attention"}}), 1),
        ("mpt", json!({"attn_config": {"kv_n_heads": 4}}), 4),
        ("mpt", json!({}), 8),
        ("gpt2", json!({}), 8),
    ] {
        assert_eq!(with(model_type, others.clone()), heads, "{model_type} {others}");
    }
}

#[test]
fn exaones_experts_and_windows_are_read() {
    // 236 billion parameters by the name of the checkpoint.
    let config = json!({"model_type": "exaone_moe", "hidden_size": 6144, "intermediate_size": 18_432, "num_hidden_layers": 48,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "num_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 1, "sliding_window": 128,
        "sliding_window_pattern": "LLLG", "max_position_embeddings": 262_144, "vocab_size": 153_600});
    let model = read(&config).unwrap();
    assert!((billions(&model) - 236.0).abs() < 2.0, "{}", billions(&model));
    let full = |model: &Model| {
        let is_full = |gqa: &Attention| matches!(gqa, Attention::Gqa(gqa) if gqa.window.size().is_none());
        model.layers.iter().filter(|group| is_full(&group.attention)).map(|group| group.count).sum::<u64>()
    };
    assert_eq!(full(&model), 12);
    // The class's own list of layers counts before the number of dense ones.
    let mut listed = config;
    listed["is_moe_layer"] = Value::Array((0..48).map(|layer| Value::Bool(layer >= 4)).collect());
    let dense: u64 =
        read(&listed).unwrap().layers.iter().filter(|group| group.dense.is_some()).map(|group| group.count).sum();
    assert_eq!(dense, 4);
}

#[test]
fn mellums_layers_are_qwens_with_windows_where_they_are_listed() {
    let kinds: Vec<&str> =
        (0..28).map(|layer| if layer % 4 == 3 { "full_attention" } else { "sliding_attention" }).collect();
    let config = json!({"model_type": "mellum", "hidden_size": 2304, "intermediate_size": 7168, "num_hidden_layers": 28,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 64, "num_experts_per_tok": 8,
        "moe_intermediate_size": 896, "sliding_window": 1024, "layer_types": kinds, "max_position_embeddings": 131_072,
        "vocab_size": 98_304, "tie_word_embeddings": false});
    let model = read(&config).unwrap();
    assert!((billions(&model) - 12.15).abs() < 0.05, "{}", billions(&model));
    let windows: Vec<u64> = model.layers.iter().map(|group| group.count).collect();
    assert_eq!(windows, [21, 7]);
}

#[test]
fn experts_of_several_widths_and_shared_caches_are_refused_by_the_key() {
    let config = |key: &str, value: Value| {
        let mut config = published().pop().unwrap().1;
        config[key] = value;
        config
    };
    for (key, value) in [("moe_intermediate_size", json!([3072, 512])), ("use_cla", json!(true))] {
        let error = read(&config(key, value)).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}
