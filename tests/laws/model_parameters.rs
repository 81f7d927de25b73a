//! Parameter counts of the built-in configurations against the published sizes.

use ridgepoint::Model;
use ridgepoint::model::builtin_names;

/// Published sizes are rounded on model cards and exact in the index of a repository's safetensors files.
const REL_PUBLISHED: f64 = 0.005;

const INDEX: &str = "safetensors index of the Hugging Face repository";
const CARD: &str = "model card";
const UNQUANTISED: &str = "safetensors index of the unquantised model; scales are not counted";
const SHOWN: &str = "size that the Hugging Face repository shows, rounded";

/// Name, published size in total, what of it is not in the count, source.
const PUBLISHED: &[(&str, f64, f64, &str)] = &[
    ("llama-3-8b", 8_030_261_248.0, 0.0, INDEX),
    ("llama-3-70b", 70_553_706_496.0, 0.0, INDEX),
    ("llama-3.1-8b", 8_030_261_248.0, 0.0, INDEX),
    ("llama-3.1-70b", 70_553_706_496.0, 0.0, INDEX),
    ("llama-3.1-405b", 405_853_388_800.0, 0.0, INDEX),
    ("llama-3.2-1b", 1_235_814_400.0, 0.0, INDEX),
    ("llama-3.2-3b", 3_212_749_824.0, 0.0, INDEX),
    ("llama-3.3-70b", 70_553_706_496.0, 0.0, INDEX),
    ("llama-2-7b", 6_738_415_616.0, 0.0, INDEX),
    ("llama-2-13b", 13_015_864_320.0, 0.0, INDEX),
    ("llama-2-70b", 68_976_648_192.0, 0.0, INDEX),
    ("codellama-34b", 33_743_970_304.0, 0.0, INDEX),
    ("yi-34b", 34_388_917_248.0, 0.0, INDEX),
    ("mistral-7b", 7_241_732_096.0, 0.0, INDEX),
    ("mistral-7b-v0.2", 7_241_732_096.0, 0.0, INDEX),
    ("mistral-7b-v0.3", 7_248_023_552.0, 0.0, INDEX),
    ("mistral-nemo-12b", 12_247_782_400.0, 0.0, INDEX),
    ("mistral-small-24b", 23_572_403_200.0, 0.0, INDEX),
    ("mixtral-8x7b", 46_702_792_704.0, 0.0, INDEX),
    ("mixtral-8x22b", 140_620_634_112.0, 0.0, INDEX),
    ("qwen2.5-0.5b", 494_032_768.0, 0.0, INDEX),
    ("qwen2.5-1.5b", 1_543_714_304.0, 0.0, INDEX),
    ("qwen2.5-3b", 3_085_938_688.0, 0.0, INDEX),
    ("qwen2.5-7b", 7_615_616_512.0, 0.0, INDEX),
    ("qwen2.5-14b", 14_770_033_664.0, 0.0, INDEX),
    ("qwen2.5-32b", 32_763_876_352.0, 0.0, INDEX),
    ("qwen2.5-72b", 72_706_203_648.0, 0.0, INDEX),
    ("qwen2-57b-a14b", 57.41e9, 0.0, CARD),
    ("qwen3-4b", 4_022_468_096.0, 0.0, INDEX),
    ("qwen3-8b", 8_190_735_360.0, 0.0, INDEX),
    ("qwen3-14b", 14_768_307_200.0, 0.0, INDEX),
    ("qwen3-32b", 32_762_123_264.0, 0.0, INDEX),
    ("qwen3-32b-fp8", 32_762_123_264.0, 0.0, UNQUANTISED),
    ("qwen3-30b-a3b", 30_532_122_624.0, 0.0, INDEX),
    ("qwen3-30b-a3b-fp8", 30_532_122_624.0, 0.0, UNQUANTISED),
    ("qwen3-235b-a22b", 235_093_634_560.0, 0.0, INDEX),
    ("qwen3-235b-a22b-fp8", 235_093_634_560.0, 0.0, UNQUANTISED),
    ("qwen3-32b-fp8-static-pertensor", 32_762_123_264.0, 0.0, UNQUANTISED),
    ("qwen3-coder-480b-a35b-instruct", 480e9, 0.0, CARD),
    // The vision tower and its adapter, the same in both, are left out.
    ("llama-4-scout", 108_641_793_536.0, 871_932_416.0, INDEX),
    ("llama-4-scout-fp8-dynamic", 108_641_793_536.0, 871_932_416.0, UNQUANTISED),
    ("llama-4-maverick", 401_583_781_376.0, 871_932_416.0, INDEX),
    ("gpt-oss-20b", 20.91e9, 0.0, CARD),
    ("gpt-oss-120b", 116.83e9, 0.0, CARD),
    ("minimax-m2.5", 228.7e9, 0.0, SHOWN),
    ("gemma-2-9b", 9_241_705_984.0, 0.0, INDEX),
    ("gemma-2-27b", 27_227_128_320.0, 0.0, INDEX),
    // Technical report, table 1: 1,416 M embedding, 25,600 M other, and 417 M of the vision tower, left out here.
    ("gemma-3-27b", 27.433e9, 0.417e9, "technical report"),
    // 25.2 B is the language model alone.
    ("gemma-4-26b-a4b", 25.2e9, 0.0, CARD),
    ("gemma-4-26b-a4b-nvfp4", 25.2e9, 0.0, UNQUANTISED),
    ("deepseek-v2-lite", 15_706_484_224.0, 0.0, INDEX),
    ("deepseek-v2", 235_741_434_880.0, 0.0, INDEX),
    // 671 B of the main model; the 14 B of multi-token prediction come on top.
    ("deepseek-v3", 685e9, 14e9, CARD),
    ("deepseek-r1", 685e9, 14e9, CARD),
    ("deepseek-v3.1", 685e9, 14e9, CARD),
    ("deepseek-v3.1-nvfp4", 671_026_419_200.0, 0.0, UNQUANTISED),
    ("deepseek-r1-nvfp4", 671_026_419_200.0, 0.0, UNQUANTISED),
    ("deepseek-v3-nvfp4", 671_026_419_200.0, 0.0, UNQUANTISED),
    ("deepseek-v3.2", 685e9, 14e9, CARD),
    ("deepseek-v3.2-nvfp4", 685e9, 14e9, UNQUANTISED),
    // 744 B, 40 B of them active. GLM-5.2 has the same layers, most of them without an indexer of their own.
    ("glm-5", 744e9, 0.0, CARD),
    ("glm-5-fp8", 744e9, 0.0, UNQUANTISED),
    ("glm-5-nvfp4", 744e9, 0.0, UNQUANTISED),
    ("glm-5.1-nvfp4", 744e9, 0.0, UNQUANTISED),
    ("glm-5.2", 744e9, 0.0, "the card of GLM-5"),
    ("glm-5.2-fp8", 744e9, 0.0, UNQUANTISED),
    ("glm-5.2-nvfp4", 744e9, 0.0, UNQUANTISED),
    ("kimi-k2", 1_026e9, 0.0, SHOWN),
    ("kimi-k2-instruct-0905", 1_026e9, 0.0, SHOWN),
    ("kimi-k2-thinking", 1_026e9, 0.0, UNQUANTISED),
    ("kimi-k2.5", 1_026e9, 0.0, UNQUANTISED),
    ("kimi-k2.5-nvfp4", 1_026e9, 0.0, UNQUANTISED),
    ("kimi-k2.6-nvfp4", 1_026e9, 0.0, UNQUANTISED),
    ("kimi-k2.7-code-nvfp4", 1_026e9, 0.0, UNQUANTISED),
    ("minimax-m2.7", 228.7e9, 0.0, SHOWN),
    ("minimax-m2.5-nvfp4", 228.7e9, 0.0, UNQUANTISED),
    ("minimax-m2.7-nvfp4", 228.7e9, 0.0, UNQUANTISED),
    // Names say the size to the next billion. 450 M of the vision tower are left out where that is more than half of it.
    ("qwen3-next-80b-a3b-instruct", 80e9, 0.0, CARD),
    ("qwen3-next-80b-a3b-thinking", 80e9, 0.0, CARD),
    ("qwen3.5-27b", 27e9, 0.0, CARD),
    ("qwen3.5-35b-a3b", 35e9, 0.45e9, CARD),
    ("qwen3.5-122b-a10b", 122e9, 0.0, CARD),
    ("qwen3.5-397b-a17b", 397e9, 0.45e9, CARD),
    ("qwen3.5-397b-a17b-nvfp4", 397e9, 0.45e9, CARD),
    ("qwen3.5-122b-a10b-nvfp4", 122e9, 0.0, CARD),
    ("qwen3.6-27b", 27e9, 0.0, CARD),
    ("qwen3.6-27b-nvfp4", 27e9, 0.0, UNQUANTISED),
    ("qwen3.6-35b-a3b", 35e9, 0.45e9, CARD),
    ("qwen3.6-35b-a3b-nvfp4", 35e9, 0.45e9, UNQUANTISED),
    ("nemotron-3-nano-30b-a3b", 31.6e9, 0.0, CARD),
    ("nemotron-3-nano-30b-a3b-nvfp4", 31.6e9, 0.0, CARD),
    ("nemotron-3.5-lightning-30b-a3b-nvfp4", 31.6e9, 0.0, "the card of Nemotron 3 Nano, which has the same layers"),
    ("nemotron-3-super-120b-a12b", 120.6e9, 0.0, CARD),
    ("nemotron-3-ultra-550b-a55b", 550e9, 0.0, CARD),
    ("nemotron-h-8b", 8.1e9, 0.0, SHOWN),
    ("nemotron-h-56b", 56.3e9, 0.0, SHOWN),
    ("nemotron-nano-9b-v2", 8.89e9, 0.0, SHOWN),
    ("qwq-32b", 32_763_876_352.0, 0.0, INDEX),
    ("deepseek-r1-distill-qwen-7b", 7_615_616_512.0, 0.0, INDEX),
    ("deepseek-r1-distill-qwen-14b", 14_770_033_664.0, 0.0, INDEX),
    ("deepseek-r1-distill-qwen-32b", 32_763_876_352.0, 0.0, INDEX),
    ("deepseek-r1-distill-llama-8b", 8_030_261_248.0, 0.0, INDEX),
    ("deepseek-r1-distill-llama-70b", 70_553_706_496.0, 0.0, INDEX),
    ("qwen3-4b-instruct-2507", 4_022_468_096.0, 0.0, INDEX),
    ("qwen3-4b-thinking-2507", 4_022_468_096.0, 0.0, INDEX),
    ("qwen3-30b-a3b-instruct-2507", 30_532_122_624.0, 0.0, INDEX),
    ("qwen3-30b-a3b-thinking-2507", 30_532_122_624.0, 0.0, INDEX),
    ("qwen3-235b-a22b-instruct-2507", 235_093_634_560.0, 0.0, INDEX),
    ("qwen3-235b-a22b-thinking-2507", 235_093_634_560.0, 0.0, INDEX),
    ("qwen3-235b-a22b-nvfp4", 235_093_634_560.0, 0.0, UNQUANTISED),
    ("phi-3-mini-4k", 3_821_079_552.0, 0.0, INDEX),
    ("phi-4", 14_659_507_200.0, 0.0, INDEX),
    ("phi-4-mini", 3_836_021_760.0, 0.0, INDEX),
    ("seed-oss-36b", 36.15e9, 0.0, SHOWN),
    // Towers are left out.
    ("mistral-small-3.1-24b", 24.0e9, 0.439e9, SHOWN),
    ("qwen2.5-vl-3b", 3.75e9, 0.669e9, SHOWN),
    ("qwen2.5-vl-7b", 8.29e9, 0.677e9, SHOWN),
    ("qwen2.5-vl-32b", 33.5e9, 0.69e9, SHOWN),
    ("qwen2.5-vl-72b", 73.4e9, 0.705e9, SHOWN),
];

/// Configurations whose published size is too coarse, or not the language model's, to compare within the tolerance.
const NOT_COMPARED: &[&str] = &[
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-vl-2b",
    "qwen3-vl-4b",
    "qwen3-vl-8b",
    "qwen3-vl-32b",
    "qwen3-vl-30b-a3b",
    "qwen3-vl-235b-a22b",
    "gemma-4-31b",
    "gemma-4-31b-nvfp4",
    "mimo-7b-base",
    "glm-4.5",
    "glm-4.5-air",
    "glm-4.6",
    // `public_names` compares these with their names or with their language models.
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

fn assert_rel(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!(((got - want) / want).abs() <= tolerance, "{what}: got {got}, want {want} within {tolerance}");
}

#[allow(clippy::cast_precision_loss)]
fn total(name: &str) -> f64 {
    Model::builtin(name).unwrap().parameters().total as f64
}

#[test]
fn totals_match_the_published_sizes() {
    for &(name, published, left_out, source) in PUBLISHED {
        assert_rel(&format!("{name} ({source})"), total(name), published - left_out, REL_PUBLISHED);
    }
}

#[test]
fn towers_have_the_published_sizes() {
    // The norms and biases are left out, and Llama 4's adapter is a little wider than what lies behind its merged patches.
    for name in
        ["llama-4-scout", "llama-4-maverick", "gemma-3-27b", "mistral-small-3.1-24b", "qwen2.5-vl-7b", "qwen2.5-vl-72b"]
    {
        let (_, _, published, source) = PUBLISHED.iter().find(|row| row.0 == name).unwrap();
        #[allow(clippy::cast_precision_loss)]
        let tower = Model::builtin(name).unwrap().tower_params.unwrap() as f64;
        assert_rel(&format!("{name} ({source})"), tower, *published, 0.015);
    }
}

#[test]
fn exact_published_counts_are_met_to_the_last_parameter() {
    let exact: Vec<_> = PUBLISHED.iter().filter(|p| p.3 == INDEX).collect();
    assert!(exact.len() >= 30, "{}", exact.len());
    for (name, published, left_out, _) in exact {
        assert_rel(name, total(name), published - left_out, 1e-12);
    }
    assert_eq!(Model::builtin("deepseek-v3").unwrap().parameters().total, 671_026_419_200);
}

#[test]
fn every_built_in_model_parses_and_is_compared_or_listed() {
    let names = builtin_names();
    assert!(names.len() >= 28, "{}", names.len());
    for name in names {
        let known = PUBLISHED.iter().any(|p| p.0 == name) || NOT_COMPARED.contains(&name);
        assert!(known, "{name} has no published size in this test");
        assert!(Model::builtin(name).unwrap().weight_bytes() > 0.0);
    }
}

#[test]
fn tied_embeddings_count_once() {
    // 0.6 B by the card; the index counts the tied head again: 596,049,920 + 151,936 x 1,024.
    assert_eq!(Model::builtin("qwen3-0.6b").unwrap().parameters().total, 596_049_920);
    assert_eq!(Model::builtin("qwen3-1.7b").unwrap().parameters().total, 1_720_574_976);
}

#[test]
fn glm_with_its_prediction_layer_is_as_large_as_its_files() {
    // The files hold one more layer of experts with its own embedding, head and 2h x h projection: 358 B and 110 B.
    for (name, published, layer, vocab, hidden) in [
        ("glm-4.5", 358e9, 352_797_829_024.0 / 92.0, 151_552.0, 5_120.0),
        ("glm-4.6", 358e9, 352_797_829_024.0 / 92.0, 151_552.0, 5_120.0),
        ("glm-4.5-air", 110e9, 106_852_251_264.0 / 46.0, 151_552.0, 4_096.0),
    ] {
        let with_prediction: f64 = total(name) + layer + 2.0 * vocab * hidden + 2.0 * hidden * hidden;
        assert_rel(name, with_prediction, published, REL_PUBLISHED);
    }
}

#[test]
fn active_parameters_match_the_cards() {
    // Cards round to one or two digits. gpt-oss's do not count the input embedding.
    for (name, active, tolerance) in [
        ("qwen3-30b-a3b", 3.3e9, 0.03),
        ("qwen3-235b-a22b", 22e9, 0.03),
        ("mixtral-8x7b", 12.9e9, 0.01),
        ("mixtral-8x22b", 39e9, 0.01),
        ("llama-4-scout", 17e9, 0.02),
        ("llama-4-maverick", 17e9, 0.02),
        ("deepseek-v3", 37e9, 0.02),
        ("kimi-k2", 32e9, 0.03),
        ("gemma-4-26b-a4b", 3.8e9, 0.02),
    ] {
        #[allow(clippy::cast_precision_loss)]
        let got = Model::builtin(name).unwrap().parameters().active as f64;
        assert_rel(name, got, active, tolerance);
    }
    for (name, active) in [("gpt-oss-120b", 5.13e9), ("gpt-oss-20b", 3.61e9)] {
        let counts = Model::builtin(name).unwrap().parameters();
        #[allow(clippy::cast_precision_loss)]
        let got = (counts.active - counts.embedding) as f64;
        assert_rel(name, got, active, 0.003);
    }
}

#[test]
fn dense_models_use_all_their_parameters() {
    let counts = Model::builtin("llama-3.1-8b").unwrap().parameters();
    assert_eq!(counts.active, counts.total);
    assert_eq!(counts.embedding, 128_256 * 4_096);
}

#[test]
fn weight_bytes_follow_the_formats() {
    assert_rel("bf16", Model::builtin("llama-3.1-8b").unwrap().weight_bytes(), 2.0 * 8_030_261_248.0, 1e-12);
    // Embedding, head and norms stay bfloat16: 2 x 151,936 x 5,120 and (64 x (2 x 5,120 + 256) + 5,120).
    let plain = 2.0 * 151_936.0 * 5_120.0 + 64.0 * (2.0 * 5_120.0 + 256.0) + 5_120.0;
    let blocks = (32_762_123_264.0 - plain) * (1.0 + 4.0 / 16_384.0);
    assert_rel("fp8", Model::builtin("qwen3-32b-fp8").unwrap().weight_bytes(), 2.0 * plain + blocks, 1e-12);
    // The repository of gpt-oss-120b holds 65.25 GB of weights.
    assert_rel("mxfp4", Model::builtin("gpt-oss-120b").unwrap().weight_bytes(), 65.25e9, 0.002);
}
