//! What a real vLLM 0.32 on a CPU and its load generator wrote of four requests, shortened. `.ci/vllm_cpu.py` made it, with a random model.

use crate::cli_support;

use cli_support::{Folder, run};
use serde_json::Value;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/vllm_cpu");
const CPU: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/cpu.toml");

/// Reads files of the run `few` into a folder, with the server's totals. Returns each total that the files say as well, with both values.
fn ingest(folder: &Folder, out: &str, files: &[&str]) -> Vec<(String, f64, f64)> {
    let (model, out) = (format!("{FIXTURES}/config.json"), folder.path(out));
    let files: Vec<String> =
        files.iter().chain(&["before.txt", "after.txt"]).map(|name| format!("{FIXTURES}/{name}")).collect();
    let mut args =
        vec!["ingest", "--out", &out, "--experiment", "few", "--format", "json", "--model", &model, "--hardware", CPU];
    args.extend(["--tensor-parallel-size", "1", "--warm-up-steps", "0"]);
    args.extend(files.iter().map(String::as_str));
    let report = run(&args).json();
    let both = |of: &Value| Some((of["name"].as_str()?.to_owned(), of["server"].as_f64()?, of["rows"].as_f64()?));
    report["metrics"].as_array().unwrap().iter().filter_map(both).collect()
}

#[test]
fn every_stream_counts_what_the_server_counts() {
    let folder = Folder::new();
    for (out, files) in [("trace", ["steps.json.gz", "bench.json"]), ("own", ["server.log", "spans.json.gz"])] {
        let totals = ingest(&folder, out, &files);
        for (name, count) in [("requests", 4.0), ("prompt_tokens", 160.0), ("output_tokens", 24.0), ("steps", 14.0)] {
            assert!(totals.contains(&(name.to_owned(), count, count)), "{out}: {name}: {totals:?}");
        }
    }
}

#[test]
fn vllms_own_flops_are_ours_but_for_the_causal_mask() {
    let folder = Folder::new();
    ingest(&folder, "few", &["steps.json.gz", "bench.json"]);
    let report = run(&[
        "evaluate",
        "capture",
        &folder.path("few"),
        &format!("{FIXTURES}/before.txt"),
        &format!("{FIXTURES}/after.txt"),
        "--model",
        &format!("{FIXTURES}/config.json"),
        "--hardware",
        CPU,
        "--enforce-eager",
        "--block-size",
        "32",
        "--max-model-len",
        "2048",
        "--num-gpu-blocks-override",
        "512",
        "--correction",
        "none",
        "--format",
        "json",
    ])
    .json();
    let flops = &report["work"][0];
    // Each of four prompts of 40 tokens sees 40 keys per query in vLLM's count, and 20.5 with a mask: 4·4·64·4 FLOPs each.
    let mask = 4.0 * 40.0 * (40.0 - 20.5) * 4_096.0;
    let difference = flops["vllm"].as_f64().unwrap() - flops["ridgepoint"].as_f64().unwrap();
    assert!((difference - mask).abs() < 1.0, "{difference}, not {mask}: {flops}");
}
