//! The command as a whole: usage errors, help, versions, closed pipes, completions.

use crate::cli_support;

use std::process::Stdio;

use cli_support::{binary, run};

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
    with(&["--decode", "5x4294967296"]).fails(2, &["4294967296", "from 1 to 4294967295"]);
    with(&["--prefill", "512:last"]).fails(2, &["':last'", "':partial'"]);
    with(&["--decode", "1x5", "--batch", "b.json"]).fails(2, &["cannot be used with"]);
    with(&["--decode", "1x5", "--kv-cache-dtype", "int4"]).fails(2, &["int4", "fp8_e5m2"]);
    with(&["--decode", "1x5", "--gpu-memory-utilization", "nan"])
        .fails(2, &["'nan'", "a share of the memory, above 0 and at most 1"]);
    with(&["--decode", "1x5", "--speculative-config", "{}"]).fails(2, &["--speculative-config"]);
    with(&["--decode", "1x5", "--enable-lora"])
        .fails(2, &["--enable-lora is not modelled: there are no LoRA adapters"]);
    with(&["--decode", "1x5", "--replicas=2"])
        .fails(2, &["--replicas is not of a server", "simulate --replicas N --router RULE"]);
    with(&["--decode", "1x5", "--format", "xml"]).fails(2, &["xml", "json"]);
    run(&["predict-step", "--decode", "1x5"]).fails(2, &["--model", "--hardware"]);
    run(&["calibrate", "--hardware", "h100", "--check"]).fails(2, &["no folder of measurements"]);
    run(&["calibrate", "--hardware", "h100", "--measurements", "d"]).fails(2, &["--out"]);
    run(&["simulat"]).fails(2, &["simulat"]);
    run::<&str>(&[]).fails(2, &["Usage: ridgepoint", "predict-step"]);
}

#[test]
fn every_help_has_examples() {
    for command in
        ["predict-step", "probe", "calibrate", "evaluate", "fit", "export", "models", "hardware", "completions"]
    {
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
