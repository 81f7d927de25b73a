//! Recognises files that are no `config.json` of a model, and says what is wanted instead.

use serde_json::{Map, Value};

/// Keys that a kind of file has, keys that it lacks, and a sentence on it.
struct FileSign {
    has: &'static [&'static str],
    lacks: &'static [&'static str],
    what: &'static str,
}

/// Keys of which a `config.json` of a model has one at least.
const SIZES_OF_MODELS: &[&str] = &["model_type", "hidden_size", "architectures"];

/// Files in the order in which they are looked for. A `config.json` of a model states `model_type`, `architectures` or sizes.
const SIGNS: [FileSign; 12] = [
    FileSign {
        has: &["pretrained_config"],
        lacks: &[],
        what: "is the configuration of a built TensorRT-LLM engine: give the config.json of the checkpoint that it was built from",
    },
    FileSign {
        has: &["architecture", "num_hidden_layers", "mapping"],
        lacks: &["model_type"],
        what: "is the configuration of a TensorRT-LLM checkpoint: give the config.json of the Hugging Face checkpoint that it was converted from",
    },
    FileSign {
        has: &["dim", "n_layers"],
        lacks: &["model_type", "hidden_size"],
        what: "is a params.json in Mistral's or Meta's own layout (dim, n_layers): give the config.json of the same model in Hugging Face layout, or its name",
    },
    FileSign {
        has: &["weight_map"],
        lacks: &["model_type"],
        what: "is an index of weight files: give the config.json next to it",
    },
    FileSign {
        has: &["_class_name"],
        lacks: &["model_type"],
        what: "belongs to a diffusion pipeline, which generates no text: language models alone are predicted",
    },
    FileSign {
        has: &["tokenizer_class"],
        lacks: SIZES_OF_MODELS,
        what: "is a tokenizer's configuration: give the config.json next to it",
    },
    FileSign {
        has: &["image_processor_type"],
        lacks: SIZES_OF_MODELS,
        what: "is the configuration of a preprocessor: give the config.json next to it",
    },
    FileSign {
        has: &["producer", "quantization"],
        lacks: SIZES_OF_MODELS,
        what: "is a hf_quant_config.json: give the config.json next to it, with which it is read",
    },
    FileSign {
        has: &["bits", "group_size"],
        lacks: SIZES_OF_MODELS,
        what: "is a quantize_config.json: put it into the checkpoint's config.json as quantization_config, with its quant_method",
    },
    FileSign {
        has: &["model"],
        lacks: &["model_type", "hidden_size", "architectures", "text_config"],
        what: "is a configuration of an engine that names a model: give the name or the config.json of that model",
    },
    FileSign {
        has: &["zero_optimization"],
        lacks: SIZES_OF_MODELS,
        what: "is a configuration of DeepSpeed: give the config.json of the model",
    },
    FileSign {
        has: &["per_device_train_batch_size"],
        lacks: SIZES_OF_MODELS,
        what: "is a configuration of a training run: give the config.json of the model",
    },
];

/// Keys of engines' configurations.
const ENGINE_KEYS: [&str; 14] = [
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "kv_cache_dtype",
    "max_model_len",
    "mem_fraction_static",
    "tp_size",
    "max_batch_size",
    "max_num_tokens",
    "kv_cache_config",
    "served_model_name",
    "scheduler_config",
];
/// Keys of a `generation_config.json`.
const SAMPLING_KEYS: [&str; 9] = [
    "temperature",
    "top_p",
    "top_k",
    "do_sample",
    "repetition_penalty",
    "max_new_tokens",
    "eos_token_id",
    "bos_token_id",
    "_from_model_config",
];

/// What a file is, if it is no configuration of a model.
pub(super) fn recognised(map: &Map<String, Value>) -> Option<String> {
    let has = |key: &str| map.get(key).is_some_and(|value| !value.is_null());
    if has("peft_type") || (has("base_model_name_or_path") && has("target_modules")) {
        let kind = map.get("peft_type").and_then(Value::as_str).unwrap_or("LoRA");
        let base = map.get("base_model_name_or_path").and_then(Value::as_str);
        let wanted =
            base.map_or("name its base model".to_owned(), |base| format!("name its base model, '{}'", cut(base)));
        return Some(format!(
            "is the configuration of an adapter (peft_type {}), not of a model: {wanted}; the adapter's own work is not predicted",
            cut(kind)
        ));
    }
    let sign = SIGNS.iter().find(|sign| sign.has.iter().all(|key| has(key)) && !sign.lacks.iter().any(|key| has(key)));
    if let Some(sign) = sign {
        return Some(sign.what.to_owned());
    }
    if ["model_type", "architectures", "hidden_size", "text_config", "num_hidden_layers", "n_layer"]
        .iter()
        .any(|key| has(key))
    {
        return None;
    }
    let any_of = |keys: &[&'static str]| keys.iter().copied().find(|key| has(key) || has(&key.replace('_', "-")));
    if let Some(key) = any_of(&ENGINE_KEYS) {
        return Some(format!(
            "is a configuration of an engine (it has {key}), not of a model: give it as the server's file, and a name or a config.json as the model"
        ));
    }
    any_of(&SAMPLING_KEYS).map(|key| {
        format!("is a generation_config.json (it has {key} and no sizes): give the config.json next to it, with which it is read")
    })
}

/// The beginning of a text of a file, as messages show it.
fn cut(text: &str) -> &str {
    text.char_indices().nth(80).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}
