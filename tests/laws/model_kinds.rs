//! Files that are no model, models that are more than their language part, and keys in place of others.

use ridgepoint::dtype::WeightFormat;
use ridgepoint::model::{Attention, builtin_models};
use ridgepoint::physics::Memory;
use ridgepoint::{DType, Deployment, Model};
use serde_json::{Value, json};

use crate::model_aliases::{billions, read, sizes};

#[test]
fn what_generates_no_text_by_itself_is_refused_or_noted() {
    let llama = |layers: u64, others: Value| sizes("llama", [layers, 4096, 11_008, 32, 32, 32_000], others);
    for (config, expected) in [
        (llama(1, json!({"architectures": ["LlamaForCausalLMEagle3"]})), "draft head"),
        (llama(1, json!({"architectures": ["EagleLlamaForCausalLM"]})), "draft head"),
        (llama(1, json!({"architectures": ["Eagle3LlamaForCausalLM"], "draft_vocab_size": 32_000})), "draft head"),
        (llama(1, json!({"draft_vocab_size": 32_000})), "draft_vocab_size"),
        (llama(1, json!({"_name_or_path": "yuhuili/EAGLE-LLaMA3-Instruct-8B"})), "draft head"),
        (json!({"model_type": "eagle", "architectures": ["EAGLEModel"]}), "model_type = eagle"),
        (json!({"architectures": ["MedusaModel"], "model_type": "medusa", "medusa_num_heads": 3}), "draft head"),
        (json!({"architectures": ["DeepSeekMTPModel"], "model_type": "deepseek_mtp"}), "draft head"),
        (json!({"speculators_model_type": "eagle3", "speculators_version": "0.1"}), "speculators_model_type"),
        (json!({"model_type": "bert", "hidden_size": 768}), "encoder"),
        (json!({"model_type": "siglip_vision_model", "hidden_size": 1152}), "tower"),
    ] {
        let error = read(&config).unwrap_err().to_string();
        assert!(error.contains(expected) && error.len() < 300, "{config}: {error}");
    }
    for (config, expected) in [
        (llama(2, json!({"architectures": ["LlamaModel"]})), "generates no text"),
        (llama(2, json!({"architectures": ["LlamaForSequenceClassification"]})), "generates no text"),
        (llama(2, json!({"_name_or_path": "Qwen/Qwen3-Embedding-8B"})), "embeddings"),
        (llama(2, json!({"_name_or_path": "Qwen/Qwen3-Reranker-8B"})), "ranks"),
    ] {
        let notes = read(&config).unwrap().notes;
        assert!(notes.iter().any(|note| note.contains(expected)), "{config}: {notes:?}");
    }
    let named = Model::builtin("Qwen/Qwen3-Embedding-8B").unwrap_err().to_string();
    assert!(named.contains("embeddings"), "{named}");
    let convolutions = Model::builtin("LiquidAI/LFM2.5-1.2B-Instruct").unwrap_err().to_string();
    assert!(convolutions.contains("conv_L_cache"), "{convolutions}");
    // Two layers of a model that is none of them, and a tower's family that is a model's.
    assert!(read(&llama(2, json!({}))).unwrap().notes.is_empty());
}

#[test]
fn files_that_are_no_model_say_what_they_are() {
    for (config, expected) in [
        (
            json!({"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B", "r": 16}),
            "meta-llama/Llama-3.1-8B",
        ),
        (json!({"peft_type": "IA3", "base_model_name_or_path": null, "r": 16}), "adapter"),
        (json!({"base_model_name_or_path": "x/y", "target_modules": ["q_proj"]}), "adapter"),
        (json!({"dim": 4096, "n_layers": 32, "hidden_dim": 14_336, "n_heads": 32, "n_kv_heads": 8}), "params.json"),
        (json!({"pretrained_config": {"architecture": "LlamaForCausalLM"}, "build_config": {}}), "TensorRT-LLM"),
        (
            json!({"architecture": "LlamaForCausalLM", "num_hidden_layers": 32, "mapping": {"world_size": 1}}),
            "TensorRT-LLM",
        ),
        (json!({"model": "meta-llama/Llama-3.1-8B", "tensor_parallel_size": 2}), "of an engine"),
        (json!({"max-num-seqs": 256, "gpu-memory-utilization": 0.9}), "of an engine"),
        (json!({"temperature": 0.6, "top_p": 0.9, "eos_token_id": 2}), "generation_config.json"),
        (json!({"metadata": {"total_size": 1}, "weight_map": {"a": "b"}}), "index"),
        (json!({"tokenizer_class": "LlamaTokenizer", "model_max_length": 4096}), "tokenizer"),
        (json!({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}), "hf_quant_config.json"),
        (json!({"bits": 4, "group_size": 128, "desc_act": false}), "quantize_config.json"),
    ] {
        let error = read(&config).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("model_type is missing"), "{config}: {error}");
        assert!(error.len() < 300, "{error}");
    }
}

#[test]
fn a_folder_of_an_adapter_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let adapter = json!({"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-8B"});
    std::fs::write(dir.path().join("adapter_config.json"), adapter.to_string()).unwrap();
    let error = Model::find(dir.path().to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("adapter") && error.contains("Qwen/Qwen3-8B"), "{error}");
    std::fs::write(dir.path().join("m.gguf"), [0_u8, 159, 146, 150]).unwrap();
    let error = Model::load(dir.path().join("m.gguf")).unwrap_err().to_string();
    assert!(error.contains("GGUF") && error.contains("precision"), "{error}");
}

#[test]
fn the_context_has_the_keys_of_the_engine() {
    let context = |keys: Value| {
        let mut config = sizes("llama", [2, 4096, 11_008, 32, 32, 32_000], keys);
        if config["max_position_embeddings"] == json!(8192) {
            config.as_object_mut().unwrap().remove("max_position_embeddings");
        }
        read(&config).map(|model| model.max_position_embeddings)
    };
    for key in ["max_sequence_length", "max_seq_len", "seq_length", "n_positions", "max_seq_length", "model_max_length"]
    {
        assert_eq!(context(json!({ key: 2048 })).unwrap(), 2048, "{key}");
    }
    // The shortest counts, but `model_max_length` goes before all.
    assert_eq!(context(json!({"max_position_embeddings": 4096, "seq_length": 2048})).unwrap(), 2048);
    assert_eq!(context(json!({"max_position_embeddings": 4096, "model_max_length": 131_072})).unwrap(), 131_072);
    assert!(context(json!({})).unwrap_err().to_string().contains("max_position_embeddings is missing"));
}

#[test]
fn deepseek_without_a_latent_has_explicit_keys_and_values() {
    let experts = json!({"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 896,
        "first_k_dense_replace": 1, "kv_lora_rank": null, "topk_method": "greedy"});
    for off in [json!({"use_mla": false}), json!({"qk_nope_head_dim": 0, "qk_rope_head_dim": 0})] {
        let mut config = sizes("deepseek_v2", [12, 1280, 6848, 10, 10, 129_280], experts.clone());
        for (key, value) in off.as_object().unwrap() {
            config[key] = value.clone();
        }
        let model = read(&json!({"model_type": "deepseek_vl_v2", "language_config": config})).unwrap();
        let Attention::Gqa(attention) = &model.layers[0].attention else { panic!("{:?}", model.layers[0]) };
        assert_eq!((attention.num_kv_heads, attention.head_dim), (10, 128));
    }
    let with = sizes("deepseek_v2", [12, 1280, 6848, 10, 10, 129_280], experts);
    assert!(read(&with).unwrap_err().to_string().contains("kv_lora_rank"));
}

#[test]
fn towers_take_memory() {
    // 24 layers of 4 x 1024² + 3 x 1024 x 4096, patches of 3 x 14², a merger of 4 x 1024², projections to and within 5120.
    let pixtral = 24 * (4 * 1024 * 1024 + 3 * 1024 * 4096) + 588 * 1024 + 4 * 1024 * 1024 + 1024 * 5120 + 5120 * 5120;
    // 32 layers of 4 x 1280² + 3 x 1280 x 3420, patches, a merger of 5120² + 5120 x 3584.
    let qwen = 32 * (4 * 1280 * 1280 + 3 * 1280 * 3420) + 588 * 1280 + 5120 * 5120 + 5120 * 3584;
    // 27 layers of 4 x 1152² + 2 x 1152 x 4304, patches, 64² positions, one matrix.
    let siglip = 27 * (4 * 1152 * 1152 + 2 * 1152 * 4304) + 588 * 1152 + 4096 * 1152 + 1152 * 5376;
    let mistral = sizes("mistral", [2, 5120, 32_768, 32, 8, 131_072], json!({"head_dim": 128}));
    let gemma =
        sizes("gemma3_text", [2, 5376, 21_504, 32, 16, 262_208], json!({"sliding_window": 1024, "head_dim": 128}));
    let flat = sizes("qwen2_5_vl", [2, 3584, 18_944, 28, 4, 152_064], json!({}));
    let with = |mut config: Value, vision: Value| {
        config["vision_config"] = vision;
        config
    };
    for (config, want) in [
        (
            with(
                json!({"model_type": "mistral3", "text_config": mistral}),
                json!({"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                    "image_size": 1540, "patch_size": 14}),
            ),
            pixtral,
        ),
        (
            with(
                flat,
                json!({"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "patch_size": 14, "out_hidden_size": 3584}),
            ),
            qwen,
        ),
        (
            with(
                json!({"model_type": "gemma3", "text_config": gemma}),
                json!({"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
                    "image_size": 896, "patch_size": 14}),
            ),
            siglip,
        ),
    ] {
        let model = read(&config).unwrap();
        assert_eq!(model.tower_params, Some(want));
        assert!(model.notes.iter().any(|note| note.contains("takes memory and no time")), "{:?}", model.notes);
        let bytes = |model: &Model, ranks: u32| {
            let deployment = Deployment { tensor_parallel_size: ranks, ..Deployment::default() };
            Memory::new(model, &deployment).unwrap().max_weight_bytes()
        };
        let mut without = config.clone();
        without.as_object_mut().unwrap().remove("vision_config");
        let without = read(&without).unwrap();
        for ranks in [1, 2] {
            let tower = bytes(&model, ranks) - bytes(&without, ranks);
            assert!((tower - 2.0 * want as f64 / f64::from(ranks)).abs() < 1.0, "{tower} on {ranks} ranks");
        }
    }
    // Sizes that cannot be read leave the tower out, and the note says which.
    let unread = with(sizes("phi3_v", [2, 3072, 8192, 32, 32, 32_064], json!({})), json!({"hidden_size": [1, 2]}));
    let model = read(&unread).unwrap();
    assert_eq!(model.tower_params, None);
    assert!(model.notes.iter().any(|note| note.contains("vision_config")), "{:?}", model.notes);
}

#[test]
fn an_omni_model_is_its_thinker() {
    let text = sizes("qwen2_5_omni_text", [28, 3584, 18_944, 28, 4, 152_064], json!({}));
    let config = json!({"model_type": "qwen2_5_omni", "thinker_config": {"model_type": "qwen2_5_omni_thinker", "text_config": text}});
    let model = read(&config).unwrap();
    assert!((billions(&model) / 7.616 - 1.0).abs() < 0.001, "{}", billions(&model));
}

#[test]
fn a_quantisation_file_counts_only_without_a_section() {
    let config: Value =
        serde_json::from_str(&builtin_models().iter().find(|m| m.name == "llama-3.1-8b").unwrap().json).unwrap();
    let hf =
        json!({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}});
    let with = |section: Option<Value>| {
        let mut config = config.clone();
        if let Some(section) = section {
            config["quantization_config"] = section;
        }
        Model::from_config_str("m", "m.json", &config.to_string(), Some(&hf.to_string())).unwrap()
    };
    let alone = with(None);
    assert_eq!((alone.main_weight_format(), alone.kv_cache_dtype), (Some(WeightFormat::Nvfp4), Some(DType::Fp8)));
    let no_cache = with(Some(json!({"quant_method": "modelopt", "quant_algo": "NVFP4"})));
    assert_eq!((no_cache.main_weight_format(), no_cache.kv_cache_dtype), (Some(WeightFormat::Nvfp4), None));
    assert!(no_cache.notes.iter().any(|note| note.contains("KV cache")), "{:?}", no_cache.notes);
    let other = with(Some(
        json!({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}),
    ));
    assert_eq!((other.main_weight_format(), other.kv_cache_dtype), (Some(WeightFormat::Fp8), Some(DType::Fp8)));
    assert!(
        other.notes.iter().any(|note| note.contains("says FP8") && note.contains("says NVFP4")),
        "{:?}",
        other.notes
    );
    let same = with(Some(
        json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}),
    ));
    assert!(same.notes.iter().all(|note| !note.contains("hf_quant_config")), "{:?}", same.notes);
}
