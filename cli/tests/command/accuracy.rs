//! Accuracy bars of the shipped tables: `ridgepoint calibrate --check` on the public kernel timings, with rows predicted by tables that
//! did not use them. Needs `RIDGEPOINT_DATA`; prints every figure with `--nocapture`. `RIDGEPOINT_REPORTS` names the folder of a run of
//! `docs/figures.py` on this checkout, whose reports are then judged instead of new ones.

use crate::cli_support;
use crate::common;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

/// The largest errors that are allowed of an operator's rows of one kind.
struct Bar {
    operator: &'static str,
    /// Number format, or how an all-reduce is launched.
    label: &'static str,
    median_pct: f64,
    mean_pct: f64,
}

const fn bar(operator: &'static str, label: &'static str, median_pct: f64, mean_pct: f64) -> Bar {
    Bar { operator, label, median_pct, mean_pct }
}

const ANY: f64 = f64::INFINITY;

/// Checks a folder of kernel timings against `bars`; every bar needs rows, and every miss is reported.
fn check(gpu: &str, engine: &str, bars: &[Bar]) {
    let Some(data) = common::data_pack(&format!("accuracy of {gpu} {engine}")) else { return };
    let folder = data.join("kernels").join(gpu).join(engine);
    let folder = folder.to_str().expect("a path in UTF-8");
    let kept = std::env::var_os("RIDGEPOINT_REPORTS")
        .map(|dir| {
            PathBuf::from(dir).join(format!("calibrate_--check_DATA_kernels_{gpu}_{engine}_--hardware_{gpu}.json"))
        })
        .filter(|path| path.exists());
    let report = match kept {
        Some(path) => serde_json::from_str(&std::fs::read_to_string(path).unwrap()).expect("a report in JSON"),
        None => cli_support::run(&["calibrate", "--check", folder, "--hardware", gpu, "--format", "json"]).json(),
    };

    let mut text = format!("{gpu}, {engine}\n");
    let columns = ["rows", "median", "mean", "p90"];
    let _ = writeln!(
        text,
        "  {:<18} {:<10} {:>7} {:>8} {:>8} {:>8}",
        "", "", columns[0], columns[1], columns[2], columns[3]
    );
    for (operator, scores) in report.as_object().expect("operators") {
        for (label, score) in scores["by_dtype"].as_object().expect("formats") {
            let rows = score["rows"].as_u64().expect("a count");
            let [median, mean, p90] = ["median_ape_pct", "mape_pct", "p90_ape_pct"].map(|key| pct(score, key));
            let _ = writeln!(text, "  {operator:<18} {label:<10} {rows:>7} {median:>6.2} % {mean:>6.2} % {p90:>6.2} %");
        }
    }
    print!("{text}");

    let mut missed = Vec::new();
    for Bar { operator, label, median_pct, mean_pct } in bars {
        let score = &report[operator]["by_dtype"][label];
        if score.is_null() {
            missed.push(format!("{operator} {label}: no rows"));
            continue;
        }
        for (statistic, key, limit) in [("median", "median_ape_pct", median_pct), ("mean", "mape_pct", mean_pct)] {
            let found = pct(score, key);
            if found > *limit {
                missed.push(format!("{operator} {label}: {statistic} error {found:.2} %, at most {limit} %"));
            }
        }
    }
    assert!(missed.is_empty(), "{gpu}, {engine}: {}", missed.join("; "));
}

fn pct(score: &Value, key: &str) -> f64 {
    score[key].as_f64().unwrap_or_else(|| panic!("{key} in {score}"))
}

const HOPPER: [Bar; 10] = [
    bar("gemm", "bfloat16", 4.0, 8.0),
    bar("attention_prefill", "bfloat16", 4.0, 8.0),
    bar("attention_prefill", "fp8", 4.0, 8.0),
    bar("attention_decode", "bfloat16", 4.0, 8.0),
    bar("attention_decode", "fp8", 4.0, 8.0),
    bar("moe", "bfloat16", 6.0, 12.0),
    bar("moe", "fp8", 6.0, 12.0),
    bar("moe", "fp8_block", 6.0, 12.0),
    bar("moe", "int4_wo", 6.0, 12.0),
    bar("allreduce", "graph", 6.0, ANY),
];

const AMPERE: [Bar; 5] = [
    bar("gemm", "bfloat16", 5.0, 8.0),
    bar("attention_prefill", "bfloat16", 4.0, 8.0),
    bar("attention_decode", "bfloat16", 4.0, 8.0),
    bar("moe", "bfloat16", 6.0, 12.0),
    bar("allreduce", "graph", 6.0, ANY),
];

const FP8: [Bar; 1] = [bar("gemm", "fp8", 5.0, ANY)];
const FP8_BLOCK: [Bar; 1] = [bar("gemm", "fp8_block", 5.0, ANY)];

const NEWER_ATTENTION: [Bar; 4] = [
    bar("attention_prefill", "bfloat16", 4.0, 8.0),
    bar("attention_prefill", "fp8", 4.0, 8.0),
    bar("attention_decode", "bfloat16", 4.0, 8.0),
    bar("attention_decode", "fp8", 4.0, 8.0),
];

#[test]
fn h100_kernels_are_predicted_within_the_bars() {
    check("h100_sxm", "vllm-0.14.0", &HOPPER);
}

#[test]
fn h200_kernels_are_predicted_within_the_bars() {
    check("h200_sxm", "vllm-0.14.0", &HOPPER);
}

#[test]
fn a100_kernels_are_predicted_within_the_bars() {
    check("a100_sxm", "vllm-0.14.0", &AMPERE);
}

#[test]
fn fp8_projections_are_predicted_within_the_bars() {
    check("h100_sxm", "vllm-0.19.0", &FP8);
    check("h200_sxm", "vllm-0.19.0", &FP8);
}

#[test]
fn fp8_block_projections_are_predicted_within_the_bars() {
    check("h100_sxm", "sglang-0.5.14", &FP8_BLOCK);
    check("h200_sxm", "sglang-0.5.14", &FP8_BLOCK);
}

#[test]
fn newer_attention_kernels_are_predicted_within_the_bars() {
    check("h100_sxm", "vllm-0.24.0", &NEWER_ATTENTION);
    check("h200_sxm", "vllm-0.24.0", &NEWER_ATTENTION);
}
