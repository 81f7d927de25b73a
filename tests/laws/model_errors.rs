//! Configurations that are refused, the wording of those errors, and a parser that never panics.

use proptest::prelude::*;
use ridgepoint::model::builtin_models;
use ridgepoint::{Error, ErrorKind, Model};
use serde_json::{Map, Value, json};

fn read(config: &Value) -> Result<Model, Error> {
    Model::from_config_str("test", "test.json", &config.to_string(), None)
}

fn builtin(name: &str) -> Value {
    serde_json::from_str(&builtin_models().iter().find(|m| m.name == name).unwrap().json).unwrap()
}

fn problems(config: &Value) -> Vec<String> {
    match read(config) {
        Err(error) if error.kind() == ErrorKind::Invalid => error.problems().to_vec(),
        other => panic!("{other:?}"),
    }
}

fn changed(name: &str, changes: Value) -> Value {
    let mut config = builtin(name);
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

#[test]
fn a_size_that_cannot_be_read_is_the_only_problem() {
    for wrong in [json!(-1), json!("4096"), json!(4096.5)] {
        for key in ["hidden_size", "num_attention_heads", "num_key_value_heads"] {
            let found = problems(&changed("llama-3.1-8b", json!({ key: wrong })));
            assert!(matches!(found.as_slice(), [only] if only.starts_with(key)), "{found:?}");
        }
        let found = problems(&changed("llama-2-7b", json!({ "hidden_size": wrong })));
        assert!(matches!(found.as_slice(), [only] if only.contains("hidden_size")), "{found:?}");
    }
}

#[test]
fn unknown_layers_are_named_by_their_key() {
    for (key, value) in [
        ("layer_types", json!(["linear_attention", "full_attention"])),
        ("full_attention_interval", json!(4)),
        ("linear_num_key_heads", json!(16)),
        ("hybrid_override_pattern", json!("M-M*-")),
        ("block_configs", json!([{"attention": {}}])),
        ("index_topk", json!(2048)),
        ("compress_ratios", json!([0, 4, 128])),
        ("sparse_attention_config", json!({"topk": 16})),
        ("num_kv_shared_layers", json!(20)),
    ] {
        let error = read(&changed("llama-3.1-8b", json!({key: value}))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedModel, "{error}");
        assert_eq!(error.location().unwrap().key.as_deref(), Some(key));
        assert!(error.to_string().starts_with("test.json: model_type 'llama' is not supported"), "{error}");
    }
}

#[test]
fn switched_off_keys_of_unknown_layers_do_no_harm() {
    let off = json!({"index_topk": null, "num_kv_shared_layers": 0, "block_configs": [], "is_encoder_decoder": false});
    assert!(read(&changed("llama-3.1-8b", off)).is_ok());
}

#[test]
fn nested_keys_are_named_with_their_path() {
    let mut config = builtin("llama-4-scout");
    config["text_config"]["linear_num_value_heads"] = json!(32);
    let message = read(&config).unwrap_err().to_string();
    assert!(message.contains("text_config.linear_num_value_heads"), "{message}");
}

#[test]
fn an_unknown_model_type_names_a_near_one_and_a_way_out() {
    let error = read(&changed("llama-3.1-8b", json!({"model_type": "llamma"}))).unwrap_err();
    assert!(error.kind() == ErrorKind::UnsupportedModel);
    let message = error.to_string();
    assert!(message.contains("llamma") && message.contains("as_family = llama"), "{message}");
    assert!(problems(&json!({"hidden_size": 64})).join("").contains("model_type"));
}

#[test]
fn all_problems_come_together() {
    let bad = json!({"hidden_size": -1, "num_hidden_layers": 0, "vocab_size": "many", "intermediate_size": 1.5,
        "max_position_embeddings": 1_u64 << 41, "num_attention_heads": 32, "num_key_value_heads": 7});
    let mut config = changed("llama-3.1-8b", bad);
    config["head_dim"] = json!(128);
    config["torch_dtype"] = json!("complex64");
    let found = problems(&config);
    for key in [
        "hidden_size = -1",
        "num_hidden_layers = 0",
        "vocab_size = \"many\"",
        "intermediate_size = 1.5",
        "max_position_embeddings = 2199023255552",
        "num_key_value_heads = 7",
        "complex64",
    ] {
        assert!(found.iter().any(|p| p.contains(key)), "{key} in {found:?}");
    }
    assert_eq!(found.len(), 7, "{found:?}");
}

#[test]
fn missing_keys_are_named() {
    let found = problems(&json!({"model_type": "llama"}));
    for key in [
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
        "max_position_embeddings",
        "num_attention_heads",
        "intermediate_size",
    ] {
        assert!(found.iter().any(|p| p.starts_with(&format!("{key} is missing"))), "{key} in {found:?}");
    }
}

#[test]
fn contradictions_are_found() {
    for (name, changes, expected) in [
        ("mixtral-8x7b", json!({"num_experts_per_tok": 9}), "num_experts_per_tok = 9"),
        ("gpt-oss-20b", json!({"experts_per_token": 5}), "are names of one setting"),
        ("gpt-oss-20b", json!({"layer_types": ["full_attention"]}), "has 1 entries"),
        ("gpt-oss-20b", json!({"sliding_window": null}), "sliding_window is missing"),
        ("qwen3-30b-a3b", json!({"mlp_only_layers": [48]}), "layer 48"),
        ("deepseek-v3", json!({"first_k_dense_replace": 62}), "first_k_dense_replace = 62"),
        ("deepseek-v3", json!({"moe_layer_freq": [1, 0]}), "has 2 entries"),
        ("llama-2-7b", json!({"hidden_size": 4097}), "hidden_size = 4097"),
        ("llama-2-7b", json!({"num_hidden_layers": 1_000_000}), "num_hidden_layers = 1000000"),
        ("llama-2-7b", json!({"attention_bias": "no"}), "attention_bias"),
        ("minimax-m2.5", json!({"qk_norm_type": "odd"}), "qk_norm_type"),
        ("kimi-k2", json!({"kv_lora_rank": null}), "kv_lora_rank is missing"),
        ("glm-5", json!({"index_n_heads": null}), "index_n_heads is missing"),
        ("glm-5", json!({"index_head_dim": 100}), "index_head_dim = 100"),
        ("glm-5", json!({"index_topk_pattern": "FSS"}), "has 3 entries"),
        ("glm-5", json!({"index_topk_pattern": "S".repeat(78)}), "must begin with F"),
        ("glm-5.2", json!({"indexer_types": vec!["full"; 78]}), "contradicts index_topk_freq"),
        (
            "qwen3-32b-fp8",
            json!({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}),
            "weight_block_size",
        ),
        ("qwen3-32b-fp8", json!({"quantization_config": "fp8"}), "must be an object"),
    ] {
        let found = problems(&changed(name, changes.clone()));
        assert!(found.iter().any(|p| p.contains(expected)), "{changes}: {found:?}");
    }
}

#[test]
fn products_that_overflow_are_refused() {
    let huge = 1_u64 << 39;
    let config = changed("llama-2-7b", json!({"hidden_size": huge, "intermediate_size": huge, "vocab_size": huge}));
    for key in ["hidden_size", "intermediate_size", "vocab_size"] {
        let expected = format!("{key} = 549755813888 must be a whole number from 1 to 1048576");
        assert!(problems(&config).contains(&expected), "{key}");
    }
}

#[test]
fn malformed_json_has_line_and_column() {
    for (json, place) in
        [("{\n  \"a\": }", "line 2 column 8"), ("{\n \"a\": 1,\n", "line 3 column 0"), ("", "line 1 column 0")]
    {
        let error = Model::from_config_str("x", "some/config.json", json, None).unwrap_err();
        assert!(error.kind() == ErrorKind::Parse, "{error}");
        let message = error.to_string();
        assert!(message.contains("some/config.json") && message.contains(place), "{message}");
    }
    let scout = builtin("llama-4-scout").to_string();
    let error = Model::from_config_str("x", "x", &scout[..scout.len() / 2], None).unwrap_err();
    assert!(error.to_string().contains("column"), "{error}");
    let error = Model::from_config_str("x", "x", &scout, Some("{")).unwrap_err();
    assert!(error.to_string().contains("hf_quant_config.json"), "{error}");
    assert!(matches!(read(&json!([1, 2])), Err(error) if error.kind() == ErrorKind::Parse));
}

#[test]
fn every_published_configuration_parses_or_is_refused_by_key() {
    let Ok(data) = std::env::var("RIDGEPOINT_DATA") else {
        eprintln!("skipped: RIDGEPOINT_DATA is not set");
        return;
    };
    let mut read = 0;
    for entry in std::fs::read_dir(format!("{data}/models")).unwrap() {
        let path = entry.unwrap().path();
        match Model::load(&path) {
            Ok(model) => {
                read += 1;
                let id = path.file_stem().unwrap().to_str().unwrap().replace("--", "/");
                let own = Model::builtin(&id).unwrap_or_else(|e| panic!("{id}: {e}"));
                assert_eq!(own.parameters(), model.parameters(), "{id}");
                if id != "nvidia/Llama-3.1-70B-Instruct-FP8" {
                    assert_eq!(own.layers, model.layers, "{id}");
                    assert_eq!(own.lm_head_weights, model.lm_head_weights, "{id}");
                    assert_eq!(own.max_position_embeddings, model.max_position_embeddings, "{id}");
                }
            }
            Err(error) if error.kind() == ErrorKind::UnsupportedModel => {
                let key = error.location().unwrap().key.clone().unwrap();
                assert!(["index_topk", "text_config.layer_types"].contains(&key.as_str()), "{key} {}", path.display());
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(read >= 30, "{read}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0_u64..70).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![
            "[a-z0-9*.:()\\[\\]\\\\ ]{0,12}",
            Just("re:.*mlp.*".to_owned()),
            Just("llama".to_owned()),
            Just("sliding_attention".to_owned()),
            Just("MIXED_PRECISION".to_owned()),
            Just("compressed-tensors".to_owned())
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        let key = prop_oneof![
            "[a-z_]{1,8}",
            Just("weights".to_owned()),
            Just("quant_method".to_owned()),
            Just("num_bits".to_owned()),
            Just("model_type".to_owned()),
            Just("text_config".to_owned())
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Every object and list inside a value, as JSON pointers.
fn pointers(value: &Value, prefix: &str, found: &mut Vec<String>) {
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.replace('~', "~0").replace('/', "~1"), v)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        _ => return,
    };
    for (key, inner) in entries {
        let pointer = format!("{prefix}/{key}");
        pointers(inner, &pointer, found);
        found.push(pointer);
    }
}

/// Values on which every later formula must be defined.
fn use_all(model: &Model) {
    let counts = model.parameters();
    assert!(counts.total >= counts.embedding && counts.total >= counts.active && counts.active > 0);
    assert!(model.weight_bytes().is_finite() && model.weight_bytes() > 0.0);
    assert!(model.num_layers() > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_config_panics(config in any_json(), hf in prop::option::of(any_json())) {
        let hf = hf.map(|v| v.to_string());
        if let Ok(model) = Model::from_config_str("x", "x", &config.to_string(), hf.as_deref()) {
            use_all(&model);
        }
    }

    #[test]
    fn no_mutation_of_a_real_config_panics(
        which in any::<prop::sample::Index>(),
        places in prop::collection::vec((any::<prop::sample::Index>(), any_json()), 1..5),
    ) {
        let mut config: Value = serde_json::from_str(&which.get(builtin_models()).json).unwrap();
        for (place, value) in places {
            let mut found = Vec::new();
            pointers(&config, "", &mut found);
            if let Some(target) = config.pointer_mut(place.get(&found).as_str()) {
                *target = value;
            }
            if config.as_object().is_none_or(Map::is_empty) {
                break;
            }
        }
        if let Ok(model) = Model::from_config_str("x", "x", &config.to_string(), None) {
            use_all(&model);
        }
    }

    #[test]
    fn no_truncation_panics(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>()) {
        let json = which.get(builtin_models()).json.trim_end();
        let end = at.index(json.len());
        if let Some(cut) = json.get(..end) {
            prop_assert!(Model::from_config_str("x", "x", cut, None).is_err());
        }
    }

    #[test]
    fn no_name_panics(name in "\\PC{0,40}") {
        let _ = Model::builtin(&name);
    }
}
