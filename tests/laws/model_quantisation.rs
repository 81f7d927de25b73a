//! The format that `quantization_config` and `hf_quant_config.json` give each module.

use ridgepoint::dtype::WeightFormat;
use ridgepoint::model::{Attention, LayerGroup, builtin_models};
use ridgepoint::physics::projection::compute_dtype;
use ridgepoint::{DType, Model};
use serde_json::{Value, json};

const BF16: WeightFormat = WeightFormat::Plain(DType::Bfloat16);
const BLOCK: WeightFormat = WeightFormat::Fp8Block { rows: 128, columns: 128 };
const INT4: WeightFormat = WeightFormat::Int4 { group_size: 128 };

fn config(name: &str) -> Value {
    serde_json::from_str(&builtin_models().iter().find(|m| m.name == name).unwrap().json).unwrap()
}

fn read(config: &Value, hf: Option<&Value>) -> Result<Model, ridgepoint::Error> {
    Model::from_config_str("test", "test", &config.to_string(), hf.map(Value::to_string).as_deref())
}

fn quantised(name: &str, quantisation: Value) -> Model {
    let mut config = config(name);
    config["quantization_config"] = quantisation;
    read(&config, None).unwrap_or_else(|e| panic!("{e}"))
}

fn error(name: &str, quantisation: Value) -> String {
    let mut config = config(name);
    config["quantization_config"] = quantisation;
    read(&config, None).unwrap_err().to_string()
}

/// Attention inputs, attention output, dense block, experts, shared experts.
type Formats = (WeightFormat, WeightFormat, Option<WeightFormat>, Option<WeightFormat>, Option<WeightFormat>);

fn formats(layer: &LayerGroup) -> Formats {
    let (qkv, o) = match &layer.attention {
        Attention::Gqa(gqa) => (gqa.qkv_weights, gqa.o_weights),
        Attention::Mla(mla) => (mla.weights, mla.weights),
        Attention::State(mixer) => (mixer.in_weights, mixer.out_weights),
        Attention::None => panic!("no token mixer"),
    };
    let moe = layer.moe.as_ref();
    if let Some(moe) = moe {
        assert_eq!(moe.router_weights, BF16, "a router is never quantised");
    }
    let shared = moe.and_then(|m| m.shared.as_ref()).map(|s| s.weights);
    (qkv, o, layer.dense.as_ref().map(|d| d.weights), moe.map(|m| m.weights), shared)
}

fn first(model: &Model) -> Formats {
    formats(&model.layers[0])
}

fn group(targets: &[&str], weights: Value, activations: Value) -> Value {
    json!({"targets": targets, "weights": weights, "input_activations": activations})
}

#[test]
fn fp8_without_blocks_is_per_tensor_and_spares_the_head() {
    let model = quantised("llama-3.1-8b", json!({"quant_method": "fp8"}));
    assert_eq!(first(&model), (WeightFormat::Fp8, WeightFormat::Fp8, Some(WeightFormat::Fp8), None, None));
    assert_eq!(model.lm_head_weights, BF16);
}

#[test]
fn deepseek_blocks_cover_attention_experts_and_shared_experts() {
    let model = Model::builtin("deepseek-v3").unwrap();
    assert_eq!(first(&model), (BLOCK, BLOCK, Some(BLOCK), None, None));
    assert_eq!(formats(&model.layers[1]), (BLOCK, BLOCK, None, Some(BLOCK), Some(BLOCK)));
    assert_eq!(model.lm_head_weights, BF16);
}

#[test]
fn a_bare_gate_leaves_out_the_router_but_not_gate_projections() {
    let model = Model::builtin("minimax-m2.5").unwrap();
    assert_eq!(first(&model), (BLOCK, BLOCK, None, Some(BLOCK), None));
    let model = quantised("llama-3.1-8b", json!({"quant_method": "fp8", "modules_to_not_convert": ["gate"]}));
    assert_eq!(first(&model).2, Some(WeightFormat::Fp8));
}

#[test]
fn layers_that_are_left_out_form_their_own_group() {
    // As FBGEMM checkpoints do: the first and last layer and all attention stay in bfloat16.
    let out = ["model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj"];
    let mut skipped: Vec<String> = out.iter().map(ToString::to_string).collect();
    skipped.extend((0..32).map(|i| format!("model.layers.{i}.self_attn")));
    let model = quantised("llama-3.1-8b", json!({"quant_method": "fbgemm_fp8", "modules_to_not_convert": skipped}));
    let groups: Vec<(u64, Formats)> = model.layers.iter().map(|l| (l.count, formats(l))).collect();
    assert_eq!(
        groups,
        [(1, (BF16, BF16, Some(BF16), None, None)), (31, (BF16, BF16, Some(WeightFormat::Fp8), None, None))]
    );
}

#[test]
fn scout_fp8_dynamic_keeps_attention_router_and_head_in_bfloat16() {
    let model = Model::builtin("llama-4-scout-fp8-dynamic").unwrap();
    for layer in &model.layers {
        assert_eq!(formats(layer), (BF16, BF16, None, Some(WeightFormat::Fp8), Some(WeightFormat::Fp8)));
    }
    assert_eq!(model.lm_head_weights, BF16);
    // Experts and shared experts: 48 x 17 x 3 x 5,120 x 8,192 at one byte, the rest at two.
    let fp8 = 48.0 * 17.0 * 3.0 * 5_120.0 * 8_192.0;
    // The tower: 34 layers of 4 x 1,408² + 2 x 1,408 x 5,632, patches, 24² positions, and 5,632 x 5,120 + 5,120² behind it.
    let tower = 34.0 * 23_789_568.0 + 588.0 * 1_408.0 + 576.0 * 1_408.0 + 5_632.0 * 5_120.0 + 5_120.0 * 5_120.0;
    let want = 2.0 * (107_769_861_120.0 + tower) - fp8;
    assert!((model.weight_bytes() - want).abs() < 1.0, "{} {want}", model.weight_bytes());
}

#[test]
fn mxfp4_covers_experts_alone() {
    let model = Model::builtin("gpt-oss-20b").unwrap();
    assert_eq!(first(&model), (BF16, BF16, None, Some(WeightFormat::Mxfp4), None));
    let bare = quantised("gpt-oss-20b", json!({"quant_method": "mxfp4"}));
    assert_eq!(first(&bare), first(&model));
}

#[test]
fn gptq_and_awq_groups_are_read() {
    let model = quantised("qwen2.5-7b", json!({"quant_method": "gptq", "bits": 4, "group_size": 128}));
    assert_eq!(first(&model), (INT4, INT4, Some(INT4), None, None));
    assert_eq!(model.lm_head_weights, BF16);
    let model = quantised("qwen2.5-7b", json!({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}));
    assert_eq!(first(&model).0, WeightFormat::Int4 { group_size: 64 });
    let model = quantised("qwen2.5-7b", json!({"quant_method": "gptq", "bits": 8, "group_size": -1, "lm_head": true}));
    let channel = WeightFormat::Int8WeightOnly { group_size: 3584 };
    assert_eq!((first(&model).0, model.lm_head_weights), (channel, channel));
    assert!(error("qwen2.5-7b", json!({"quant_method": "gptq", "bits": 3, "group_size": 128})).contains("3 bit"));
}

#[test]
fn compressed_tensors_formats_are_distinguished() {
    let null = Value::Null;
    let int8 = json!({"num_bits": 8, "type": "int"});
    for (weights, activations, want) in [
        (json!({"num_bits": 8, "type": "float", "strategy": "tensor"}), json!({"num_bits": 8}), WeightFormat::Fp8),
        (
            json!({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}),
            null.clone(),
            BLOCK,
        ),
        (json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}), null.clone(), INT4),
        (json!({"num_bits": 8, "type": "int", "strategy": "channel"}), int8, WeightFormat::Int8),
        (
            json!({"num_bits": 8, "type": "int", "strategy": "channel"}),
            null.clone(),
            WeightFormat::Int8WeightOnly { group_size: 4096 },
        ),
        (
            json!({"num_bits": 4, "type": "float", "group_size": 16, "strategy": "group"}),
            json!({"num_bits": 4, "type": "float"}),
            WeightFormat::Nvfp4,
        ),
        (
            json!({"num_bits": 4, "type": "float", "group_size": 16, "strategy": "group"}),
            null.clone(),
            WeightFormat::Nvfp4WeightOnly,
        ),
        (
            json!({"num_bits": 4, "type": "float", "group_size": 32, "strategy": "group"}),
            null.clone(),
            WeightFormat::Mxfp4,
        ),
    ] {
        let groups = json!({"group_0": group(&["Linear"], weights, activations)});
        let model = quantised(
            "llama-3.1-8b",
            json!({"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}),
        );
        assert_eq!(first(&model), (want, want, Some(want), None, None));
    }
}

#[test]
fn named_targets_go_before_linear_and_may_name_the_head() {
    let fp8 = json!({"num_bits": 8, "type": "float", "strategy": "channel"});
    let int4 = json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128});
    let groups = json!({
        "group_0": group(&["Linear"], fp8.clone(), fp8.clone()),
        "group_1": group(&[r"re:.*mlp\.(gate|up|down)_proj", "lm_head"], int4, Value::Null)});
    let model = quantised("llama-3.1-8b", json!({"quant_method": "compressed-tensors", "config_groups": groups}));
    assert_eq!(first(&model), (WeightFormat::Fp8, WeightFormat::Fp8, Some(INT4), None, None));
    assert_eq!(model.lm_head_weights, INT4);
}

#[test]
fn targets_can_be_experts_alone_as_in_int4_kimi() {
    let mut config = config("kimi-k2");
    config.as_object_mut().unwrap().remove("quantization_config");
    let weights = json!({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32});
    let ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"];
    config["quantization_config"] = json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": group(&["Linear"], weights, Value::Null)}, "ignore": ignore});
    let nested = json!({"model_type": "kimi_k25", "text_config": config, "dtype": "bfloat16"});
    let model = read(&nested, None).unwrap();
    let int4 = WeightFormat::Int4 { group_size: 32 };
    assert_eq!(first(&model), (BF16, BF16, Some(BF16), None, None));
    assert_eq!(formats(&model.layers[1]), (BF16, BF16, None, Some(int4), Some(BF16)));
}

#[test]
fn the_kv_cache_scheme_is_read() {
    let groups = json!({"g": group(&["Linear"], json!({"num_bits": 8, "type": "float"}), Value::Null)});
    let scheme = json!({"quant_method": "compressed-tensors", "config_groups": groups,
        "kv_cache_scheme": {"num_bits": 8, "type": "float"}});
    assert_eq!(quantised("llama-3.1-8b", scheme).kv_cache_dtype, Some(DType::Fp8));
    assert_eq!(quantised("llama-3.1-8b", json!({"quant_method": "fp8"})).kv_cache_dtype, None);
}

#[test]
fn modelopt_excludes_by_glob() {
    let hf = json!({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16,
        "kv_cache_quant_algo": "FP8", "exclude_modules": ["*self_attn*", "*.mlp.gate", "lm_head", "model.layers.0.*"]}});
    let model = read(&config("qwen3-30b-a3b"), Some(&hf)).unwrap();
    let groups: Vec<(u64, Formats)> = model.layers.iter().map(|l| (l.count, formats(l))).collect();
    let nvfp4 = Some(WeightFormat::Nvfp4);
    assert_eq!(groups, [(1, (BF16, BF16, None, Some(BF16), None)), (47, (BF16, BF16, None, nvfp4, None))]);
    assert_eq!(model.kv_cache_dtype, Some(DType::Fp8));
}

#[test]
fn modelopt_in_the_config_reads_the_same_keys() {
    let scheme = json!({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"],
        "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": false}});
    let model = quantised("llama-3.1-8b", scheme);
    assert_eq!((first(&model).0, model.kv_cache_dtype), (WeightFormat::Fp8, Some(DType::Fp8)));
    let awq = json!({"quantization": {"quant_algo": "W4A16_AWQ", "group_size": 128}});
    assert_eq!(first(&read(&config("llama-3.1-8b"), Some(&awq)).unwrap()).0, INT4);
}

#[test]
fn weight_only_nvfp4_computes_in_16_bits() {
    let hf = json!({"quantization": {"quant_algo": "W4A16_NVFP4", "exclude_modules": ["lm_head"]}});
    let format = first(&read(&config("llama-3.1-8b"), Some(&hf)).unwrap()).0;
    assert_eq!(format, WeightFormat::Nvfp4WeightOnly);
    assert_eq!(format.bytes_per_weight().to_bits(), WeightFormat::Nvfp4.bytes_per_weight().to_bits());
    assert_eq!(compute_dtype(format, DType::Bfloat16), DType::Bfloat16);
}

#[test]
fn mixed_precision_follows_its_list() {
    let layers: serde_json::Map<String, Value> = (0..32)
        .flat_map(|i| {
            [
                ("self_attn.q_proj", "FP8"),
                ("self_attn.k_proj", "FP8"),
                ("self_attn.v_proj", "FP8"),
                ("mlp.gate_proj", "NVFP4"),
                ("mlp.up_proj", "NVFP4"),
                ("mlp.down_proj", "NVFP4"),
            ]
            .map(|(name, algo)| (format!("model.layers.{i}.{name}"), json!({"quant_algo": algo})))
        })
        .collect();
    let scheme = json!({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers});
    let model = quantised("llama-3.1-8b", scheme);
    assert_eq!(first(&model), (WeightFormat::Fp8, BF16, Some(WeightFormat::Nvfp4), None, None));
}

#[test]
fn the_section_of_the_config_wins_over_the_quantisation_file_with_a_note() {
    let hf = json!({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}});
    let model = read(&config("deepseek-v3"), Some(&hf)).unwrap();
    assert_eq!(first(&model).0, BLOCK);
    assert!(model.notes.iter().any(|n| n.contains("hf_quant_config.json")), "{:?}", model.notes);
}

#[test]
fn modules_stored_differently_are_noted() {
    let model =
        quantised("llama-3.1-8b", json!({"quant_method": "fp8", "ignored_layers": ["re:.*down_proj", "lm_head"]}));
    assert_eq!(first(&model).2, Some(WeightFormat::Fp8));
    assert!(model.notes.iter().any(|n| n.contains("mlp.gate_proj")), "{:?}", model.notes);
}

#[test]
fn unknown_methods_are_named_with_a_way_out() {
    let message = error("llama-3.1-8b", json!({"quant_method": "aqlm", "nbits_per_codebook": 16}));
    assert!(message.contains("aqlm") && message.contains("precision") && message.contains("int4"), "{message}");
    let message = error("llama-3.1-8b", json!({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}));
    assert!(message.contains("W4A8_AWQ") && message.contains("NVFP4"), "{message}");
    assert!(error("llama-3.1-8b", json!({})).contains("quant_method"));
}

#[test]
fn a_name_that_promises_quantisation_without_any_is_noted() {
    let text = config("llama-3.1-70b").to_string();
    let model = Model::from_config_str("nvidia/Llama-3.1-70B-Instruct-FP8", "x", &text, None).unwrap();
    assert!(model.notes.iter().any(|n| n.contains("hf_quant_config.json")), "{:?}", model.notes);
}

#[test]
fn patterns_are_bounded_by_the_layers_that_they_are_compared_with() {
    let with = |patterns: Vec<String>, layers: u64| {
        let mut config = config("llama-3.1-8b");
        config["num_hidden_layers"] = layers.into();
        config["quantization_config"] = json!({"quant_method": "fp8", "ignored_layers": patterns});
        read(&config, None)
    };
    let patterns =
        |count: usize| (0..count).map(|at| format!("re:.*layers\\.{at}\\.self_attn\\.[qkvo]+_proj$")).collect();
    let error = with(patterns(300), 1000).unwrap_err().to_string();
    assert!(error.contains("are too many for 1000 layers: list the modules by name"), "{error}");
    // A counted repetition stands for more than its bytes.
    let counted = |count: usize| (0..count).map(|at| format!("re:(a{{20}}){{20}}{at}")).collect();
    assert!(with(counted(50), 1000).is_err());
    // What checkpoints have: a few patterns, a glob per layer, and any number of names.
    assert!(with(patterns(20), 128).is_ok());
    assert!(with((0..61).map(|at| format!("model.layers.{at}.self_attn*")).collect(), 61).is_ok());
    assert!(with((0..9999).map(|at| format!("model.layers.{at}.self_attn.q_proj")).collect(), 200).is_ok());
}

#[test]
fn modelopt_may_leave_its_name_out_and_python_may_write_infinity() {
    let json = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 2,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16", "limits": [-Infinity, Infinity, NaN], "text": "an \\" Infinity \\\\",
        "quantization_config": {"quant_algo": "FP8", "kv_cache_scheme": "FP8", "ignore": ["lm_head"]}}"#;
    let json = json.replace("\\\\", "\\");
    let model = Model::from_config_str("m", "config.json", &json, None).unwrap();
    assert_eq!(model.main_weight_format(), Some(WeightFormat::Fp8));
    assert_eq!(model.kv_cache_dtype, Some(ridgepoint::DType::Fp8));
    // A size is no such number.
    let wrong = json.replace("\"vocab_size\": 32000", "\"vocab_size\": Infinity");
    let error = Model::from_config_str("m", "config.json", &wrong, None).unwrap_err().to_string();
    assert!(error.contains("vocab_size"), "{error}");
}
