//! Families that are others under another name, and files that are read as a family by request.

use ridgepoint::{Error, Model};
use serde_json::{Value, json};

pub fn read(config: &Value) -> Result<Model, Error> {
    Model::from_config_str("test", "test.json", &config.to_string(), None)
}

/// Layers, hidden size, width of the block, query heads, KV heads, vocabulary.
pub fn sizes(model_type: &str, [layers, hidden, width, heads, kv_heads, vocabulary]: [u64; 6], others: Value) -> Value {
    let mut config = json!({"model_type": model_type, "num_hidden_layers": layers, "hidden_size": hidden,
        "intermediate_size": width, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"});
    for (key, value) in others.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

pub fn billions(model: &Model) -> f64 {
    model.parameters().total as f64 / 1e9
}

/// The sizes of published checkpoints as their model cards have them, billions of parameters.
fn published() -> Vec<(&'static str, Value, f64)> {
    let none = || json!({});
    let experts = |own: Value| own;
    vec![
        (
            "granite-3.1-8b",
            sizes("granite", [40, 4096, 12_800, 32, 8, 49_155], json!({"tie_word_embeddings": true})),
            8.17,
        ),
        (
            "seed-oss-36b",
            sizes(
                "seed_oss",
                [64, 5120, 27_648, 80, 8, 155_136],
                json!({"head_dim": 128, "attention_out_bias": false}),
            ),
            36.15,
        ),
        ("smollm3-3b", sizes("smollm3", [36, 2048, 11_008, 16, 4, 128_256], none()), 3.08),
        (
            "ernie-4.5-0.3b",
            sizes("ernie4_5", [18, 1024, 3072, 16, 2, 103_424], json!({"head_dim": 128, "use_bias": false})),
            0.36,
        ),
        (
            "ernie-4.5-21b-a3b",
            sizes(
                "ernie4_5_moe",
                [28, 2560, 12_288, 20, 4, 103_424],
                experts(
                    json!({"moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2,
                    "moe_layer_start_index": 1, "moe_layer_interval": 1, "use_bias": false}),
                ),
            ),
            21.8,
        ),
        (
            "glm-4-9b-0414",
            sizes("glm4", [40, 4096, 13_696, 32, 2, 151_552], json!({"head_dim": 128, "attention_bias": true})),
            9.4,
        ),
        ("olmo-2-7b", sizes("olmo2", [32, 4096, 11_008, 32, 32, 100_352], none()), 7.3),
        ("internlm2-7b", sizes("internlm2", [32, 4096, 14_336, 32, 8, 92_544], json!({"bias": false})), 7.74),
        ("stablelm-2-12b", sizes("stablelm", [40, 5120, 13_824, 32, 8, 100_352], json!({"qk_layernorm": true})), 12.14),
        ("command-r", sizes("cohere", [40, 8192, 22_528, 64, 64, 256_000], none()), 34.98),
        ("command-r7b", sizes("cohere2", [32, 4096, 14_336, 32, 8, 256_000], json!({"sliding_window": 4096})), 8.03),
        ("gemma-7b", sizes("gemma", [28, 3072, 24_576, 16, 16, 256_000], json!({"head_dim": 256})), 8.54),
        ("starcoder2-7b", sizes("starcoder2", [32, 4608, 18_432, 36, 4, 49_152], json!({"use_bias": true})), 7.17),
        ("pythia-6.9b", sizes("gpt_neox", [32, 4096, 16_384, 32, 32, 50_432], none()), 6.86),
        ("phi-2", sizes("phi", [32, 2560, 10_240, 32, 32, 51_200], none()), 2.78),
        (
            "phi-3.5-moe",
            sizes(
                "phimoe",
                [32, 4096, 6400, 32, 8, 32_064],
                experts(json!({"num_local_experts": 16, "num_experts_per_tok": 2, "attention_bias": true})),
            ),
            41.9,
        ),
        (
            "olmoe-1b-7b",
            sizes(
                "olmoe",
                [16, 2048, 1024, 16, 16, 50_304],
                experts(json!({"num_experts": 64, "num_experts_per_tok": 8})),
            ),
            6.92,
        ),
        (
            "deepseek-moe-16b",
            sizes(
                "deepseek",
                [28, 2048, 10_944, 16, 16, 102_400],
                experts(json!({"n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
                    "moe_intermediate_size": 1408, "first_k_dense_replace": 1})),
            ),
            16.38,
        ),
        (
            "dots.llm1",
            sizes(
                "dots1",
                [62, 4096, 10_944, 32, 32, 152_064],
                experts(json!({"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6,
                    "moe_intermediate_size": 1408, "first_k_dense_replace": 1})),
            ),
            142.8,
        ),
        (
            "ling-lite",
            sizes(
                "bailing_moe",
                [28, 2048, 5632, 16, 4, 126_464],
                experts(
                    json!({"num_experts": 64, "num_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
                    "first_k_dense_replace": 0, "head_dim": 128}),
                ),
            ),
            16.8,
        ),
        ("apertus-8b", sizes("apertus", [32, 4096, 21_504, 32, 8, 131_072], none()), 8.05),
        ("exaone-4.0-32b", sizes("exaone4", [64, 5120, 27_392, 40, 8, 102_400], none()), 32.0),
        ("qwen2.5-vl-7b", sizes("qwen2_5_vl", [28, 3584, 18_944, 28, 4, 152_064], none()), 7.616),
        (
            "glm-4-9b-chat",
            json!({"model_type": "chatglm", "architectures": ["ChatGLMModel"], "num_layers": 40, "hidden_size": 4096,
                "ffn_hidden_size": 13_696, "kv_channels": 128, "num_attention_heads": 32, "multi_query_group_num": 2,
                "padded_vocab_size": 151_552, "seq_length": 131_072, "add_qkv_bias": true, "torch_dtype": "bfloat16"}),
            9.4,
        ),
        (
            "exaone-3.5-7.8b",
            json!({"model_type": "exaone", "num_layers": 32, "hidden_size": 4096, "intermediate_size": 14_336,
                "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 102_400, "tie_word_embeddings": false,
                "max_position_embeddings": 32_768, "torch_dtype": "bfloat16"}),
            7.82,
        ),
        (
            "baichuan2-7b",
            json!({"model_type": "baichuan", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11_008,
                "num_attention_heads": 32, "vocab_size": 125_696, "model_max_length": 4096, "torch_dtype": "bfloat16"}),
            7.51,
        ),
        (
            "glm-4.7-flash",
            sizes(
                "glm4_moe_lite",
                [47, 2048, 10_240, 20, 20, 154_880],
                experts(
                    json!({"n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
                    "first_k_dense_replace": 1, "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
                    "qk_rope_head_dim": 64, "v_head_dim": 256}),
                ),
            ),
            29.9,
        ),
    ]
}

#[test]
fn families_under_another_name_have_the_published_sizes() {
    for (name, config, published) in published() {
        let model = read(&config).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (found, notes) = (billions(&model), &model.notes);
        assert!((found / published - 1.0).abs() < 0.01, "{name}: {found} for {published}");
        assert!(notes.iter().all(|note| !note.contains("as_family")), "{name}: {notes:?}");
    }
}

#[test]
fn multipliers_and_layers_without_rotation_change_nothing() {
    let llama = sizes("llama", [40, 4096, 12_800, 32, 8, 49_155], json!({}));
    let with = json!({"attention_multiplier": 0.0078, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
        "residual_multiplier": 0.22, "no_rope_layers": [1, 1, 1, 0]});
    let granite = sizes("granite", [40, 4096, 12_800, 32, 8, 49_155], with);
    assert_eq!(read(&llama).unwrap().layers, read(&granite).unwrap().layers);
}

#[test]
fn an_unknown_family_is_read_as_another_only_when_asked() {
    let config = sizes("mystery", [32, 4096, 11_008, 32, 32, 32_000], json!({}));
    let message = read(&config).unwrap_err().to_string();
    assert!(message.contains("`model_type`") && message.contains("as_family"), "{message}");
    assert!(message.len() < 250, "{message}");
    let near = read(&sizes("qwen3moe", [2, 4096, 11_008, 32, 32, 32_000], json!({}))).unwrap_err().to_string();
    assert!(near.contains("qwen3_moe"), "{near}");

    let text = config.to_string();
    let asked = Model::from_config_as("m", "config.json", &text, None, Some("llama")).unwrap();
    assert_eq!(asked.parameters().total, 6_738_415_616);
    assert!(asked.notes.iter().any(|note| note.contains("mystery") && note.contains("as_family")), "{:?}", asked.notes);
    let unknown = Model::from_config_as("m", "config.json", &text, None, Some("lama")).unwrap_err().to_string();
    assert!(unknown.contains("as_family") && unknown.contains("llama"), "{unknown}");

    let mut in_file = config.clone();
    in_file["ridgepoint"] = json!({"as_family": "llama"});
    assert_eq!(read(&in_file).unwrap().parameters(), asked.parameters());
    // Engines choose by the class; so does a file that has one of a known family.
    let mut of_class = config;
    of_class["architectures"] = json!(["LlamaForCausalLM"]);
    let implied = read(&of_class).unwrap();
    assert_eq!(implied.parameters(), asked.parameters());
    assert!(implied.notes.iter().any(|note| note.contains("LlamaForCausalLM")), "{:?}", implied.notes);
    // A key of layers that are not modelled is refused in any family.
    let mut with_states = of_class;
    with_states["mamba_d_state"] = json!(16);
    assert!(read(&with_states).unwrap_err().to_string().contains("mamba_d_state"));
}
