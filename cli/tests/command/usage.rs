//! The command as a whole: usage errors, help, versions, closed pipes, completions, and what is built in.

use crate::cli_support;

use std::process::Stdio;

use cli_support::{binary, predict, run};

#[test]
fn wrong_usage_exits_with_2_and_says_how() {
    let predict = ["predict-step", "--model", "llama-3.1-8b", "--hardware", "h100"];
    let with = |more: &[&str]| run(&[&predict[..], more].concat());
    with(&["--decode", "1x5", "--tensor-paralel-size", "2"])
        .fails(2, &["--tensor-paralel-size", "tensor-parallel-size"]);
    with(&[]).fails(2, &["no batch", "--batch FILE", "--decode NxC"]);
    with(&["--decode", "2048"]).fails(2, &["'2048'", "ambiguous", "1x2048"]);
    with(&["--prefill", "2k"]).fails(2, &["'2k'", "in digits only"]);
    with(&["--prefill", "-5"]).fails(2, &["'-5'", "whole number from 1"]);
    with(&["--decode", "1x5", "--tp", "-1"]).fails(2, &["'-1'", "--tensor-parallel-size"]);
    with(&["--decode", "5x4294967296"]).fails(2, &["4294967296", "is more than 4294967295"]);
    with(&["--prefill", "512:last"]).fails(2, &["':last'", "':partial'"]);
    with(&["--decode", "1x5", "--batch", "b.json"]).fails(2, &["cannot be used with"]);
    with(&["--decode", "1x5", "--kv-cache-dtype", "int4"]).fails(2, &["int4", "fp8_e5m2"]);
    with(&["--decode", "1x5", "--format", "xml"]).fails(2, &["xml", "json"]);
    run(&["predict-step", "--decode", "1x5"]).fails(2, &["--model", "--hardware"]);
    run(&["calibrate", "--hardware", "h100", "--check"]).fails(2, &["no folder of measurements"]);
    run(&["calibrate", "--hardware", "h100", "--measurements", "d"]).fails(2, &["--out"]);
    run(&["simulat"]).fails(2, &["simulat"]);
    run::<&str>(&[]).fails(2, &["Usage: ridgepoint", "predict-step"]);
}

#[test]
fn every_help_has_examples() {
    for command in ["predict-step", "calibrate", "evaluate", "fit", "models", "hardware", "completions"] {
        let help = run(&[command, "--help"]);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""));
        assert!(help.stdout.contains("Examples:"), "{command}");
        assert!(help.stdout.contains(&format!("ridgepoint {command}")), "{command}");
    }
    let version = run(&["--version"]);
    assert_eq!(version.stdout.trim(), format!("ridgepoint {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for args in [&["models", "--format", "json"][..], &["completions", "bash"], &["--help"]] {
        let mut child = binary().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = binary().arg("models").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("error: standard output"));
}

#[test]
fn completions_know_subcommands_and_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]);
        assert_eq!((script.code, script.stderr.as_str()), (0, ""));
        assert!(script.stdout.contains("predict-step") && script.stdout.contains("tensor-parallel-size"), "{shell}");
    }
}

#[test]
fn every_built_in_model_is_listed_with_its_size() {
    let json = run(&["models", "--format", "json"]).json();
    let models = json["models"].as_array().unwrap();
    assert_eq!(models.len(), ridgepoint::model::builtin_names().len());
    let llama = models.iter().find(|model| model["name"] == "llama-3.1-8b").unwrap();
    assert_eq!(llama["parameters"]["total"].as_u64(), Some(8_030_261_248));
    assert_eq!(llama["num_layers"].as_u64(), Some(32));
    assert_eq!(llama["hf_ids"][0], "meta-llama/Meta-Llama-3.1-8B");
    let own = ridgepoint::internals::correction::builtin_corrections().unwrap();
    for model in models {
        let has_own = own.iter().any(|correction| model["name"] == correction.name.as_str());
        assert_eq!(model["correction"]["level"], if has_own { "model" } else { "global" }, "{model}");
    }
    let table = run(&["models"]);
    assert!(table.stdout.contains("llama-3.1-8b") && table.stdout.contains("8.030 B"), "{}", table.stdout);
}

#[test]
fn one_model_says_what_a_gpu_holds_of_it() {
    let bytes = |tp: &str| {
        let json = run(&["models", "meta-llama/Llama-3.1-8B-Instruct", "--tp", tp, "--format", "json"]).json();
        json["weight_bytes_per_rank"].as_f64().unwrap()
    };
    // 8,030,261,248 parameters of two bytes; norms (65 of 4,096 elements) are on every rank.
    assert!((bytes("1") - 2.0 * 8_030_261_248.0).abs() < 1.0);
    assert!((bytes("2") - (8_030_261_248.0 + 65.0 * 4096.0)).abs() < 1.0);
    run(&["models", "llama-3.1-8b", "--tp", "3"]).fails(1, &["tensor_parallel_size = 3 does not divide"]);
    run(&["models", "llama-3.1-9b"]).fails(1, &["unknown model 'llama-3.1-9b'"]);
}

#[test]
fn every_built_in_gpu_is_listed_with_peaks_tables_and_sources() {
    let json = run(&["hardware", "--format", "json"]).json();
    let gpus = json["hardware"].as_array().unwrap();
    assert_eq!(gpus.len(), ridgepoint::hardware::builtin_names().len());
    for gpu in gpus {
        assert!(gpu["tables"].is_array() && gpu["corrections"].is_array(), "{gpu}");
        assert_eq!(gpu["correction"], gpu["corrections"] != serde_json::json!([]), "{gpu}");
        assert!(!gpu["sources"].as_array().unwrap().is_empty(), "{gpu}");
    }
    let one = run(&["hardware", "NVIDIA H100 80GB HBM3", "--format", "json"]).json();
    assert_eq!(one["name"], "h100_sxm");
    assert_eq!(one["peaks_dense_flop_per_s"]["bfloat16"].as_f64(), Some(989.4e12));
    assert!(one["table_headers"].is_object());
    run(&["hardware", "h10_sxm"]).fails(1, &["unknown hardware 'h10_sxm'", "h100_sxm"]);
}

#[test]
fn files_of_a_data_directory_are_listed_and_found() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().to_str().unwrap();
    for folder in ["models", "hardware"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let config = include_str!("../../../models/llama-3.1-8b.json");
    std::fs::write(dir.path().join("models/my-llama.json"), config).unwrap();
    let gpu = include_str!("../../../hardware/l40s.toml").replace("aliases", "aliases = []\n# aliases");
    std::fs::write(dir.path().join("hardware/my_gpu.toml"), gpu).unwrap();
    assert!(run(&["models", "--data-dir", data_dir]).stdout.contains("my-llama"));
    assert!(run(&["hardware", "--data-dir", data_dir]).stdout.contains("my_gpu"));
    let step = predict(&format!("--data-dir {data_dir} --model my-llama --hardware my_gpu --decode 1x5 --format json"));
    assert_eq!(step.json()["hardware"], "my_gpu");
}
