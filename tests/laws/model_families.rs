//! Peculiarities of each family's configuration, checked by hand on built-in models and small configurations.

use ridgepoint::model::{Attention, GqaAttention, LayerGroup, MlaAttention, Window};
use ridgepoint::{DType, Model};
use serde_json::{Value, json};

fn parse(config: &Value) -> Model {
    Model::from_config_str("test", "test", &config.to_string(), None).unwrap_or_else(|e| panic!("{e}"))
}

fn with(base: &Value, changes: Value) -> Value {
    let mut config = base.clone();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn dense(model_type: &str) -> Value {
    json!({"model_type": model_type, "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16"})
}

fn gqa(layer: &LayerGroup) -> &GqaAttention {
    match &layer.attention {
        Attention::Gqa(gqa) => gqa,
        other => panic!("{other:?}"),
    }
}

fn mla(layer: &LayerGroup) -> &MlaAttention {
    match &layer.attention {
        Attention::Mla(mla) => mla,
        other => panic!("{other:?}"),
    }
}

fn windows(model: &Model) -> Vec<(u64, Window)> {
    model.layers.iter().map(|l| (l.count, gqa(l).window)).collect()
}

#[test]
fn explicit_head_dim_is_used() {
    for (name, head_dim) in
        [("mistral-nemo-12b", 128), ("qwen3-32b", 128), ("minimax-m2.5", 128), ("gpt-oss-20b", 64), ("llama-2-7b", 128)]
    {
        assert_eq!(gqa(&Model::builtin(name).unwrap().layers[0]).head_dim, head_dim, "{name}");
    }
}

#[test]
fn absent_kv_heads_mean_one_per_query_head_in_llama() {
    let mut config = dense("llama");
    config.as_object_mut().unwrap().remove("num_key_value_heads");
    assert_eq!(gqa(&parse(&config).layers[0]).num_kv_heads, 8);
}

#[test]
fn llama_biases_follow_their_keys() {
    let model = parse(&with(&dense("llama"), json!({"attention_bias": true, "mlp_bias": true})));
    let layer = &model.layers[0];
    assert!(gqa(layer).qkv_bias && gqa(layer).o_bias && layer.dense.as_ref().unwrap().bias);
    // 8x3 weights: q, o 64x64; k, v 64x16; MLP 3x64x256; biases 64+16+16+64 and 2x256+64; norms 2x64.
    let per_layer = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 256 + 160 + 576 + 128;
    assert_eq!(model.parameters().total, 8 * per_layer + 2 * 64_000 + 64);
}

#[test]
fn experts_of_a_dense_family_are_reported_and_not_used() {
    let dense_alone = parse(&dense("llama"));
    let with_experts = parse(&with(&dense("llama"), json!({"num_local_experts": 8, "num_experts_per_tok": 2})));
    assert_eq!(with_experts.parameters(), dense_alone.parameters());
    let note = "num_experts = 8 is not used: layers of this model_type have no experts";
    assert!(with_experts.notes.iter().any(|known| known == note), "{:?}", with_experts.notes);
    assert!(dense_alone.notes.iter().all(|known| !known.contains("experts")), "{:?}", dense_alone.notes);
}

#[test]
fn mistral_v01_slides_and_later_ones_do_not() {
    assert_eq!(windows(&Model::builtin("mistral-7b").unwrap()), [(32, Window::Sliding(4096))]);
    assert_eq!(windows(&Model::builtin("mistral-7b-v0.3").unwrap()), [(32, Window::Full)]);
}

#[test]
fn qwen_ignores_a_window_that_is_switched_off() {
    let model = Model::builtin("qwen2.5-7b").unwrap();
    assert_eq!(windows(&model), [(28, Window::Full)]);
    assert!(gqa(&model.layers[0]).qkv_bias && !gqa(&model.layers[0]).o_bias);
}

#[test]
fn qwen_slides_from_max_window_layers_on_when_switched_on() {
    let on = json!({"use_sliding_window": true, "sliding_window": 1024, "max_window_layers": 6});
    assert_eq!(windows(&parse(&with(&dense("qwen2"), on))), [(6, Window::Full), (2, Window::Sliding(1024))]);
}

#[test]
fn qwen3_norms_queries_and_keys_per_head_and_small_ones_are_tied() {
    let model = Model::builtin("qwen3-0.6b").unwrap();
    assert_eq!(gqa(&model.layers[0]).qk_norm_params, 256);
    assert!(!gqa(&model.layers[0]).qkv_bias);
    assert!(model.tie_word_embeddings && !Model::builtin("qwen3-8b").unwrap().tie_word_embeddings);
}

#[test]
fn qwen3_moe_experts_are_moe_intermediate_size_wide() {
    let model = Model::builtin("qwen3-30b-a3b").unwrap();
    let moe = model.layers[0].moe.as_ref().unwrap();
    assert_eq!((moe.num_experts, moe.top_k, moe.intermediate_size), (128, 8, 768));
    assert!(moe.shared.is_none() && model.layers[0].dense.is_none());
}

#[test]
fn sparse_step_and_dense_layers_mix_blocks() {
    let sparse = json!({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "decoder_sparse_step": 2, "mlp_only_layers": [3]});
    let model = parse(&with(&dense("qwen3_moe"), sparse));
    // Sparse: 1, 5, 7. Layer 3 is listed as dense.
    let counts: Vec<(u64, bool)> = model.layers.iter().map(|l| (l.count, l.moe.is_some())).collect();
    assert_eq!(counts, [(5, false), (3, true)]);
    assert_eq!(model.layers[0].dense.as_ref().unwrap().intermediate_size, 256);
}

#[test]
fn a_zero_wide_shared_expert_is_none() {
    let sparse = json!({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 0});
    let none = parse(&with(&dense("qwen3_moe"), sparse.clone()));
    assert!(none.layers[0].moe.as_ref().unwrap().shared.is_none());
    let one = parse(&with(&dense("qwen2_moe"), with(&sparse, json!({"shared_expert_intermediate_size": 128}))));
    let moe = one.layers[0].moe.as_ref().unwrap();
    assert_eq!(moe.shared.as_ref().unwrap().intermediate_size, 128);
    assert!(moe.shared_gate);
}

#[test]
fn mixtral_experts_are_intermediate_size_wide() {
    let model = Model::builtin("mixtral-8x7b").unwrap();
    let moe = model.layers[0].moe.as_ref().unwrap();
    assert_eq!((moe.num_experts, moe.top_k, moe.intermediate_size), (8, 2, 14336));
}

#[test]
fn all_scout_layers_have_experts_and_every_fourth_is_global() {
    let model = Model::builtin("llama-4-scout").unwrap();
    assert_eq!(windows(&model), [(36, Window::Chunked(8192)), (12, Window::Full)]);
    for layer in &model.layers {
        let moe = layer.moe.as_ref().unwrap();
        assert_eq!((moe.num_experts, moe.top_k, moe.intermediate_size), (16, 1, 8192));
        assert_eq!(moe.shared.as_ref().unwrap().intermediate_size, 8192);
        assert!(layer.dense.is_none() && !moe.shared_gate);
        assert_eq!(gqa(layer).qk_norm_params, 0);
    }
    assert!(!model.tie_word_embeddings);
}

#[test]
fn maverick_alternates_wide_dense_blocks_and_experts() {
    let model = Model::builtin("llama-4-maverick").unwrap();
    let sparse: u64 = model.layers.iter().filter(|l| l.moe.is_some()).map(|l| l.count).sum();
    assert_eq!(sparse, 24);
    let wide = model.layers.iter().find_map(|l| l.dense.as_ref()).unwrap();
    assert_eq!(wide.intermediate_size, 16384);
    // Every fourth layer is global; layers 3, 7, 11 ... are odd, so they have experts.
    let global = model.layers.iter().find(|l| gqa(l).window == Window::Full).unwrap();
    assert!(global.count == 12 && global.moe.is_some());
}

#[test]
fn explicit_no_rope_layers_are_followed() {
    let mut config: Value = serde_json::from_str(
        &ridgepoint::model::builtin_models().iter().find(|m| m.name == "llama-4-scout").unwrap().json,
    )
    .unwrap();
    config["text_config"]["num_hidden_layers"] = json!(4);
    config["text_config"]["no_rope_layers"] = json!([0, 1, 1, 1]);
    assert_eq!(windows(&parse(&config)), [(1, Window::Full), (3, Window::Chunked(8192))]);
}

#[test]
fn gpt_oss_alternates_windows_and_has_biases_and_sinks() {
    let model = Model::builtin("gpt-oss-120b").unwrap();
    assert_eq!(windows(&model), [(18, Window::Sliding(128)), (18, Window::Full)]);
    let layer = &model.layers[0];
    assert!(gqa(layer).qkv_bias && gqa(layer).o_bias);
    assert_eq!(gqa(layer).extra_params, 64);
    let moe = layer.moe.as_ref().unwrap();
    assert!(moe.bias);
    assert_eq!((moe.num_experts, moe.top_k, moe.intermediate_size), (128, 4, 2880));
}

#[test]
fn minimax_norms_the_full_query_and_key_width() {
    let model = Model::builtin("minimax-m2.5").unwrap();
    let layer = &model.layers[0];
    assert_eq!(gqa(layer).qk_norm_params, 48 * 128 + 8 * 128);
    let moe = layer.moe.as_ref().unwrap();
    assert_eq!((moe.num_experts, moe.intermediate_size, moe.extra_params), (256, 1536, 256));
    assert!(moe.shared.is_none());
}

#[test]
fn gemma2_slides_on_even_layers_without_layer_types() {
    let config = with(&dense("gemma2"), json!({"head_dim": 16, "sliding_window": 512}));
    let model = parse(&config);
    assert_eq!(windows(&model), [(4, Window::Sliding(512)), (4, Window::Full)]);
    assert_eq!(model.layers[0].norm_params, 4 * 64);
    assert!(model.tie_word_embeddings);
}

#[test]
fn gemma3_slides_on_five_of_six_layers_even_without_a_pattern() {
    let model = Model::builtin("gemma-3-27b").unwrap();
    assert_eq!(windows(&model), [(52, Window::Sliding(1024)), (10, Window::Full)]);
    let config = with(&dense("gemma3_text"), json!({"head_dim": 16, "sliding_window": 512}));
    assert_eq!(windows(&parse(&config)), [(7, Window::Sliding(512)), (1, Window::Full)]);
}

#[test]
fn gemma3_files_that_leave_out_heads_get_the_class_defaults_and_notes() {
    let model = parse(&json!({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
        "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024},
        "torch_dtype": "bfloat16"}));
    let attention = gqa(&model.layers[0]);
    assert_eq!((attention.num_heads, attention.num_kv_heads, attention.head_dim), (8, 4, 256));
    assert!(model.notes.iter().any(|n| n.contains("num_attention_heads")));
    // Gemma 3 4B: 3.88 B of language model.
    assert_eq!(model.parameters().total / 10_000_000, 388);
}

#[test]
fn gemma4_has_a_dense_block_beside_experts_and_two_geometries() {
    let model = Model::builtin("gemma-4-26b-a4b").unwrap();
    assert_eq!(windows(&model), [(25, Window::Sliding(1024)), (5, Window::Full)]);
    let (local, global) = (gqa(&model.layers[0]), gqa(&model.layers[1]));
    assert_eq!((local.num_kv_heads, local.head_dim, local.k_eq_v), (8, 256, false));
    assert_eq!((global.num_kv_heads, global.head_dim, global.k_eq_v), (2, 512, true));
    for layer in &model.layers {
        assert_eq!(layer.dense.as_ref().unwrap().intermediate_size, 2112);
        let moe = layer.moe.as_ref().unwrap();
        assert_eq!((moe.num_experts, moe.top_k, moe.intermediate_size), (128, 8, 704));
    }
}

#[test]
fn phi3_slides_on_every_layer_unless_the_window_exceeds_the_context() {
    let at = |window: u64| parse(&with(&dense("phi3"), json!({"sliding_window": window})));
    assert_eq!(windows(&at(2047)), [(8, Window::Sliding(2047))]);
    assert_eq!(windows(&at(262_144)), [(8, Window::Full)]);
}

#[test]
fn glm_has_biases_on_inputs_only_and_leading_dense_layers() {
    let model = Model::builtin("glm-4.5").unwrap();
    let (first, rest) = (&model.layers[0], &model.layers[1]);
    assert_eq!((first.count, first.dense.is_some(), rest.count, rest.moe.is_some()), (3, true, 89, true));
    assert!(gqa(first).qkv_bias && !gqa(first).o_bias);
    assert_eq!(gqa(first).qk_norm_params, 256);
}

#[test]
fn deepseek_v3_has_a_latent_three_dense_layers_and_a_shared_expert() {
    let model = Model::builtin("deepseek-v3").unwrap();
    let (first, rest) = (&model.layers[0], &model.layers[1]);
    assert_eq!((first.count, rest.count), (3, 58));
    let latent = mla(rest);
    assert_eq!((latent.num_heads, latent.q_lora_rank, latent.kv_lora_rank), (128, Some(1536), 512));
    assert_eq!((latent.qk_nope_head_dim, latent.qk_rope_head_dim, latent.v_head_dim), (128, 64, 128));
    assert_eq!(first.dense.as_ref().unwrap().intermediate_size, 18432);
    let moe = rest.moe.as_ref().unwrap();
    assert_eq!((moe.num_experts, moe.top_k, moe.intermediate_size, moe.extra_params), (256, 8, 2048, 256));
    assert_eq!(moe.shared.as_ref().unwrap().intermediate_size, 2048);
    assert!(model.notes.iter().any(|n| n.contains("num_nextn_predict_layers")));
}

#[test]
fn every_fourth_layer_of_glm_5_2_has_an_indexer() {
    let has_indexer = |layer: &LayerGroup| mla(layer).sparse.unwrap().indexer.is_some();
    let model = Model::builtin("glm-5.2").unwrap();
    let layers: Vec<_> = model.layers.iter().map(|l| (l.count, l.moe.is_some(), has_indexer(l))).collect();
    assert_eq!(layers, [(3, false, true), (57, true, false), (18, true, true)]);
    let model = Model::builtin("deepseek-v3.2").unwrap();
    let sparse = mla(&model.layers[1]).sparse.unwrap();
    let indexer = sparse.indexer.unwrap();
    assert_eq!((sparse.topk, indexer.num_heads, indexer.head_dim), (2048, 64, 128));
    assert!(model.layers.iter().all(has_indexer));
}

#[test]
fn deepseek_v2_lite_projects_queries_at_once_and_has_two_shared_experts() {
    let model = Model::builtin("deepseek-v2-lite").unwrap();
    assert_eq!(mla(&model.layers[1]).q_lora_rank, None);
    let moe = model.layers[1].moe.as_ref().unwrap();
    assert_eq!(moe.shared.as_ref().unwrap().intermediate_size, 2 * 1408);
    assert_eq!((model.layers[0].count, moe.extra_params), (1, 0));
}

#[test]
fn moe_layer_freq_may_be_a_number_or_a_list() {
    let config: Value = serde_json::from_str(
        &ridgepoint::model::builtin_models().iter().find(|m| m.name == "deepseek-v2-lite").unwrap().json,
    )
    .unwrap();
    let sparse = |changes: Value| -> u64 {
        parse(&with(&config, changes)).layers.iter().filter(|l| l.moe.is_some()).map(|l| l.count).sum()
    };
    // Of layers 1 to 5 the even ones.
    assert_eq!(sparse(json!({"num_hidden_layers": 6, "moe_layer_freq": 2})), 2);
    assert_eq!(sparse(json!({"num_hidden_layers": 4, "moe_layer_freq": [0, 1, 1, 0]})), 2);
}

#[test]
fn the_outer_level_decides_about_tied_embeddings() {
    let mut text = with(&dense("qwen3_vl_text"), json!({"head_dim": 8}));
    text["tie_word_embeddings"] = json!(false);
    let config = json!({"model_type": "qwen3_vl", "text_config": text, "tie_word_embeddings": true});
    let model = parse(&config);
    assert!(model.tie_word_embeddings);
    assert_eq!(model.model_type, "qwen3_vl_text");
    assert!(model.notes.iter().any(|n| n.contains("vision")));
}

#[test]
fn language_and_llm_sections_are_read_too() {
    for key in ["language_config", "llm_config"] {
        let mut config = json!({"model_type": "some_vl", "dtype": "float16"});
        let mut text = dense("llama");
        text.as_object_mut().unwrap().remove("torch_dtype");
        config[key] = text;
        let model = parse(&config);
        assert_eq!((model.model_type.as_str(), model.dtype), ("llama", DType::Float16));
    }
}

#[test]
fn absent_or_wide_dtypes_are_served_as_bfloat16_with_a_note() {
    let mut config = dense("llama");
    config["torch_dtype"] = json!("float32");
    let wide = parse(&config);
    config.as_object_mut().unwrap().remove("torch_dtype");
    let absent = parse(&config);
    for model in [wide, absent] {
        assert_eq!(model.dtype, DType::Bfloat16);
        assert_eq!(model.notes.len(), 1, "{:?}", model.notes);
    }
}

#[test]
fn hybrid_layers_are_where_their_lists_say() {
    use ridgepoint::model::Recurrence;
    let kinds = |model: &Model| -> Vec<(u64, &str)> {
        let kind = |layer: &LayerGroup| match (&layer.attention, &layer.dense, &layer.moe) {
            (Attention::State(mixer), ..) if mixer.recurrence == Recurrence::GatedDeltaNet => "delta net",
            (Attention::State(_), None, None) => "mamba",
            (Attention::Gqa(_), None, None) => "attention alone",
            (Attention::Gqa(_), ..) => "attention",
            (Attention::None, None, Some(_)) => "experts",
            (Attention::None, Some(_), None) => "dense",
            other => panic!("{other:?}"),
        };
        model.layers.iter().map(|layer| (layer.count, kind(layer))).collect()
    };
    // By an interval of four, and by a list.
    let next = Model::builtin("qwen3-next-80b-a3b-instruct").unwrap();
    assert_eq!(kinds(&next), [(36, "delta net"), (12, "attention")]);
    let nano = Model::builtin("nemotron-3-nano-30b-a3b").unwrap();
    assert_eq!(kinds(&nano), [(23, "mamba"), (23, "experts"), (6, "attention alone")]);
    let Attention::Gqa(gated) = &next.layers[1].attention else { panic!("{:?}", next.layers[1]) };
    assert!(gated.output_gate && gated.qk_norm && gated.rotary_dim == 64, "{gated:?}");
    let shared = next.layers[0].moe.as_ref().unwrap();
    assert!(shared.shared_gate && shared.shared.as_ref().is_some_and(|shared| shared.intermediate_size == 512));
}

#[test]
fn all_softmax_layers_of_minimax_are_full_attention_and_linear_ones_are_refused() {
    let json =
        ridgepoint::model::builtin_models().iter().find(|model| model.name == "minimax-m2.7").unwrap().json.clone();
    let with = |kinds: &str| {
        let json = json.replacen('{', &format!("{{\"attn_type_list\": {kinds},"), 1);
        Model::from_config_str("minimax", "config.json", &json, None)
    };
    assert!(with("[1, 1]").is_ok());
    let error = with("[1, 0]").unwrap_err().to_string();
    assert!(error.contains("attn_type_list"), "{error}");
}
