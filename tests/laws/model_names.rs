//! Models are found by the names people use, and never by those of other models.

use ridgepoint::{ErrorKind, Model};
use std::fs;

use ridgepoint::dtype::WeightFormat;
use ridgepoint::model::{Attention, builtin_models};

fn found(name: &str) -> Model {
    Model::find(name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn first_formats(model: &Model) -> (WeightFormat, Option<WeightFormat>, WeightFormat) {
    let layer = &model.layers[0];
    let attention = match &layer.attention {
        Attention::Gqa(gqa) => gqa.qkv_weights,
        Attention::Mla(mla) => mla.weights,
        Attention::State(mixer) => mixer.in_weights,
        Attention::None => panic!("no token mixer"),
    };
    let ffn = layer.dense.as_ref().map(|d| d.weights).or(layer.moe.as_ref().map(|m| m.weights));
    (attention, ffn, model.lm_head_weights)
}

#[test]
fn hugging_face_ids_are_found() {
    for (name, short) in [
        ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", "llama-4-scout-fp8-dynamic"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("META-LLAMA/llama-3.1-70b-instruct", "llama-3.1-70b"),
        ("Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
        ("01-ai/Yi-34B", "yi-34b"),
        ("codellama/CodeLlama-34b-Instruct-hf", "codellama-34b"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama-2-70b"),
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b-fp8"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b-instruct-2507"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
        ("llama-4-scout-17b-16e", "llama-4-scout"),
        ("qwen-3-8b", "qwen3-8b"),
    ] {
        assert_eq!(found(name).name, short, "{name}");
    }
}

#[test]
fn every_listed_id_and_short_name_leads_to_its_own_model() {
    for model in builtin_models() {
        assert!(!model.hf_ids.is_empty(), "{}", model.name);
        for name in model.hf_ids.iter().map(String::as_str).chain([model.name.as_str()]) {
            assert_eq!(found(name).name, model.name, "{name}");
        }
    }
}

#[test]
fn other_sizes_and_versions_are_not_found() {
    for name in [
        "llama-3.1-80b",
        "llama-31-8b",
        "llama-3.1-8",
        "qwen-34b",
        "mistral-7b-v0.4",
        "meta-llama/Llama-3.1-8B-Function-Calling",
        "deepseek-v3.7",
        "moonshotai/Kimi-K2-Reasoning-0101",
        "Qwen/Qwen3-8B-2507",
        "instruct",
        "fp8",
        "",
        "/",
    ] {
        let error = Model::builtin(name).unwrap_err();
        assert!(error.kind() == ErrorKind::UnknownModel, "{name}: {error}");
    }
}

#[test]
fn near_matches_are_offered() {
    let error = Model::find("meta-llama/llama-3.1-80b").unwrap_err().to_string();
    assert!(error.contains("did you mean ") && error.contains("llama-3.1-8b"), "{error}");
}

#[test]
fn a_quantised_name_without_its_own_configuration_gets_the_plain_scheme_and_a_note() {
    let plain = WeightFormat::Plain(ridgepoint::DType::Bfloat16);
    for (name, format) in [
        ("nvidia/Llama-3.1-70B-Instruct-FP8", WeightFormat::Fp8),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic", WeightFormat::Fp8),
        ("nvidia/Qwen3-32B-FP8", WeightFormat::Fp8),
        ("Qwen3-32B-FP8-Static", WeightFormat::Fp8),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", WeightFormat::Int4 { group_size: 128 }),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", WeightFormat::Int4 { group_size: 128 }),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", WeightFormat::Int8WeightOnly { group_size: 128 }),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", WeightFormat::Int4 { group_size: 128 }),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", WeightFormat::Int8),
        ("nvidia/Llama-3.1-8B-Instruct-NVFP4", WeightFormat::Nvfp4),
        ("nvidia/Mixtral-8x7B-Instruct-v0.1-FP8", WeightFormat::Fp8),
    ] {
        let model = found(name);
        assert_eq!(first_formats(&model), (format, Some(format), plain), "{name}");
        assert!(model.notes.iter().any(|n| n.contains(name)), "{name}: {:?}", model.notes);
        if let Some(moe) = &model.layers[0].moe {
            assert_eq!(moe.router_weights, plain);
        }
    }
}

#[test]
fn a_shipped_variant_is_preferred_and_needs_no_note() {
    let model = found("qwen3-30b-a3b-fp8");
    assert_eq!(model.name, "qwen3-30b-a3b-fp8");
    assert_eq!(first_formats(&model).0, WeightFormat::Fp8Block { rows: 128, columns: 128 });
    assert!(model.notes.is_empty(), "{:?}", model.notes);
    assert_eq!(&found("llama-4-scout-fp8").name, "llama-4-scout-fp8-dynamic");
    assert_eq!(&found("deepseek-ai/DeepSeek-V3-FP8").name, "deepseek-v3");
}

#[test]
fn bf16_undoes_the_quantisation_of_a_model_published_quantised() {
    let plain = WeightFormat::Plain(ridgepoint::DType::Bfloat16);
    let model = found("unsloth/gpt-oss-20b-BF16");
    assert_eq!(first_formats(&model).1, Some(plain));
    assert_eq!(&found("llama-3.1-8b-bf16").name, "llama-3.1-8b");
}

#[test]
fn a_path_is_read_with_the_quantisation_file_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = builtin_models().iter().find(|m| m.name == "llama-3.1-8b").unwrap();
    fs::write(dir.path().join("config.json"), &*config.json).unwrap();
    let path = dir.path().to_str().unwrap();
    assert_eq!(first_formats(&found(path)).0, WeightFormat::Plain(ridgepoint::DType::Bfloat16));
    let hf = r#"{"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}"#;
    fs::write(dir.path().join("hf_quant_config.json"), hf).unwrap();
    for path in [dir.path().to_owned(), dir.path().join("config.json")] {
        let model = Model::load(&path).unwrap();
        assert_eq!(first_formats(&model).0, WeightFormat::Fp8);
        assert_eq!(model.kv_cache_dtype, Some(ridgepoint::DType::Fp8));
        assert_eq!(model.name, path.display().to_string());
    }
}

#[test]
fn a_data_directory_adds_models_and_wins() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("models")).unwrap();
    let json = &builtin_models().iter().find(|m| m.name == "llama-3.1-8b").unwrap().json;
    let own = json.replace("\"num_hidden_layers\": 32", "\"num_hidden_layers\": 3").replace("meta-llama/", "own/");
    fs::write(dir.path().join("models/llama-3.1-8b.json"), &own).unwrap();
    fs::write(dir.path().join("models/me--tiny.json"), &own).unwrap();
    let find = |name: &str| Model::find_in(Some(dir.path()), name);
    assert_eq!(find("llama-3.1-8b").unwrap().num_layers(), 3);
    assert_eq!(find("me/tiny").unwrap().num_layers(), 3);
    assert_eq!(find("llama-3.1-70b").unwrap().num_layers(), 80);
    assert_eq!(find("tinier").unwrap_err().kind(), ErrorKind::UnknownModel);
}

#[test]
fn a_missing_file_is_an_io_error_with_its_path() {
    for path in ["./no/such/config.json", "nowhere.json"] {
        let error = Model::find(path).unwrap_err();
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains(path), "{error}");
    }
}

#[test]
fn later_releases_are_not_taken_for_their_base() {
    let names = [
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2-thinking", 262_144),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2-instruct-0905", 262_144),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2", 131_072),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-30b-a3b-thinking-2507", 262_144),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b-instruct-2507", 262_144),
        ("Qwen/Qwen3-4B", "qwen3-4b", 40_960),
        ("Qwen/QwQ-32B", "qwq-32b", 40_960),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-7b", 32_768),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "deepseek-r1-distill-llama-70b", 131_072),
    ];
    for (name, short, context) in names {
        let model = found(name);
        assert_eq!((model.name.as_str(), model.max_position_embeddings), (short, context), "{name}");
        assert!(!model.notes.iter().any(|note| note.contains("not built in")), "{name}: {:?}", model.notes);
    }
    // Experts in int4 with a scale per 32, the rest in bf16: not the fp8 of Kimi-K2.
    let thinking = found("moonshotai/Kimi-K2-Thinking");
    let experts = thinking.layers.iter().find_map(|layer| layer.moe.as_ref()).unwrap();
    assert_eq!(experts.weights, WeightFormat::Int4 { group_size: 32 });
}

#[test]
fn a_suffix_that_no_listed_name_has_is_noted() {
    let noted = |name: &str| found(name).notes.iter().any(|note| note.contains("differs in a suffix"));
    assert!(noted("Qwen/Qwen3-8B-Base") && !noted("Qwen/Qwen3-8B") && !noted("qwen3-8b"));
}

/// Whose checkpoint it is decides about the blocks of fp8 and about the KV cache; a note says what is assumed.
#[test]
fn a_publishers_checkpoints_are_taken_as_it_quantises() {
    let (block, fp8) = (WeightFormat::Fp8Block { rows: 128, columns: 128 }, Some(ridgepoint::DType::Fp8));
    for (name, format, cache) in [
        ("Qwen/Qwen3.5-397B-A17B-FP8", block, None),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", block, None),
        ("qwen3-8b-fp8", block, None),
        ("RedHatAI/Qwen3-8B-FP8", WeightFormat::Fp8, None),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", WeightFormat::Fp8, None),
        ("RedHatAI/Qwen3-8B-FP8-block", block, None),
        ("amd/Llama-3.1-70B-Instruct-FP8-KV", WeightFormat::Fp8, fp8),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", WeightFormat::Fp8, fp8),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", WeightFormat::Nvfp4, fp8),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", WeightFormat::Fp8, fp8),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", WeightFormat::Nvfp4, fp8),
        ("meta-llama/Llama-3.1-8B-Instruct-FP8", WeightFormat::Fp8, None),
    ] {
        let model = found(name);
        assert_eq!((first_formats(&model).0, model.kv_cache_dtype), (format, cache), "{name}");
        let note = model.notes.iter().find(|note| note.contains("is not built in")).unwrap_or_else(|| panic!("{name}"));
        assert!(note.contains(if cache == fp8 { "a KV cache in fp8" } else { "the base's KV cache" }), "{note}");
        assert_eq!(note.contains("in blocks of 128 x 128"), format == block, "{note}");
    }
}

/// Meta leaves attention alone in both, and other modules by the model.
#[test]
fn fp8_checkpoints_of_meta_leave_out_what_meta_describes() {
    let is_fp8 = |stored: WeightFormat| stored == WeightFormat::Fp8;
    let mut dense_layers = [0, 0];
    let large = found("meta-llama/Llama-3.1-405B-Instruct-FP8");
    for group in &large.layers {
        let Attention::Gqa(attention) = &group.attention else { panic!("{group:?}") };
        assert!(!is_fp8(attention.qkv_weights) && !is_fp8(attention.o_weights), "{group:?}");
        dense_layers[usize::from(is_fp8(group.dense.as_ref().unwrap().weights))] += group.count;
    }
    assert_eq!(dense_layers, [2, 124]);
    let sparse = found("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8");
    for group in &sparse.layers {
        let Attention::Gqa(attention) = &group.attention else { panic!("{group:?}") };
        assert!(!is_fp8(attention.qkv_weights) && !is_fp8(attention.o_weights), "{group:?}");
        assert!(group.dense.as_ref().is_none_or(|dense| !is_fp8(dense.weights)), "{group:?}");
        let Some(experts) = &group.moe else { continue };
        assert!(is_fp8(experts.weights) && !is_fp8(experts.shared.as_ref().unwrap().weights), "{group:?}");
    }
    assert!(
        sparse.layers.iter().any(|group| group.moe.is_some())
            && sparse.layers.iter().any(|group| group.dense.is_some())
    );
    for (model, except) in
        [(&large, "except attention and the first and last layer"), (&sparse, "shared experts and dense blocks")]
    {
        assert!(
            model.notes.iter().any(|note| note.contains(except) && note.contains("Meta's description")),
            "{:?}",
            model.notes
        );
    }
    let other = found("nvidia/Llama-3.1-405B-Instruct-FP8");
    assert!(is_fp8(first_formats(&other).0), "{:?}", other.layers[0]);
}

#[test]
fn an_assumed_checkpoint_never_has_the_name_of_a_listed_one() {
    for name in ["nvidia/Qwen3-32B-FP8", "RedHatAI/GLM-5.1-NVFP4", "lukealonso/MiniMax-M2.5-NVFP4"] {
        let model = found(name);
        assert_eq!(model.name, name);
        assert!(model.notes.iter().any(|note| note.contains("is not built in")), "{name}: {:?}", model.notes);
    }
    // In another format a model is the published checkpoint, whoever published it.
    let nvfp4 = ridgepoint::dtype::MatmulFormat::Nvfp4;
    for (name, short) in
        [("moonshotai/Kimi-K2.5", "kimi-k2.5-nvfp4"), ("Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b-nvfp4")]
    {
        let (model, note) = Model::find_variant(None, name, nvfp4).unwrap();
        assert_eq!((model.name.as_str(), model.kv_cache_dtype), (short, Some(ridgepoint::DType::Fp8)));
        assert!(note.is_some_and(|note| note.contains(short)));
        assert_eq!(model.layers, found(short).layers);
    }
}

#[test]
fn checkpoints_of_2026_are_found_by_their_public_names() {
    for (name, short) in [
        ("nvidia/GLM-5.1-NVFP4", "glm-5.1-nvfp4"),
        ("nvidia/Qwen3.5-122B-A10B-NVFP4", "qwen3.5-122b-a10b-nvfp4"),
        ("nvidia/Gemma-4-26B-A4B-NVFP4", "gemma-4-26b-a4b-nvfp4"),
        ("nvidia/Kimi-K2.7-Code-NVFP4", "kimi-k2.7-code-nvfp4"),
        ("nvidia/Qwen3.6-27B-NVFP4", "qwen3.6-27b-nvfp4"),
        ("Qwen/Qwen3.6-35B-A3B", "qwen3.6-35b-a3b"),
        ("zai-org/GLM-4.6", "glm-4.6"),
        ("nvidia/Nemotron-H-8B-Base-8K", "nemotron-h-8b"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron-nano-9b-v2"),
        ("Qwen/Qwen3-32B-FP8-Static-PerTensor", "qwen3-32b-fp8-static-pertensor"),
        ("google/gemma-4-31b-it", "gemma-4-31b"),
    ] {
        let model = found(name);
        assert_eq!(model.name, short, "{name}");
        assert!(!model.notes.iter().any(|note| note.contains("not built in")), "{name}: {:?}", model.notes);
    }
    // Attention and the shared experts stay in 16 bits.
    let glm = found("nvidia/GLM-5.1-NVFP4");
    assert_eq!(first_formats(&glm).0, WeightFormat::Plain(ridgepoint::DType::Bfloat16));
    assert_eq!(
        (glm.main_weight_format(), glm.kv_cache_dtype),
        (Some(WeightFormat::Nvfp4), Some(ridgepoint::DType::Fp8))
    );
}

#[test]
fn published_models_that_cannot_be_read_are_refused_by_the_key() {
    for (name, key) in [
        ("google/gemma-3n-E4B-it", "hidden_size_per_layer_input"),
        ("gemma-3n-e2b", "hidden_size_per_layer_input"),
        ("deepseek-ai/DeepSeek-V4-Pro", "compress_ratios"),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", "compress_ratios"),
        ("MiniMaxAI/MiniMax-M3", "sparse_attention_config"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "block_configs"),
    ] {
        let error = Model::find(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedModel, "{error}");
        assert!(error.to_string().contains(key) && error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_model_known_in_another_format_alone_is_refused_with_that_name() {
    for (name, known) in
        [("moonshotai/Kimi-K2.7-Code", "kimi-k2.7-code-nvfp4"), ("RedHatAI/Kimi-K2.7-Code-FP8", "kimi-k2.7-code-nvfp4")]
    {
        let error = Model::find(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownModel);
        assert!(error.to_string().contains(&format!("of this model only {known} can be named")), "{error}");
    }
}

#[test]
fn releases_of_one_shape_are_found_by_their_own_names() {
    for (name, shape) in [
        ("MiniMaxAI/MiniMax-M2", "minimax-m2.5"),
        ("zai-org/GLM-4.7", "glm-4.6"),
        ("moonshotai/Kimi-K2.6", "kimi-k2.5"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-3.1-24b"),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", "seed-oss-36b"),
    ] {
        assert_eq!(Model::builtin(name).unwrap().name, shape);
    }
    assert_eq!(Model::builtin("zai-org/GLM-4.7-FP8").unwrap().layers[1].count, 89);
}

#[test]
fn a_folder_named_as_quantised_without_a_scheme_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let config = builtin_models().iter().find(|model| model.name == "llama-3.1-8b").unwrap();
    let warns = |folder: &str, json: &str, hf: bool| {
        let path = dir.path().join(folder);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("config.json"), json).unwrap();
        if hf {
            fs::write(path.join("hf_quant_config.json"), r#"{"quantization": {"quant_algo": "NVFP4"}}"#).unwrap();
        }
        let notes = Model::load(&path).unwrap().notes;
        notes.iter().filter(|note| note.contains("put the checkpoint's hf_quant_config.json next to")).count()
    };
    assert_eq!((warns("Llama-FP4", &config.json, false), warns("Llama-AWQ", &config.json, false)), (1, 1));
    assert_eq!((warns("Llama", &config.json, false), warns("Llama-FP8", &config.json, true)), (0, 0));
    let copied = config.json.replacen('{', r#"{"_name_or_path": "nvidia/Llama-3.1-8B-NVFP4","#, 1);
    assert_eq!((warns("mine", &copied, false), warns("mine-too", &copied, true)), (1, 0));
}
