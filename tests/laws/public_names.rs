//! Names of public serving commands: each is a shape or a reason.

use ridgepoint::physics::Memory;
use ridgepoint::{Deployment, ErrorKind, Model};

fn found(name: &str) -> Model {
    Model::find(name).unwrap_or_else(|error| panic!("{error}"))
}

/// Models with a tower, each with the built-in model that has the same layers.
const ON_A_BACKBONE: [(&str, &str); 17] = [
    ("OpenGVLab/InternVL3_5-1B", "qwen3-0.6b"),
    ("OpenGVLab/InternVL3_5-2B", "qwen3-1.7b"),
    ("OpenGVLab/InternVL3_5-4B-Instruct", "qwen3-4b"),
    ("OpenGVLab/InternVL3_5-8B", "qwen3-8b"),
    ("OpenGVLab/InternVL3_5-14B-HF", "qwen3-14b"),
    ("OpenGVLab/InternVL3_5-38B", "qwen3-32b"),
    ("OpenGVLab/InternVL3_5-30B-A3B", "qwen3-30b-a3b"),
    ("OpenGVLab/InternVL3_5-241B-A28B", "qwen3-235b-a22b"),
    ("OpenGVLab/InternVL3-2B", "qwen2.5-1.5b"),
    ("OpenGVLab/InternVL3-8B", "qwen2.5-7b"),
    ("OpenGVLab/InternVL3-14B", "qwen2.5-14b"),
    ("OpenGVLab/InternVL3-38B", "qwen2.5-32b"),
    ("OpenGVLab/InternVL3-78B", "qwen2.5-72b"),
    ("internlm/Intern-S1", "qwen3-235b-a22b"),
    ("internlm/Intern-S1-mini", "qwen3-8b"),
    ("zai-org/GLM-4.5V", "glm-4.5-air"),
    ("microsoft/Phi-4-multimodal-instruct", "phi-4-mini"),
];

#[test]
fn models_with_a_tower_have_the_layers_of_their_backbone() {
    for (name, backbone) in ON_A_BACKBONE {
        let (model, backbone) = (found(name), found(backbone));
        assert_eq!(model.layers, backbone.layers, "{name}");
        assert!(model.tower_params.is_some_and(|params| params > 250_000_000), "{name}: {:?}", model.tower_params);
        assert!(!model.notes.iter().any(|note| note.contains("no torch_dtype")), "{name}: {:?}", model.notes);
    }
}

#[test]
fn parameters_are_those_that_the_names_say() {
    // Billions of the language model and of the tower, as the names of the models and of their language models have them.
    for (name, language, tower) in [
        ("internvl3.5-1b", 0.8, 0.3),
        ("internvl3.5-2b", 2.0, 0.3),
        ("internvl3.5-4b", 4.4, 0.3),
        ("internvl3.5-8b", 8.2, 0.3),
        ("internvl3.5-14b", 14.8, 0.3),
        ("internvl3.5-38b", 32.8, 5.5),
        ("internvl3.5-30b-a3b", 30.5, 0.3),
        ("internvl3.5-241b-a28b", 235.1, 5.5),
    ] {
        let model = found(name);
        let total = model.parameters().total as f64 / 1e9;
        assert!((total - language).abs() <= 0.051_f64.max(language * 0.001), "{name}: {total}");
        let own = model.tower_params.unwrap() as f64 / 1e9;
        assert!((own - tower).abs() < 0.06_f64.max(tower * 0.1), "{name}: {own}");
    }
}

#[test]
fn the_smallest_reader_of_pages_is_counted_by_hand() {
    // 18 layers of attention (2 x 1024 x 128 x (16 + 2)), a block of three matrices and two norms; a table of 103,424 rows and a norm.
    let layer = 2 * 1024 * 128 * (16 + 2) + 3 * 1024 * 3072 + 2 * 1024;
    assert_eq!(found("PaddlePaddle/PaddleOCR-VL").parameters().total, 18 * layer + 103_424 * 1024 + 1024);
}

#[test]
fn formats_of_these_models_are_those_that_their_names_say() {
    use ridgepoint::dtype::WeightFormat;
    let int4 = found("google/gemma-4-31B-it-qat-w4a16-ct");
    assert!(int4.main_weight_format().unwrap().bytes_per_weight() < 0.7);
    assert_eq!(int4.layers.len(), found("gemma-4-31b").layers.len());
    let plain = found("OpenGVLab/InternVL3_5-8B").main_weight_format();
    assert_eq!(plain, Some(WeightFormat::Plain(ridgepoint::DType::Bfloat16)));
    for name in ["zai-org/GLM-4.5V-FP8", "internlm/Intern-S1-FP8"] {
        let bytes = found(name).main_weight_format().unwrap().bytes_per_weight();
        assert!((1.0..1.1).contains(&bytes), "{name}: {bytes}");
    }
}

#[test]
fn names_without_a_shape_have_a_reason() {
    for (name, kind, reason) in [
        ("JetBrains/Mellum2-12B-A2.5B-Thinking", ErrorKind::UnknownModel, "layers are those of mellum"),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", ErrorKind::UnknownModel, "layers are those of deepseek_v3"),
        ("deepseek-ai/DeepSeek-OCR", ErrorKind::UnknownModel, "layers are those of deepseek_v2"),
        ("tencent/HunyuanOCR", ErrorKind::UnknownModel, "layers are those of hunyuan_vl"),
        ("Qwen/Qwen3.5-2B", ErrorKind::UnknownModel, "layers are those of qwen3_5"),
        ("unsloth/Qwen3.8-27B-NVFP4", ErrorKind::UnknownModel, "its sizes are not built in"),
        ("XiaomiMiMo/MiMo-V2.5-Pro", ErrorKind::UnsupportedModel, "hybrid_layer_pattern"),
        ("XiaomiMiMo/MiMo-V2-Flash", ErrorKind::UnsupportedModel, "hybrid_layer_pattern"),
        ("poolside/Laguna-XS-2.1", ErrorKind::UnsupportedModel, "num_attention_heads_per_layer"),
        ("poolside/Laguna-S-2.1-INT4", ErrorKind::UnsupportedModel, "num_attention_heads_per_layer"),
        ("baidu/ERNIE-4.5-VL-28B-A3B-PT", ErrorKind::UnsupportedModel, "for text and for images"),
        ("ibm-granite/granite-4.0-h-small", ErrorKind::UnsupportedModel, "state-space"),
        ("LiquidAI/LFM2.5-350M", ErrorKind::UnsupportedModel, "name a model of like size"),
        ("mistralai/Voxtral-Mini-4B-Realtime-2602", ErrorKind::Invalid, "a model of speech"),
        ("openai/whisper-large-v3", ErrorKind::Invalid, "a model of speech"),
    ] {
        let error = Model::find(name).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(reason) && error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_server_of_the_language_model_alone_keeps_every_weight_but_the_towers() {
    for name in ["internvl3.5-8b", "qwen2.5-vl-72b", "glm-4.5v", "llama-4-scout", "qwen3-8b"] {
        let model = found(name);
        for ranks in [1, 2, 4] {
            let stages = |language_model_only: bool| {
                let deployment =
                    Deployment { tensor_parallel_size: ranks, language_model_only, ..Deployment::default() };
                Memory::new(&model, &deployment).unwrap().weight_bytes_per_stage[0]
            };
            let tower = model.tower_params.unwrap_or(0) as f64 * model.dtype.bytes() / f64::from(ranks);
            assert!((stages(false) - stages(true) - tower).abs() < 1.0, "{name} on {ranks}");
        }
        let notes = |language_model_only: bool| {
            let deployment = Deployment { language_model_only, ..Deployment::default() };
            ridgepoint::physics::StepPlan::new(&model, &deployment).unwrap().notes.join("; ")
        };
        assert_eq!(notes(true).contains("left out by language_model_only"), model.tower_params.is_some(), "{name}");
        assert!(!notes(true).contains("takes memory"), "{name}: {}", notes(true));
        assert!(notes(false).starts_with(&model.notes.join("; ")), "{name}");
    }
}
