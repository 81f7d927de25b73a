//! Sampling parameters of a model: how `generation_config.json` is read, what is refused, and the sampler's work that follows.

use ridgepoint::{Deployment, ErrorKind, GenerationConfig, Model};

use ridgepoint::model::{builtin_models, builtin_names};
use ridgepoint::physics::StepPlan;

const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 512,
    "torch_dtype": "bfloat16"}"#;

/// Built-in models whose published `generation_config.json` is not known.
const UNKNOWN_SAMPLING: &[&str] = &[
    "deepseek-v2",
    "deepseek-v2-lite",
    "deepseek-v3.1",
    "deepseek-v3.1-nvfp4",
    "deepseek-v3.2",
    "deepseek-v3.2-nvfp4",
    "gemma-4-26b-a4b",
    "gemma-4-26b-a4b-nvfp4",
    "gemma-4-31b",
    "gemma-4-31b-nvfp4",
    "glm-4.5",
    "glm-4.5-air",
    "glm-4.6",
    "glm-5",
    "glm-5-fp8",
    "glm-5-nvfp4",
    "glm-5.1-nvfp4",
    "glm-5.2",
    "glm-5.2-fp8",
    "glm-5.2-nvfp4",
    "kimi-k2-thinking",
    "kimi-k2.5",
    "kimi-k2.5-nvfp4",
    "kimi-k2.6-nvfp4",
    "kimi-k2.7-code-nvfp4",
    "mimo-7b-base",
    "minimax-m2.5-nvfp4",
    "minimax-m2.7",
    "minimax-m2.7-nvfp4",
    "mistral-small-24b",
    "mistral-small-3.1-24b",
    "nemotron-3-nano-30b-a3b",
    "nemotron-3-nano-30b-a3b-nvfp4",
    "nemotron-3-super-120b-a12b",
    "nemotron-3-ultra-550b-a55b",
    "nemotron-3.5-lightning-30b-a3b-nvfp4",
    "nemotron-h-56b",
    "nemotron-h-8b",
    "nemotron-nano-9b-v2",
    "qwen2-57b-a14b",
    "phi-4-mini",
    "qwen2.5-vl-32b",
    "qwen2.5-vl-3b",
    "qwen2.5-vl-72b",
    "qwen2.5-vl-7b",
    "qwen3-235b-a22b-nvfp4",
    "qwen3-32b-fp8-static-pertensor",
    "qwen3-coder-480b-a35b-instruct",
    "qwen3-vl-235b-a22b",
    "qwen3-vl-2b",
    "qwen3-vl-30b-a3b",
    "qwen3-vl-32b",
    "qwen3-vl-4b",
    "qwen3-vl-8b",
    "qwen3.5-122b-a10b",
    "qwen3.5-122b-a10b-nvfp4",
    "qwen3.5-27b",
    "qwen3.5-35b-a3b",
    "qwen3.5-397b-a17b",
    "qwen3.5-397b-a17b-nvfp4",
    "qwen3.6-27b",
    "qwen3.6-27b-nvfp4",
    "qwen3.6-35b-a3b",
    "qwen3.6-35b-a3b-nvfp4",
    "seed-oss-36b",
    "glm-4.5v",
    "intern-s1",
    "intern-s1-mini",
    "internvl3-14b",
    "internvl3-1b",
    "internvl3-2b",
    "internvl3-38b",
    "internvl3-78b",
    "internvl3-8b",
    "internvl3.5-14b",
    "internvl3.5-1b",
    "internvl3.5-241b-a28b",
    "internvl3.5-2b",
    "internvl3.5-30b-a3b",
    "internvl3.5-38b",
    "internvl3.5-4b",
    "internvl3.5-8b",
    "paddleocr-vl",
    "phi-4-multimodal",
];

/// A folder with a configuration and, where given, the text of its `generation_config.json`.
fn folder(generation_config: Option<&str>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), CONFIG).unwrap();
    if let Some(text) = generation_config {
        std::fs::write(dir.path().join("generation_config.json"), text).unwrap();
    }
    dir
}

fn work(model: &Model, generation_config: GenerationConfig) -> (u64, bool, bool) {
    let deployment = Deployment { generation_config, ..Deployment::default() };
    let plan = StepPlan::new(model, &deployment).unwrap();
    (plan.vocab_size, plan.sampling.truncates(), plan.sampling.penalises())
}

fn remarks(model: &Model, generation_config: GenerationConfig) -> usize {
    let deployment = Deployment { generation_config, ..Deployment::default() };
    let plan = StepPlan::new(model, &deployment).unwrap();
    plan.notes.iter().filter(|note| note.contains("generation_config.json is not known")).count()
}

fn problems(text: &str) -> Vec<String> {
    match read().with_generation_config("g.json", text) {
        Err(error) if error.location().is_some_and(|place| place.path == "g.json") => error.problems().to_vec(),
        other => panic!("{other:?}"),
    }
}

fn read() -> Model {
    Model::from_config_str("test", "test.json", CONFIG, None).unwrap()
}

#[test]
fn the_file_beside_the_configuration_is_read_by_folder_and_by_path() {
    let text = r#"{"bos_token_id": 1, "do_sample": false, "max_new_tokens": 64, "temperature": 0.6, "top_p": 0.9,
        "top_k": null, "repetition_penalty": 1.1, "transformers_version": "4.57.0"}"#;
    let dir = folder(Some(text));
    for path in [dir.path().to_owned(), dir.path().join("config.json")] {
        let model = Model::load(&path).unwrap();
        let found = model.sampling.unwrap();
        assert_eq!((found.temperature, found.top_p, found.repetition_penalty), (Some(0.6), Some(0.9), Some(1.1)));
        assert_eq!((found.top_k, found.min_p), (None, None));
        // do_sample is not among the keys that vLLM takes over.
        assert_eq!(work(&model, GenerationConfig::Auto), (1000, true, true));
        assert_eq!(work(&model, GenerationConfig::Vllm), (1000, false, false));
        assert_eq!(remarks(&model, GenerationConfig::Auto), 0);
    }
}

#[test]
fn without_the_file_nothing_is_known_and_a_file_without_such_keys_is_neutral() {
    let unknown = Model::load(folder(None).path()).unwrap();
    assert!(unknown.sampling.is_none());
    assert_eq!(work(&unknown, GenerationConfig::Auto), (1000, false, false));
    assert_eq!((remarks(&unknown, GenerationConfig::Auto), remarks(&unknown, GenerationConfig::Vllm)), (1, 0));

    let neutral = Model::load(folder(Some(r#"{"eos_token_id": [1, 2]}"#)).path()).unwrap();
    assert_eq!(neutral.sampling, Some(Default::default()));
    assert_eq!(
        (work(&neutral, GenerationConfig::Auto), remarks(&neutral, GenerationConfig::Auto)),
        ((1000, false, false), 0)
    );
}

#[test]
fn values_that_switch_truncation_off() {
    for (text, truncates) in [
        (r#"{"top_k": -1}"#, false),
        (r#"{"top_k": 0, "top_p": 1}"#, false),
        (r#"{"top_k": 50}"#, false),
        (r#"{"top_k": 20}"#, true),
        (r#"{"top_p": 0.95, "temperature": 0}"#, false),
        (r#"{"top_p": 0.95, "temperature": 1}"#, true),
        (r#"{"min_p": 0.05}"#, false),
    ] {
        let model = read().with_generation_config("g.json", text).unwrap();
        assert_eq!(work(&model, GenerationConfig::Auto), (1000, truncates, false), "{text}");
    }
}

#[test]
fn all_wrong_values_are_named_together() {
    let found = problems(
        r#"{"temperature": "0.6", "top_p": 0, "top_k": 20.0, "min_p": 1.5, "repetition_penalty": 0, "do_sample": 7}"#,
    );
    assert_eq!(
        found,
        [
            r#"temperature = "0.6" must be a number of at least 0"#,
            "top_p = 0 must be a number above 0 and at most 1",
            "top_k = 20.0 must be a whole number of at least 1, or 0 or -1 for no limit",
            "min_p = 1.5 must be a number of at least 0 and at most 1",
            "repetition_penalty = 0 must be a number above 0",
        ]
    );
    for text in [r#"{"temperature": -0.1}"#, r#"{"top_p": 1.01}"#, r#"{"top_k": -2}"#, r#"{"top_p": true}"#] {
        assert_eq!(problems(text).len(), 1, "{text}");
    }
}

#[test]
fn files_that_are_no_objects_are_refused_with_their_path() {
    for text in ["", "[]", "null", r#"{"top_p": NaN}"#, r#"{"top_p": 0.9"#] {
        let dir = folder(Some(text));
        let error = Model::load(dir.path()).unwrap_err();
        assert!(error.kind() == ErrorKind::Parse, "{error}");
        let path = dir.path().join("generation_config.json");
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }
}

#[test]
fn a_configuration_may_carry_the_keys_itself_but_not_two_kinds() {
    let own = CONFIG.replace("\"bfloat16\"", r#""bfloat16", "ridgepoint": {"generation_config": {"top_k": 40}}"#);
    let model = Model::from_config_str("test", "test.json", &own, None).unwrap();
    assert_eq!(model.sampling.unwrap().top_k, Some(40));
    assert!(model.clone().with_generation_config("g.json", r#"{"top_k": 40}"#).is_ok());
    let error = model.with_generation_config("g.json", r#"{"top_k": 41}"#).unwrap_err().to_string();
    assert!(error.contains("g.json") && error.contains("ridgepoint.generation_config"), "{error}");

    let wrong = own.replace("40", "\"many\"").replace("1000", "0");
    let error = Model::from_config_str("test", "test.json", &wrong, None).unwrap_err();
    let problems = error.problems();
    assert!(problems.iter().any(|p| p.starts_with("ridgepoint.generation_config.top_k = \"many\"")), "{problems:?}");
    assert!(problems.iter().any(|p| p.starts_with("vocab_size = 0")), "{problems:?}");
}

#[test]
fn built_in_models_have_what_was_published() {
    for (name, vocab_size, truncates, penalises) in [
        ("llama-2-7b", 32_000, true, false),
        ("llama-3.1-70b", 128_256, true, false),
        ("llama-4-scout-fp8-dynamic", 202_048, true, false),
        ("codellama-34b", 32_000, false, false),
        ("mistral-nemo-12b", 131_072, false, false),
        ("qwen2.5-7b", 152_064, true, true),
        ("qwen3-30b-a3b-fp8", 151_936, true, false),
        ("gpt-oss-120b", 201_088, false, false),
        ("gemma-3-27b", 262_208, true, false),
    ] {
        let model = Model::builtin(name).unwrap();
        assert_eq!(work(&model, GenerationConfig::Auto), (vocab_size, truncates, penalises), "{name}");
    }
    let penalty = |name| Model::builtin(name).unwrap().sampling.unwrap().repetition_penalty;
    assert_eq!((penalty("qwen2.5-1.5b"), penalty("qwen2.5-3b")), (Some(1.1), Some(1.05)));
    // A quantised build of a built-in model has the same file.
    let fp8 = Model::builtin("llama-3.1-8b-FP8").unwrap();
    assert_eq!(&fp8.sampling, &Model::builtin("llama-3.1-8b").unwrap().sampling);
}

#[test]
fn built_in_keys_are_all_sampling_keys() {
    let known = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty"];
    for model in builtin_models() {
        let config: serde_json::Value = serde_json::from_str(&model.json).unwrap();
        let own = config["ridgepoint"]["generation_config"].as_object();
        let odd: Vec<_> = own.into_iter().flatten().filter(|(key, _)| !known.contains(&key.as_str())).collect();
        assert!(odd.is_empty(), "{}: {odd:?}", model.name);
    }
    let unknown: Vec<_> =
        builtin_names().into_iter().filter(|name| Model::builtin(name).unwrap().sampling.is_none()).collect();
    let new: Vec<_> = unknown.iter().filter(|name| !UNKNOWN_SAMPLING.contains(name)).collect();
    assert!(new.is_empty(), "without ridgepoint.generation_config, and not in UNKNOWN_SAMPLING: {new:?}");
    let known: Vec<_> = UNKNOWN_SAMPLING.iter().filter(|name| !unknown.contains(name)).collect();
    assert!(known.is_empty(), "in UNKNOWN_SAMPLING, but their keys are known: {known:?}");
}

#[test]
fn deployments_written_before_the_key_are_read_as_vllm_does() {
    let read = |json: &str| serde_json::from_str::<Deployment>(json);
    assert_eq!(read("{}").unwrap().generation_config, GenerationConfig::Auto);
    assert_eq!(read(r#"{"generation_config": "vllm"}"#).unwrap().generation_config, GenerationConfig::Vllm);
    let refused = read(r#"{"generation_config": "/models/mine"}"#).unwrap_err().to_string();
    assert!(refused.contains("/models/mine") && refused.contains("auto or vllm"), "{refused}");
}
