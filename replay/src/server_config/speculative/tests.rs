//! Speculative decoding in lines and files of the three engines.

use ridgepoint::Engine;
use ridgepoint::model::DraftMethod::{DraftModel, Eagle, Eagle3, Mtp, Ngram};
use serde_json::{Value, json};

use super::*;
use crate::server_config::{Beside, ServerConfig};

const SGLANG: &str = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1-0528";

pub(super) fn line_with(text: &str, more: Value) -> ridgepoint::Result<ServerConfig> {
    let mut over = json!({"hardware": "h100"}).as_object().cloned().unwrap();
    over.extend(more.as_object().cloned().unwrap());
    ServerConfig::parse_with("the serve command", text, &Beside { over, ..Beside::default() })
}

fn line(text: &str) -> ServerConfig {
    line_with(text, json!({})).unwrap()
}

fn line_problems(text: &str) -> String {
    line_with(text, json!({})).unwrap_err().problems().join("; ")
}

/// A file's server of an engine, with a model and a GPU.
pub(super) fn file(engine: &str, values: Value) -> ridgepoint::Result<ServerConfig> {
    let mut all = json!({"model": "llama-3.1-8b", "hardware": "h100"}).as_object().cloned().unwrap();
    all.extend(values.as_object().cloned().unwrap());
    let beside = Beside { engine: Engine::parse(engine, None).unwrap(), ..Beside::default() };
    ServerConfig::from_values_with("file", &all, &beside)
}

pub(super) fn config_of(engine: &str, config: Value) -> ridgepoint::Result<ServerConfig> {
    file(engine, json!({"speculative_config": config}))
}

#[track_caller]
pub(super) fn refuses(result: ridgepoint::Result<ServerConfig>, expected: &[&str]) {
    let problems = result.unwrap_err().problems().to_vec();
    assert_eq!(problems, expected);
}

fn speculative(method: DraftMethod, num_speculative_tokens: u32, model: Option<&str>) -> Option<Speculative> {
    Some(Speculative { method, num_speculative_tokens, tree: None, model: model.map(str::to_owned), acceptance: None })
}

#[test]
fn public_lines_of_vllm_say_what_drafts_and_how_many() {
    for (text, expected) in [
        (
            "vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct --speculative-config '{\"method\": \"qwen3_next_mtp\", \"num_speculative_tokens\": 2}' \
             --tensor-parallel-size 4",
            speculative(Mtp, 2, None),
        ),
        (
            "vllm serve zai-org/GLM-4.7-FP8 --speculative-config.method mtp --speculative-config.num_speculative_tokens 1",
            speculative(Mtp, 1, None),
        ),
        (
            "vllm serve m -sc.method eagle3 -sc.model org/head -sc.num_speculative_tokens=3 --max-num-seqs 8",
            speculative(Eagle3, 3, Some("org/head")),
        ),
        (
            "vllm serve m --speculative-config '{\"model\": \"org/m-EAGLE3\", \"num_speculative_tokens\": 3}'",
            speculative(Eagle3, 3, Some("org/m-EAGLE3")),
        ),
        (
            "vllm serve m -sc '{\"method\":\"draft_model\",\"model\":\"s\",\"num_speculative_tokens\":4,\"enforce_eager\":true}'",
            speculative(DraftModel, 4, Some("s")),
        ),
        ("vllm serve m --speculative-model [ngram] --num-speculative-tokens 5", speculative(Ngram, 5, None)),
        ("vllm serve m --spec-method mtp", speculative(Mtp, 1, None)),
        ("vllm serve m --spec-model org/eagle-m --spec-tokens 2", speculative(Eagle, 2, Some("org/eagle-m"))),
        ("vllm serve m --spec-model s --spec-tokens 32", speculative(DraftModel, 32, Some("s"))),
        ("vllm serve m", None),
    ] {
        let server = line(text);
        assert_eq!(server.speculative, expected, "{text}");
        assert_eq!(server.notes, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn what_vllm_drafts_is_checked() {
    let method = "mtp, eagle, eagle3, draft_model and ngram are modelled";
    for (config, expected) in [
        (json!({}), format!("speculative_config.method is missing, and no model says what drafts: {method}")),
        (
            json!({"method": "medusa", "num_speculative_tokens": 3}),
            format!("speculative_config.method = \"medusa\" is not modelled: {method}"),
        ),
        (
            json!({"model": "org/m-DFlash", "num_speculative_tokens": 3, "synthetic_acceptance_length": 9}),
            format!("speculative_config.model = \"org/m-DFlash\" is of a method that is not modelled: {method}"),
        ),
        (
            json!({"method": "eagle", "num_speculative_tokens": 3}),
            "speculative_config.model is missing: eagle is a model of its own".to_owned(),
        ),
        (
            json!({"method": "ngram"}),
            "speculative_config.num_speculative_tokens is missing: a step drafts from 1 to 32 tokens".to_owned(),
        ),
        (
            json!({"method": "mtp", "num_speculative_tokens": 33}),
            "speculative_config.num_speculative_tokens = 33 must be a whole number from 1 to 32".to_owned(),
        ),
        (
            json!({"method": "mtp", "parallel_drafting": true}),
            "speculative_config.parallel_drafting = true is not modelled: drafts follow one another".to_owned(),
        ),
        (
            json!({"method": "mtp", "num_speculative_token": 2}),
            "speculative_config.num_speculative_token is not a known key: did you mean num_speculative_tokens, speculative_token_tree?"
                .to_owned(),
        ),
    ] {
        refuses(config_of("vllm", config), &[&expected]);
    }
    let twice = file("vllm", json!({"speculative_config": {"method": "mtp"}, "spec_method": "mtp"}));
    refuses(twice, &["spec_method = \"mtp\" cannot be given with speculative_config: keep one"]);
    refuses(
        file("vllm", json!({"spec_tokens": 2})),
        &[
            "spec_method is missing, and no spec_model says what drafts: mtp, eagle, eagle3, draft_model and ngram are modelled",
        ],
    );
}

#[test]
fn keys_of_vllm_without_influence_are_accepted_and_others_noted() {
    let config = json!({"method": "eagle", "model": "h", "num_speculative_tokens": 2, "max_model_len": 2048, "attention_backend": "FLASH_ATTN",
                        "parallel_drafting": false, "draft_tensor_parallel_size": 1, "quantization": null});
    let server = file("vllm", json!({"speculative_config": config.to_string(), "tensor_parallel_size": 2})).unwrap();
    assert_eq!(server.speculative, speculative(Eagle, 2, Some("h")));
    let note = "speculative_config.draft_tensor_parallel_size is not modelled: the draft is taken on all ranks of the server, 2";
    assert_eq!(server.notes, [note]);
    let own = config_of("vllm", json!({"method": "mtp", "model": "other", "num_speculative_tokens": 1})).unwrap();
    assert_eq!(own.speculative, speculative(Mtp, 1, None));
    assert_eq!(own.notes, ["speculative_config.model = other is not read: the layers that draft are the model's own"]);
}

#[test]
fn dotted_keys_are_those_of_an_object_in_files_too() {
    let dotted = json!({"speculative-config.method": "mtp", "speculative_config": {"num_speculative_tokens": 2}});
    assert_eq!(file("vllm", dotted).unwrap().speculative, speculative(Mtp, 2, None));
    let server = line(
        "vllm serve m --kv-transfer-config.kv_connector OffloadingConnector --kv-transfer-config.kv_role kv_both \
         --kv-transfer-config.kv_connector_extra_config.num_cpu_blocks 100 --compilation-config.cudagraph_mode PIECEWISE \
         --limit-mm-per-prompt.image 1 --limit-mm-per-prompt.video 0",
    );
    assert!(server.kv_offloading.is_some());
    assert_eq!(server.deployment.cudagraph_mode, Some(ridgepoint::CudagraphMode::Piecewise));
    assert_eq!(server.notes, ["1 argument has no influence on times: limit_mm_per_prompt"]);
    let mixed = file("vllm", json!({"speculative_config": 3, "speculative_config.method": "mtp"}));
    assert_eq!(mixed.unwrap_err().problems().len(), 2);
}

#[test]
fn sglang_drafts_a_tree_of_tokens() {
    let tree = |flags: &str| {
        let head = "--speculative-algorithm EAGLE3 --speculative-draft-model-path h";
        let text =
            format!("python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct {head} {flags}");
        let server = line(&text);
        let of = server.speculative.unwrap();
        (
            of.num_speculative_tokens,
            of.tree.map(|tree| (tree.width, tree.num_draft_tokens)),
            server.deployment.num_draft_tokens,
        )
    };
    let given = "--speculative-num-steps 4 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16";
    assert_eq!(tree(given), (4, Some((4, 15)), 15));
    assert_eq!(tree(""), (5, Some((4, 7)), 7));
}

#[test]
fn sglang_drafts_a_chain_of_tokens() {
    let steps = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
    for (flags, expected) in [
        (format!("--speculative-algorithm EAGLE {steps}"), speculative(Mtp, 3, None)),
        (format!("--speculative-algo NEXTN {steps}"), speculative(Mtp, 3, None)),
        (
            format!("--speculative-algorithm EAGLE --speculative-draft-model-path org/head {steps}"),
            speculative(Eagle, 3, Some("org/head")),
        ),
        (
            format!("--speculative-algorithm eagle3 --speculative-draft-model org/head {steps}"),
            speculative(Eagle3, 3, Some("org/head")),
        ),
        (
            format!("--speculative-algorithm STANDALONE --speculative-draft-model-path s {steps}"),
            speculative(DraftModel, 3, Some("s")),
        ),
        ("--speculative-algorithm NGRAM".to_owned(), speculative(Ngram, 11, None)),
        (
            "--speculative-algorithm NGRAM --speculative-ngram-max-match-window-size 8".to_owned(),
            speculative(Ngram, 7, None),
        ),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 6".to_owned(), speculative(Ngram, 5, None)),
    ] {
        let server = line(&format!("{SGLANG} {flags}"));
        assert_eq!(server.speculative, expected, "{flags}");
        assert_eq!(server.notes, Vec::<String>::new(), "{flags}");
    }
}

#[test]
fn what_sglang_chooses_itself_is_noted() {
    let notes = |flags: &str| {
        let server = line(&format!("{SGLANG} {flags}"));
        (server.speculative, server.notes.join("; "))
    };
    let chosen = notes("--speculative-algorithm EAGLE");
    assert_eq!(chosen, (speculative(Mtp, 3, None), "speculative_num_steps = 3 is the default of sglang".to_owned()));
    let (found, note) = notes(
        "--speculative-algorithm EAGLE --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
    );
    assert_eq!(found, speculative(Mtp, 2, None));
    assert_eq!(note, "speculative_num_draft_tokens = 4: sglang takes 3, one more than speculative_num_steps");
    let (found, note) = notes("--speculative-algorithm NEXTN --speculative-draft-model-path lmsys/DeepSeek-R1-NextN");
    assert_eq!(found, speculative(Mtp, 3, None));
    assert!(note.starts_with("speculative_num_steps = 3 is the default of sglang"), "{note}");
    assert!(note.contains("lmsys/DeepSeek-R1-NextN is not read"), "{note}");
    let (found, note) = notes("--speculative-num-steps 2");
    assert_eq!(
        (found, note.as_str()),
        (None, "without speculative_algorithm, nothing is drafted, and not read: speculative_num_steps")
    );
}

#[test]
fn what_sglang_drafts_is_checked() {
    let head = "--speculative-algorithm EAGLE3 --speculative-draft-model-path h";
    for (flags, expected) in [
        (
            format!("{head} --speculative-num-steps 5 --speculative-eagle-topk 4"),
            "needs speculative_num_draft_tokens where speculative_eagle_topk is above 1",
        ),
        (
            format!("{head} --speculative-num-steps 5"),
            "needs speculative_eagle_topk where speculative_num_steps is given",
        ),
        (format!("{head} --speculative-eagle-topk 1"), "needs speculative_num_steps where speculative_eagle_topk or"),
        (
            "--speculative-algorithm EAGLE3".to_owned(),
            "speculative_algorithm = \"EAGLE3\" needs speculative_draft_model_path",
        ),
        (
            "--speculative-algorithm DFLASH".to_owned(),
            "must be EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM: others are not modelled",
        ),
        (
            "--speculative-algorithm NGRAM --speculative-num-draft-tokens 1".to_owned(),
            "speculative_num_draft_tokens = \"1\" must be a whole number from 2 to 33 with NGRAM",
        ),
        (
            "--speculative-algorithm EAGLE --enable-multi-layer-eagle".to_owned(),
            "enable_multi_layer_eagle = true is not modelled: one layer drafts all tokens of a step",
        ),
        (
            "--speculative-config '{\"method\": \"mtp\"}'".to_owned(),
            "speculative_config is an argument of vllm and trtllm, which sglang does not have",
        ),
    ] {
        let problems = line_problems(&format!("{SGLANG} {flags}"));
        assert!(problems.contains(expected), "{flags}: {problems}");
    }
    let foreign = line_problems("vllm serve m --speculative-algorithm EAGLE");
    assert!(foreign.contains("speculative_algorithm is an argument of sglang, which vllm does not have"), "{foreign}");
}

#[test]
fn a_file_of_tensorrt_llm_says_what_drafts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("extra.yml");
    std::fs::write(&path, "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}\n").unwrap();
    let server = line(&format!("trtllm-serve deepseek-r1 --extra_llm_api_options {}", path.display()));
    assert_eq!(server.speculative, speculative(Mtp, 3, None));
    for (config, expected) in [
        (json!({"decoding_type": "MTP"}), speculative(Mtp, 1, None)),
        (json!({"decoding_type": "MTP", "max_draft_len": 2}), speculative(Mtp, 2, None)),
        (
            json!({"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model_dir": "h", "eagle3_one_model": true}),
            speculative(Eagle3, 3, Some("h")),
        ),
        (
            json!({"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "h", "max_total_draft_tokens": 3}),
            speculative(Eagle3, 3, Some("h")),
        ),
        (
            json!({"decoding_type": "Draft_Target", "max_draft_len": 4, "speculative_model": "s"}),
            speculative(DraftModel, 4, Some("s")),
        ),
        (
            json!({"decoding_type": "NGram", "max_draft_len": 5, "max_matching_ngram_size": 3, "is_keep_all": true}),
            speculative(Ngram, 5, None),
        ),
    ] {
        let server = config_of("trtllm", config.clone()).unwrap();
        assert_eq!(server.speculative, expected, "{config}");
        assert_eq!(server.notes, Vec::<String>::new(), "{config}");
    }
    let relaxed = json!({"decoding_type": "MTP", "use_relaxed_acceptance_for_thinking": true, "relaxed_topk": 10, "relaxed_delta": 0.6});
    let note = "speculative_config.use_relaxed_acceptance_for_thinking = true is not modelled: the acceptance is the one that is given";
    assert_eq!(config_of("trtllm", relaxed).unwrap().notes, [note]);
}

#[test]
fn what_tensorrt_llm_drafts_is_checked() {
    let kinds = "MTP, Eagle, Eagle3, Draft_Target and NGram are modelled";
    for (config, expected) in [
        (json!({}), format!("speculative_config.decoding_type is missing: {kinds}")),
        (
            json!({"decoding_type": "Medusa", "max_draft_len": 3}),
            format!("speculative_config.decoding_type = \"Medusa\" is not modelled: {kinds}"),
        ),
        (
            json!({"decoding_type": "MTP", "max_draft_len": 2, "num_nextn_predict_layers": 3}),
            "speculative_config.num_nextn_predict_layers = 3 contradicts max_draft_len: keep one".to_owned(),
        ),
        (
            json!({"decoding_type": "NGram"}),
            "speculative_config.max_draft_len is missing: a step drafts from 1 to 32 tokens".to_owned(),
        ),
        (
            json!({"decoding_type": "NGram", "max_draft_len": 2, "max_concurrency": 4}),
            "speculative_config.max_concurrency = 4 is not modelled: tokens are drafted in every step".to_owned(),
        ),
        (
            json!({"decoding_type": "Eagle", "speculative_model": "h", "max_draft_len": 3, "max_total_draft_tokens": 8}),
            "speculative_config.max_total_draft_tokens = 8 is not modelled: drafts are a chain".to_owned(),
        ),
    ] {
        refuses(config_of("trtllm", config), &[&expected]);
    }
    let headless = config_of("trtllm", json!({"decoding_type": "Eagle", "max_draft_len": 3}));
    assert!(headless.unwrap_err().to_string().contains("has no speculative_model: give the name"));
    let unknown = config_of("trtllm", json!({"decoding_type": "MTP", "method": "mtp"}));
    assert!(unknown.unwrap_err().to_string().contains("speculative_config.method is not a known key"));
    let config = file("trtllm", json!({"decoding_config": {"medusa_choices": []}}));
    assert!(config.unwrap_err().to_string().contains("is not modelled: give speculative_config"));
}
