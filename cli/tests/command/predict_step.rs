//! `ridgepoint predict-step`: the keys of its JSON, its flags, and its messages about bad batches.

use crate::cli_support;

use std::io::Write;
use std::process::Stdio;

use cli_support::{binary, data_dir_with_tables, predict, predict_batch, run};
use serde_json::Value;

const LLAMA: &str = "--model llama-3.1-8b --hardware h100";

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {value}"))
}

/// No number of the JSON is missing because it could not be written.
fn assert_no_null(value: &Value, allowed: &[&str]) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(key, _)| !allowed.contains(&key.as_str())) {
                assert!(!value.is_null(), "{key} is null");
                assert_no_null(value, allowed);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| assert_no_null(item, allowed)),
        _ => {}
    }
}

#[test]
fn the_json_has_every_key_of_the_contract() {
    let run = predict(&format!("{LLAMA} --decode 64x2048 --prefill 512@1024 --format json"));
    assert_eq!(run.stderr, "");
    let json = run.json();
    for key in [
        "step_time_us",
        "lower_us",
        "upper_us",
        "bound_us",
        "total_flops",
        "total_bytes",
        "mfu",
        "mbu",
        "padded_tokens",
    ] {
        assert!(number(&json, key) > 0.0, "{key}");
    }
    for key in ["model", "hardware", "graph_mode"] {
        assert!(json[key].is_string(), "{key}");
    }
    assert!(json["warnings"].is_array() && json["provenance"].is_object() && json["deployment"].is_object());
    let operators = json["operators"].as_array().unwrap();
    assert!(operators.len() > 8);
    for operator in operators {
        for key in ["count", "flops", "bytes", "time_us", "bound_us", "efficiency", "share"] {
            assert!(number(operator, key) >= 0.0, "{key}");
        }
        assert!(["compute", "memory", "network", "latency"].contains(&operator["bound"].as_str().unwrap()));
        assert!(operator["name"].is_string() && operator["group"].is_string() && operator["provenance"].is_string());
    }
    assert_no_null(&json, &["max_model_len", "kv_cache_dtype", "correction", "interval_held"]);
}

#[test]
fn operators_sum_to_the_step() {
    let json = predict(&format!("{LLAMA} --decode 64x2048 --prefill 512 --format json")).json();
    let operators = json["operators"].as_array().unwrap();
    for (part, whole) in [("time_us", "step_time_us"), ("flops", "total_flops"), ("bound_us", "bound_us")] {
        let sum: f64 = operators.iter().map(|operator| number(operator, part)).sum();
        assert!((sum / number(&json, whole) - 1.0).abs() < 1e-9, "{part} {sum} against {whole}");
    }
    let shares: f64 = json["groups"].as_array().unwrap().iter().map(|group| number(group, "share")).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
}

#[test]
fn file_pipe_and_flags_give_the_same_prediction() {
    let text = r#"{"requests": [{"progress_index": 1024, "num_new_tokens": 512, "samples": false},
        {"num_computed_tokens": 2048, "num_scheduled_tokens": 1}, {"num_computed_tokens": 2048, "num_scheduled_tokens": 1}]}"#;
    let from_file = predict_batch(text).json();
    let from_flags = predict(&format!("{LLAMA} --prefill 512@1024:partial --decode 2x2048 --format json")).json();
    assert_eq!(from_file, from_flags);
    let mut child = binary()
        .args(["predict-step", "--efficiency", "ideal", "--format", "json", "--batch", "-"])
        .args(LLAMA.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), from_file);
}

#[test]
fn requests_of_a_batch_may_set_sampling_parameters() {
    let sampler = |params: [&str; 2]| {
        let request =
            |params| format!(r#"{{"num_computed_tokens": 9, "num_scheduled_tokens": 1, "sampling_params": {params}}}"#);
        let json =
            predict_batch(&format!(r#"{{"requests": [{}, {}]}}"#, request(params[0]), request(params[1]))).json();
        let operators = json["operators"].as_array().unwrap().iter().filter(|one| one["group"] == "sampling");
        operators.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The model's own parameters have a top_p.
    let (greedy, sorted) = (r#"{"temperature": 0}"#, ["rejection_sampling", "sampling"]);
    assert_eq!(sampler(["{}", "{}"]), sorted);
    assert_eq!(sampler([greedy, greedy]), ["sampling"]);
    assert_eq!(sampler([greedy, "{}"]), sorted);
    assert_eq!(sampler([greedy, r#"{"top_p": 1, "presence_penalty": 0.5}"#]), ["penalties", "sampling"]);
}

#[test]
fn shorthand_repeats_and_takes_commas() {
    let json = predict(&format!(
        "{LLAMA} --decode 3x100,2@50 --decode 1x7 --prefill 2x10@5,20 30 --prefill 40:partial --format json"
    ))
    .json();
    let batch = &json["batch"];
    assert_eq!((batch["num_decodes"].as_u64(), batch["num_prefills"].as_u64()), (Some(6), Some(5)));
    assert_eq!((batch["num_tokens"].as_u64(), batch["num_sampled"].as_u64()), (Some(116), Some(10)));
}

#[test]
fn deployment_flags_and_their_short_names_reach_the_deployment() {
    let json = predict(
        "--model qwen3-30b-a3b --hardware h200 --tp 2 --pp 3 --dp 2 --enable-expert-parallel --max-num-seqs 64 \
         --max-num-batched-tokens 4096 --max-model-len 9000 --gpu-memory-utilization 0.8 --kv-cache-dtype fp8_e4m3 \
         --block-size 32 --enforce-eager --generation-config vllm --decode 8x100 --format json",
    )
    .json();
    let expected = serde_json::json!({
        "tensor_parallel_size": 2, "pipeline_parallel_size": 3, "data_parallel_size": 2,
        "enable_expert_parallel": true, "max_num_seqs": 64, "max_num_batched_tokens": 4096, "max_model_len": 9000,
        "gpu_memory_utilization": 0.8, "kv_cache_dtype": "fp8", "block_size": 32, "enforce_eager": true,
        "generation_config": "vllm"
    });
    assert_eq!(json["deployment"], expected);
    assert_eq!(json["graph_mode"], "eager");
}

#[test]
fn launch_modes_differ_as_they_do_in_the_engine() {
    let measured = |line: &str| {
        let args: Vec<&str> = std::iter::once("predict-step").chain(line.split_ascii_whitespace()).collect();
        run(&args)
    };
    let step = |more: &str| {
        measured(&format!("--model qwen2.5-0.5b --hardware h100 --correction none --decode 9x500 {more} --format json"))
            .json()
    };
    let us = |more: &str| step(more)["step_time_us"].as_f64().unwrap();
    let modes = ["FULL_AND_PIECEWISE", "piecewise", "NONE"].map(|mode| us(&format!("--cudagraph-mode {mode}")));
    assert!(modes[0] <= modes[1] && modes[1] < modes[2] && modes[2] < us("--enforce-eager"), "{modes:?}");
    let sizes = step("--cudagraph-capture-sizes 4,12");
    assert_eq!((sizes["padded_tokens"].as_u64(), sizes["graph_mode"].as_str()), (Some(12), Some("full")));
    assert_eq!(sizes["deployment"]["cudagraph_capture_sizes"], serde_json::json!([4, 12]));
    let refused = measured("--model qwen2.5-0.5b --hardware h100 --decode 1x9 --enforce-eager --cudagraph-mode FULL");
    refused.fails(1, &["cudagraph_mode = FULL contradicts enforce_eager"]);
    let scout = "--model llama-4-scout --hardware h100 --tp 4 --decode 1x9";
    assert_eq!(measured(&format!("{scout} --format json")).json()["graph_mode"], "piecewise");
    measured(&format!("{scout} --cudagraph-mode FULL")).fails(1, &["cudagraph_mode = FULL", "chunked attention"]);
    let ring = measured(
        "--model llama-3.1-70b --hardware h100 --tp 4 --disable-custom-all-reduce --attention-backend flashinfer --decode 8x9",
    );
    assert!(
        !ring.stdout.contains("NCCL's ring was not measured") && ring.stdout.contains("attention_backend = FLASHINFER")
    );
}

#[test]
fn the_table_shows_the_bound_beside_the_prediction() {
    let run = predict(&format!("{LLAMA} --tp 2 --decode 64x2048 --prefill 512 --explain"));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    for text in ["step time", "roofline", "gate_up_proj", "all_reduce", "projections", "whole step", "100.0 % ideal"] {
        assert!(run.stdout.contains(text), "'{text}' is not in {}", run.stdout);
    }
    let sentences = run.stdout.lines().filter(|line| line.starts_with("- ")).count();
    assert_eq!(sentences, 3, "{}", run.stdout);
    assert!(!run.stdout.contains('\u{1b}'), "no colours where stdout is no terminal");
}

#[test]
fn measured_tables_give_a_time_above_the_bound_and_an_interval() {
    let dir = data_dir_with_tables();
    let data_dir = dir.path().to_str().unwrap();
    let line = ["predict-step", "--data-dir", data_dir, "--model", "llama-3.1-8b", "--hardware", "h100"];
    let batch = ["--decode", "64x2048", "--prefill", "512", "--format", "json"];
    let json = run(&[&line[..], &batch[..]].concat()).json();
    assert!(number(&json, "step_time_us") > number(&json, "bound_us"));
    assert!(number(&json, "lower_us") < number(&json, "step_time_us"));
    assert!(number(&json, "upper_us") > number(&json, "step_time_us"));
    let provenance: f64 = json["provenance"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
    assert!((provenance - 1.0).abs() < 1e-9, "{provenance}");
}

#[test]
fn unknown_names_come_with_near_ones_and_both_are_reported() {
    let run = predict("--model llama-3.1-9b --hardware h10_sxm --decode 1x5");
    run.fails(1, &["unknown model 'llama-3.1-9b' (did you mean", "unknown hardware 'h10_sxm' (did you mean h100_sxm"]);
}

#[test]
fn a_batch_that_is_no_json_names_file_line_and_column() {
    predict_batch("{\"requests\": [\n{\"num_computed_tokens\": 1,,").fails(1, &["batch.json: line 2 column"]);
    predict_batch("{\"requests\": [\n{\"num_computed_tokens\": 1").fails(1, &["batch.json: line 2", "EOF"]);
    predict_batch("[]").fails(1, &["batch.json: [] must be an object", "requests is missing"]);
}

#[test]
fn a_request_at_fault_is_named_with_its_key() {
    let one = |text: &str| predict_batch(&format!("{{\"requests\": [{text}]}}"));
    one(r#"{"num_computed_tokens": 1}"#).fails(1, &["batch.json: requests[0].num_scheduled_tokens is missing"]);
    one(r#"{"num_computed_tokens": 1, "num_scheduled_tokens": 1, "priority": 3}"#)
        .fails(1, &["requests[0].priority is not a known key"]);
    for number in ["99999999999", "-3", "0.5"] {
        let wrong = format!("requests[0].num_computed_tokens = {number} must be a whole number from 0 to 4294967295");
        one(&format!(r#"{{"num_computed_tokens": {number}, "num_scheduled_tokens": 1}}"#)).fails(1, &[&wrong]);
    }
    one(r#"{"num_computed_tokens": 5, "num_scheduled_tokens": 0}"#)
        .fails(1, &["batch.json: request 0: num_scheduled_tokens = 0 must be at least 1"]);
}

#[test]
fn a_batch_without_requests_is_an_error() {
    predict_batch(r#"{"requests": []}"#).fails(1, &["batch.json: the batch has no requests"]);
}

#[test]
fn every_request_beyond_the_context_is_named() {
    let too_long = r#"{"num_computed_tokens": 200000, "num_scheduled_tokens": 1}"#;
    let fine = r#"{"num_computed_tokens": 2, "num_scheduled_tokens": 1}"#;
    predict_batch(&format!("{{\"requests\": [{too_long}, {fine}, {too_long}]}}"))
        .fails(1, &["request 0:", "request 2:", "200001 is longer than max_model_len = 131072"]);
    predict(&format!("{LLAMA} --max-model-len 4096 --decode 8x5000,1x5 --prefill 4096"))
        .fails(1, &["--decode 8x5000", "max_model_len = 4096", "shorten the request or raise max_model_len"]);
}

#[test]
fn a_million_requests_are_predicted() {
    let mut text = String::with_capacity(50_000_000);
    text.push_str("{\"requests\":[");
    text.push_str(&r#"{"progress_index":1000,"num_new_tokens":1},"#.repeat(999_999));
    text.push_str(r#"{"progress_index":1000,"num_new_tokens":1}]}"#);
    let json = predict_batch(&text).json();
    assert_eq!(json["batch"]["num_decodes"].as_u64(), Some(1_000_000));
    assert_no_null(&json, &["max_model_len", "kv_cache_dtype", "correction", "interval_held"]);
    assert!(json["warnings"].to_string().contains("more than max_num_seqs = 1024"));
}

#[test]
fn the_largest_numbers_stay_finite() {
    let json = predict(&format!(
        "{LLAMA} --max-model-len 4294967295 --decode 900000x4294967294 --prefill 1000x2147483647@2147483647 --format json"
    ))
    .json();
    assert_no_null(&json, &["kv_cache_dtype", "correction", "interval_held"]);
    assert!(number(&json, "step_time_us").is_finite());
}

#[test]
fn a_model_that_the_gpus_cannot_share_is_an_error_with_sizes_that_fit() {
    predict(&format!("{LLAMA} --tp 3 --decode 1x5"))
        .fails(1, &["tensor_parallel_size = 3 does not divide num_attention_heads = 32", "can be 1, 2, 4, 8"]);
    predict(&format!("{LLAMA} --tp 0 --gpu-memory-utilization 1.5 --decode 1x5"))
        .fails(1, &["tensor_parallel_size = 0 must be a whole number from 1", "gpu_memory_utilization = 1.5 must be"]);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    predict(&format!("{LLAMA} --batch no_such_batch.json")).fails(1, &["no_such_batch.json: No such file"]);
    predict("--model no_such_model/config.json --hardware h100 --decode 1x5")
        .fails(1, &["no_such_model/config.json: No such file"]);
    predict(&format!("{LLAMA} --data-dir no_such_dir --decode 1x5")).fails(1, &["--data-dir no_such_dir"]);
    let dir = tempfile::tempdir().unwrap();
    predict(&format!("{LLAMA} --batch {}", dir.path().display())).fails(1, &["directory"]);
}

#[test]
fn an_unknown_key_of_a_hardware_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my_gpu.toml");
    std::fs::write(&path, "display_name = \"x\"\nbandwith = 3\n").unwrap();
    predict(&format!("--model llama-3.1-8b --hardware {} --decode 1x5", path.display()))
        .fails(1, &["my_gpu.toml", "bandwith"]);
}

#[test]
fn what_is_borrowed_is_said_once() {
    let line = "predict-step --model llama-3.1-8b --hardware l4 --prefill 512 --format json";
    let said = run(&line.split(' ').collect::<Vec<_>>()).stdout;
    assert_eq!(said.matches("efficiency borrowed from l40s").count(), 1, "{said}");
    let borrowed = said.lines().find(|line| line.contains("efficiency borrowed")).unwrap_or_default();
    assert!(borrowed.contains("attention_prefill") && borrowed.contains("attention_decode"), "{borrowed}");
}

#[test]
fn a_model_file_that_is_cut_short_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    std::fs::write(&path, "{\"model_type\": \"llama\", \"hidden_size\":").unwrap();
    predict(&format!("--model {} --hardware h100 --decode 1x5", path.display())).fails(1, &["config.json", "line 1"]);
}

#[test]
fn a_broken_table_names_its_file_and_row() {
    let dir = data_dir_with_tables();
    let path = dir.path().join("bench_data/h100_sxm/gemm.csv");
    let whole = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("series,")).unwrap() + 1;
    let data_dir = dir.path().to_str().unwrap();
    let with = |lines: &[String]| {
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        run(&[
            "predict-step",
            "--data-dir",
            data_dir,
            "--model",
            "llama-3.1-8b",
            "--hardware",
            "h100",
            "--decode",
            "1x5",
        ])
    };
    let changed = |at: usize, line: String| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        lines[at] = line;
        lines
    };
    let (points, values) = lines[first].rsplit_once(',').unwrap();
    // The first value is three digits.
    let (value, later_values) = values.split_at(3);
    assert!(value.parse::<u32>().is_ok(), "{values}");
    with(&changed(first, format!("{points},NaN {later_values}"))).fails(1, &["gemm.csv: row 1", "NaN", "(0, 1000]"]);
    with(&changed(first, format!("{points},1001 {later_values}"))).fails(1, &["gemm.csv: row 1", "1001"]);
    with(&changed(first + 1, lines[first].to_owned())).fails(1, &["gemm.csv: row 2", "one line per point"]);
    let mut cut = changed(first, lines[first].to_owned());
    cut.remove(first + 1);
    with(&cut).fails(1, &["gemm.csv", "lines, its header says"]);
    with(&changed(0, "# operator = \"gemm\"\n# colour = \"red\"".to_owned())).fails(1, &["gemm.csv", "colour"]);
}

#[test]
fn an_engine_and_its_version_choose_the_kernels() {
    let notes = |more: &str| {
        let line = format!("predict-step --model llama-3.1-8b --hardware b200 --decode 64x2048 --format json {more}");
        let run = run(&line.split_ascii_whitespace().collect::<Vec<_>>());
        assert_eq!(run.code, 0, "{}", run.stderr);
        format!("{} {}", run.json()["serving_engine"], run.json()["warnings"])
    };
    // The default is the newest version with kernels of its own for the GPU.
    let default = notes("");
    assert!(default.contains("\"vllm-0.24\"") && !default.contains("are the fallback"), "{default}");
    assert_eq!(notes("--engine vllm --engine-version 0.24.1"), default);
    let older = notes("--engine-version 0.17");
    assert!(older.starts_with("\"vllm-0.17\""), "{older}");
    let remedy = "kernels of vllm-0.24 are the fallback for vllm-0.17; engine_version = 0.24 launches them";
    assert!(older.contains(remedy), "{older}");
    assert!(older.contains("`ridgepoint hardware b200_sxm --series` lists the kernels that were measured"), "{older}");
    let other = notes("--engine trtllm");
    assert!(other.contains("steps are laid out as vLLM's, with kernels and the sampler of trtllm"), "{other}");
    let both = "--model llama-3.1-8b --hardware b200 --decode 1x1";
    predict(&format!("{both} --engine lmdeploy")).fails(2, &["--engine", "lmdeploy", "sglang"]);
    predict(&format!("{both} --engine-version newest")).fails(2, &["--engine-version", "such as 0.24"]);
}
