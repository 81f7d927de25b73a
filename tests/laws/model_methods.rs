//! Sections of bitsandbytes, AutoRound, torchao, HQQ, Quark and others: read where bytes per weight follow, else refused with a way out.

use ridgepoint::dtype::WeightFormat::{self, *};
use ridgepoint::model::{Attention, builtin_models};
use ridgepoint::{DType, Model};
use serde_json::{Value, json};

fn with(key: &str, section: Value) -> Result<Model, ridgepoint::Error> {
    let builtin = builtin_models().iter().find(|model| model.name == "llama-3.1-8b").unwrap();
    let mut config: Value = serde_json::from_str(&builtin.json).unwrap();
    config[key] = section;
    Model::from_config_str("m", "m.json", &config.to_string(), None)
}

fn formats(model: &Model) -> (WeightFormat, WeightFormat) {
    let Attention::Gqa(attention) = &model.layers[0].attention else { panic!("no attention") };
    (attention.qkv_weights, model.layers[0].dense.as_ref().unwrap().weights)
}

fn torchao(name: &str, data: Value) -> Value {
    json!({"quant_method": "torchao", "quant_type": {"default": {"_type": name, "_version": 1, "_data": data}},
        "modules_to_not_convert": ["lm_head"]})
}

fn quark(weight: Value, input: Value) -> Value {
    json!({"quant_method": "quark", "global_quant_config": {"weight": weight, "input_tensors": input}, "exclude": ["lm_head"],
        "layer_quant_config": {}})
}

#[test]
fn sections_are_read_as_formats_of_the_same_bytes() {
    let channel = 4096;
    for (section, want) in [
        // 4 bits, 8 for 64 of them and 32 for 256 of those: 4.127.
        (
            json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true}),
            Int4 { group_size: 128 },
        ),
        // 4 bits and 32 for 64 of them: 4.5.
        (json!({"quant_method": "bitsandbytes", "_load_in_4bit": true}), Int4 { group_size: 32 }),
        (json!({"quant_method": "bitsandbytes", "load_in_8bit": true, "load_in_4bit": false}), Int8),
        (json!({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": true}), Int4 { group_size: 128 }),
        (json!({"quant_method": "auto-round", "bits": 8, "group_size": -1}), Int8WeightOnly { group_size: channel }),
        (json!({"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp"}), Mxfp4),
        (json!({"quant_method": "auto-round", "bits": 4, "data_type": "nv_fp4", "act_bits": 4}), Nvfp4),
        (torchao("Int4WeightOnlyConfig", json!({"group_size": 64})), Int4 { group_size: 64 }),
        (torchao("Int8WeightOnlyConfig", json!({"group_size": null})), Int8WeightOnly { group_size: channel }),
        (torchao("Int8DynamicActivationInt8WeightConfig", json!({})), Int8),
        (torchao("Float8DynamicActivationFloat8WeightConfig", json!({"granularity": []})), Fp8),
        (
            json!({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 128}}),
            Int4 { group_size: 128 },
        ),
        // A scale and a zero point of 16 bits for 64 weights.
        (
            json!({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}, "skip_modules": ["lm_head"]}),
            Int4 { group_size: 32 },
        ),
        (quark(json!({"dtype": "fp8_e4m3", "qscheme": "per_tensor"}), json!({"dtype": "fp8_e4m3"})), Fp8),
        (quark(json!({"dtype": "fp4", "qscheme": "per_group", "group_size": 32}), json!({"dtype": "fp4"})), Mxfp4),
        (quark(json!({"dtype": "int8", "qscheme": "per_channel"}), json!({"dtype": "int8"})), Int8),
        (
            quark(json!({"dtype": "uint4", "qscheme": "per_group", "group_size": 128}), Value::Null),
            Int4 { group_size: 128 },
        ),
        (json!({"quant_method": "gptq_marlin", "bits": 4, "group_size": 128}), Int4 { group_size: 128 }),
        (json!({"quant_method": "awq_marlin", "bits": 4, "group_size": 128}), Int4 { group_size: 128 }),
        (json!({"quant_method": "w8a8_int8"}), Int8),
    ] {
        let model = with("quantization_config", section.clone()).unwrap_or_else(|error| panic!("{section}: {error}"));
        assert_eq!(formats(&model), (want, want), "{section}");
        assert_eq!(model.lm_head_weights, Plain(DType::Bfloat16), "{section}");
    }
}

#[test]
fn stand_ins_are_noted() {
    for (section, method) in [
        (json!({"quant_method": "bitsandbytes", "load_in_4bit": true}), "bitsandbytes"),
        (torchao("Int4WeightOnlyConfig", json!({})), "torchao"),
    ] {
        let notes = with("quantization_config", section).unwrap().notes;
        assert!(notes.iter().any(|note| note.contains(method) && note.contains("not measured")), "{notes:?}");
    }
}

#[test]
fn layers_that_a_section_leaves_out_stay_as_they_are() {
    let plain = Plain(DType::Bfloat16);
    let int4 = Int4 { group_size: 128 };
    let attention = "re:.*self_attn.*";
    for section in [
        json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_use_double_quant": true,
            "llm_int8_skip_modules": ["self_attn", "lm_head"]}),
        json!({"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": {attention: {"bits": 16}}}),
        json!({"quant_method": "torchao", "quant_type": {"default": {"_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config":
            {"_default": {"_type": "Int4WeightOnlyConfig", "_data": {}}, attention: null}}}}}),
        json!({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int4", "group_size": 128}},
            "exclude": [attention, "lm_head"]}),
    ] {
        assert_eq!(formats(&with("quantization_config", section.clone()).unwrap()), (plain, int4), "{section}");
    }
    let section = json!({"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": {attention: {"bits": 8, "group_size": 128}}});
    let mixed = with("quantization_config", section).unwrap();
    assert_eq!(formats(&mixed), (Int8WeightOnly { group_size: 128 }, int4));
}

#[test]
fn quark_states_the_format_of_the_cache() {
    let mut section = quark(json!({"dtype": "fp8_e4m3"}), json!({"dtype": "fp8_e4m3"}));
    section["kv_cache_quant_config"] = json!({"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}});
    assert_eq!(with("quantization_config", section).unwrap().kv_cache_dtype, Some(DType::Fp8));
}

#[test]
fn what_is_not_read_names_the_nearest_precision() {
    for (key, section, nearest) in [
        ("quantization_config", json!({"quant_method": "gguf"}), "int4"),
        ("quantization_config", json!({"quant_method": "aqlm"}), "int4"),
        ("quantization_config", json!({"quant_method": "quanto", "weights": "int8"}), "w8a16"),
        ("quantization_config", json!({"quant_method": "my_fp8"}), "fp8"),
        (
            "quantization_config",
            json!({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 2}}}),
            "int4",
        ),
        ("quantization_config", torchao("UIntXWeightOnlyConfig", json!({})), "int4"),
        ("quantization", json!({"bits": 4, "group_size": 64}), "MLX"),
        ("quantization", json!({"bits": 8, "group_size": 64, "mode": "affine"}), "w8a16"),
    ] {
        let error = with(key, section.clone()).unwrap_err().to_string();
        assert!(error.contains("precision") && error.contains(nearest), "{section}: {error}");
        assert!(error.len() < 400, "{error}");
    }
    // MLX writes its section under both names.
    let builtin = builtin_models().iter().find(|model| model.name == "llama-3.1-8b").unwrap();
    let mut twice: Value = serde_json::from_str(&builtin.json).unwrap();
    (twice["quantization"], twice["quantization_config"]) = (json!({"bits": 4}), json!({"bits": 4, "group_size": 64}));
    let error = Model::from_config_str("m", "m.json", &twice.to_string(), None).unwrap_err().to_string();
    assert!(error.contains("MLX"), "{error}");
}
