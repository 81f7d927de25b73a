//! Configurations published until 2026: each is read, or refused by the key that is not modelled. Needs `RIDGEPOINT_DATA`.

use std::path::PathBuf;

use ridgepoint::physics::StepPlan;
use ridgepoint::{Deployment, ErrorKind, Model};

use crate::common::data_pack;

/// Layers that no family has, by the key that says so.
const REFUSED: &[(&str, &str)] = &[
    ("MiniMaxAI--MiniMax-M3", "sparse_attention_config"),
    ("XiaomiMiMo--MiMo-V2-Flash", "hybrid_layer_pattern"),
    ("deepseek-ai--DeepSeek-V4-Flash", "compress_ratios"),
    ("deepseek-ai--DeepSeek-V4-Pro", "compress_ratios"),
    ("moonshotai--Kimi-K3", "linear_attn_config"),
    ("nvidia--DeepSeek-V4-Flash-NVFP4", "compress_ratios"),
    ("nvidia--DeepSeek-V4-Pro-NVFP4", "compress_ratios"),
    ("nvidia--Llama-3_3-Nemotron-Super-49B-v1", "block_configs"),
    ("nvidia--MiniMax-M3-NVFP4", "sparse_attention_config"),
    ("sgl-project--DeepSeek-V4-Flash-FP8", "compress_ratios"),
    ("sgl-project--DeepSeek-V4-Pro-FP8", "compress_ratios"),
    ("stepfun-ai--Step-3.7-Flash", "model_type"),
    ("stepfun-ai--Step-3.7-Flash-FP8", "model_type"),
];

/// Published sizes of hybrid models, parameters: of model cards, without vision towers and multi-token prediction.
const PUBLISHED: &[(&str, f64)] = &[
    ("Qwen--Qwen3.5-27B", 27e9),
    ("Qwen--Qwen3.5-35B-A3B", 34.6e9),
    ("Qwen--Qwen3.5-122B-A10B", 122e9),
    ("Qwen--Qwen3.5-397B-A17B", 396.5e9),
    ("zai-org--GLM-5", 744e9),
    ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.6e9),
    ("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 120.6e9),
    ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 550e9),
    ("nvidia--Nemotron-H-56B-Base-8K", 56.3e9),
];

/// The files of configurations, with the part of their names that says the model.
fn files(test: &str) -> Option<Vec<(String, PathBuf)>> {
    let dir = data_pack(test)?.join("models-2026");
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let named = entries.filter_map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name()?.to_str()?.strip_suffix("_config.json")?.to_owned();
        (!name.ends_with("_hf_quant")).then_some((name, path))
    });
    Some(named.collect())
}

#[test]
fn every_published_configuration_is_read_or_refused_by_its_key() {
    let Some(files) = files("published configurations") else { return };
    assert!(files.len() > 80, "{}", files.len());
    for (name, path) in files {
        let refused = REFUSED.iter().find(|(known, _)| *known == name).map(|(_, key)| *key);
        match Model::load(&path) {
            // Each is laid out too: nothing that is read lacks its operators.
            Ok(model) => assert!(StepPlan::new(&model, &Deployment::default()).is_ok(), "{name}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnsupportedModel, "{error}");
                let key = refused.unwrap_or_else(|| panic!("{name} was read before: {error}"));
                assert!(error.to_string().contains(key), "{name} is refused for another key than {key}: {error}");
            }
        }
    }
}

#[test]
fn sizes_of_hybrid_models_are_the_published_ones() {
    let Some(files) = files("sizes of hybrid models") else { return };
    for (name, published) in PUBLISHED {
        let (_, path) = files.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}"));
        #[allow(clippy::cast_precision_loss)]
        let total = Model::load(path).unwrap().parameters().total as f64;
        assert!((total / published - 1.0).abs() < 0.01, "{name}: {total} for {published}");
    }
}

#[test]
fn built_in_models_are_the_published_ones() {
    let Some(files) = files("built-in models") else { return };
    let mut compared = 0;
    for (name, path) in files {
        let id = name.replace("--", "/");
        let Some(builtin) = ridgepoint::model::builtin_models().iter().find(|model| model.hf_ids.contains(&id)) else {
            continue;
        };
        let (Ok(published), built_in) = (Model::load(&path), Model::builtin(&builtin.name).unwrap()) else { continue };
        assert_eq!(built_in.layers, published.layers, "{name}");
        assert_eq!(built_in.max_position_embeddings, published.max_position_embeddings, "{name}");
        assert_eq!((built_in.vocab_size, built_in.dtype), (published.vocab_size, published.dtype), "{name}");
        assert_eq!(built_in.kv_cache_dtype, published.kv_cache_dtype, "{name}");
        assert_eq!(built_in.lm_head_weights, published.lm_head_weights, "{name}");
        // Some copies leave the tower out.
        assert!(published.tower_params.is_none_or(|params| built_in.tower_params == Some(params)), "{name}");
        compared += 1;
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn the_recipe_of_a_publisher_is_what_it_published() {
    let Some(files) = files("recipes of publishers") else { return };
    for name in ["nvidia--Llama-3.1-70B-Instruct-FP8", "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8"] {
        let (_, path) = files.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}"));
        let (published, assumed) = (Model::load(path).unwrap(), Model::builtin(&name.replace("--", "/")).unwrap());
        assert!(assumed.notes.iter().any(|note| note.contains("is not built in")), "{:?}", assumed.notes);
        assert_eq!((assumed.layers, assumed.kv_cache_dtype), (published.layers, published.kv_cache_dtype));
        assert_eq!(assumed.lm_head_weights, published.lm_head_weights);
    }
}
