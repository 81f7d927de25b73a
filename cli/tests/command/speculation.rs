//! Speculative decoding through `ridgepoint simulate`: lines of all engines, comparison, and what is refused.
#![allow(clippy::float_cmp)]

use crate::cli_support;

use cli_support::{Run, run};
use serde_json::Value;

const LOAD: [&str; 8] = ["--concurrency", "4", "--num-requests", "24", "--input-len", "1024", "--output-len", "200"];

fn simulated(line: &str, more: &[&str]) -> Run {
    let args = ["simulate", "--hardware", "h200", "--format", "json", "--serve-command", line];
    run(&[args.as_slice(), LOAD.as_slice(), more].concat())
}

fn mean(json: &Value, metric: &str) -> f64 {
    json["stages"][0][metric]["mean"].as_f64().unwrap()
}

const VLLM: &str = "vllm serve deepseek-ai/DeepSeek-R1 -tp 8 --speculative-config \
                    '{\"method\": \"mtp\", \"num_speculative_tokens\": 2}'";
const SGLANG: &str = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8 --speculative-algorithm EAGLE \
                      --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";

#[test]
fn drafts_of_all_engines_bring_tokens_and_pay_at_low_concurrency() {
    let folder = cli_support::Folder::new();
    let file = folder.write("extra.yml", "speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 1}\n");
    let trtllm = format!("trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --extra_llm_api_options {file}");
    for (line, drafts, length) in [(VLLM, 2, "2.2"), (SGLANG, 3, "2.6"), (&trtllm, 1, "1.8")] {
        let json = simulated(line, &["--acceptance-length", length, "--compare-without"]).json();
        let of = &json["speculation"];
        assert_eq!((&of["method"], &of["num_speculative_tokens"]), (&"mtp".into(), &drafts.into()), "{of}");
        let (given, found) = (length.parse::<f64>().unwrap(), of["tokens_per_step"].as_f64().unwrap());
        assert!((found / given - 1.0).abs() < 0.05, "{given} tokens of a step, {found} found");
        let pays = of["pays_up_to_concurrency"].as_array().unwrap();
        assert!(pays[0].as_u64() >= Some(4) && pays[0].as_u64() <= pays[1].as_u64(), "{of}");
        let (with, without) =
            (of["with"]["tpot_mean_ms"].as_f64().unwrap(), of["without"]["tpot_mean_ms"].as_f64().unwrap());
        assert!(with < 0.92 * without && with > without / given, "{of}");
        assert_eq!(mean(&json, "tpot_ms"), with);
        // Tokens come together: the time between two deliveries is that of a step.
        assert!(mean(&json, "itl_ms") > 1.3 * with, "{of}");
        assert_eq!(json["deployment"]["num_draft_tokens"], drafts);
    }
}

#[test]
fn intervals_are_wider_by_the_range_of_the_acceptance() {
    let factors = |json: &Value| {
        let of = &json["intervals"]["tpot"];
        (of["lower_factor"].as_f64().unwrap(), of["upper_factor"].as_f64().unwrap())
    };
    let plain = factors(&simulated("vllm serve deepseek-ai/DeepSeek-R1 -tp 8", &[]).json());
    let drafted = factors(&simulated(VLLM, &["--acceptance-length", "2.2"]).json());
    assert!(drafted.0 < 0.95 * plain.0 && drafted.1 > 1.05 * plain.1, "{plain:?}, {drafted:?}");
}

#[test]
fn what_is_not_known_or_contradicts_is_named() {
    simulated(VLLM, &[]).fails(1, &["of mtp deepseek-r1 accepts was not measured", "give acceptance_length"]);
    simulated(VLLM, &["--acceptance-length", "3.5"]).fails(1, &["acceptance_length", "from 1 to 3"]);
    simulated(VLLM, &["--acceptance-rates", "0.5,0.9"]).fails(2, &["do not increase"]);
    simulated("vllm serve deepseek-ai/DeepSeek-R1 -tp 8", &["--acceptance-length", "2"])
        .fails(1, &["needs speculative_config"]);
    simulated("vllm serve deepseek-ai/DeepSeek-R1 -tp 8", &["--compare-without"])
        .fails(2, &["--compare-without compares with a server that drafts no tokens"]);
    let llama = "vllm serve meta-llama/Llama-3.1-8B --speculative-config.method mtp --speculative-config.num_speculative_tokens 1";
    simulated(llama, &["--acceptance-length", "1.5"]).fails(1, &["has no layer for multi-token prediction"]);
    simulated(&format!("{SGLANG} --speculative-config '{{}}'"), &["--acceptance-length", "2"])
        .fails(1, &["speculative_config is an argument of vllm and trtllm"]);
}

#[test]
fn measured_lengths_are_named() {
    let line = "vllm serve nvidia/Qwen3.5-397B-A17B-NVFP4 -tp 8 --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 1}'";
    let run = simulated(line, &["--model", "qwen3.5-397b-a17b"]);
    let json = run.json();
    assert_eq!(json["speculation"]["acceptance_bounds"], serde_json::json!([1.92, 1.93]), "{}", json["speculation"]);
    assert!(json["speculation"]["acceptance_source"].as_str().unwrap().contains("SPEED-Bench"));
}
