//! The example of a real server: what vLLM 0.32 on a CPU and its load generator wrote of 80 requests. `.ci/vllm_cpu.py` made it, with a random
//! model.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::cli_support;

use cli_support::{Folder, run};

/// From the root of the checkout, where the commands run: the server's file and the table name its model alike.
const EXAMPLE: &str = "examples/vllm_cpu";

/// Reads files of the run into a folder, with the server's totals. Returns each total that the files say as well, with both values.
fn ingest(folder: &Folder, out: &str, files: &[&str]) -> Vec<(String, f64, f64)> {
    let (model, cpu, out) = (format!("{EXAMPLE}/config.json"), format!("{EXAMPLE}/cpu.toml"), folder.path(out));
    let files: Vec<String> =
        files.iter().chain(&["before.txt", "after.txt"]).map(|name| format!("{EXAMPLE}/{name}")).collect();
    let mut args =
        vec!["ingest", "--out", &out, "--experiment", "cpu", "--format", "json", "--model", &model, "--hardware", &cpu];
    args.extend(["--tensor-parallel-size", "1", "--warm-up-steps", "0"]);
    args.extend(files.iter().map(String::as_str));
    let report = run(&args).json();
    let both = |of: &Value| Some((of["name"].as_str()?.to_owned(), of["server"].as_f64()?, of["rows"].as_f64()?));
    report["metrics"].as_array().unwrap().iter().filter_map(both).collect()
}

#[test]
fn every_stream_counts_what_the_server_counts() {
    let folder = Folder::new();
    for (out, files) in [("trace", ["steps.json.gz", "bench.json.gz"]), ("own", ["server.log.gz", "spans.json.gz"])] {
        let totals = ingest(&folder, out, &files);
        for (name, count) in
            [("requests", 80.0), ("prompt_tokens", 24_779.0), ("output_tokens", 3248.0), ("steps", 1927.0)]
        {
            assert!(totals.contains(&(name.to_owned(), count, count)), "{out}: {name}: {totals:?}");
        }
    }
}

/// FLOPs that vLLM counts beyond a causal mask, by the prompt chunks of the trace. As a query it takes every token of a chunk to see all
/// keys up to the chunk's end, and it counts logits for chunks that end before their prompt.
fn flops_beyond_the_mask() -> f64 {
    let mut text = String::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let file = std::fs::File::open(format!("{root}/{EXAMPLE}/steps.json.gz")).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut flops = 0.0;
    for line in text.lines() {
        let export: Value = serde_json::from_str(line).unwrap();
        let events = &export["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["events"];
        for event in events.as_array().unwrap().iter().filter(|event| event["name"] == "step.REQUEST_SNAPSHOT") {
            let attributes = event["attributes"].as_array().unwrap();
            let value = |key: &str| &attributes.iter().find(|of| of["key"] == key).unwrap()["value"];
            let count = |key: &str| value(key)["intValue"].as_str().unwrap().parse::<f64>().unwrap();
            let (tokens, computed) =
                (count("request.scheduled_tokens_this_step"), count("request.num_computed_tokens"));
            if value("request.phase")["stringValue"] == "PREFILL" {
                flops += 4_096.0 * tokens * (tokens - 1.0) / 2.0;
                let is_partial = computed + tokens < count("request.num_prompt_tokens");
                flops += if is_partial { 2_097_152.0 } else { 0.0 };
            }
        }
    }
    flops
}

#[test]
fn vllms_own_flops_are_ours_but_for_the_causal_mask() {
    let folder = Folder::new();
    ingest(&folder, "cpu", &["steps.json.gz", "bench.json.gz"]);
    let [before, after, server] = ["before.txt", "after.txt", "server.yaml"].map(|name| format!("{EXAMPLE}/{name}"));
    let capture = folder.path("cpu");
    let report =
        run(&["evaluate", "capture", &capture, &before, &after, "--config", &server, "--format", "json"]).json();
    let (flops, mask) = (&report["work"][0], flops_beyond_the_mask());
    let difference = flops["vllm"].as_f64().unwrap() - flops["ridgepoint"].as_f64().unwrap();
    assert!(mask > 1e9 && (difference - mask).abs() < 1e-9 * mask, "{difference}, not {mask}: {flops}");
}

#[test]
fn ones_own_engine_takes_the_four_commands_of_the_guide() {
    let guide = include_str!("../../../docs/guide.md");
    let (_, section) = guide.split_once("## Your own engine").unwrap();
    let mut blocks = section.split("```").filter_map(|block| block.strip_prefix("sh\n"));
    let block = blocks.find(|block| block.starts_with("ridgepoint ingest")).unwrap();
    let folder = Folder::new();
    let argument = |word: &str| if word.starts_with("mine") { folder.path(word) } else { word.to_owned() };
    let run_line = |line: &str| {
        let words = line.strip_prefix("ridgepoint ").unwrap().split_whitespace();
        let run = run(&words.map(argument).collect::<Vec<_>>());
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
        run.stdout
    };
    let said: Vec<String> = block.replace("\\\n", "").lines().map(run_line).collect();
    assert_eq!(said.len(), 4);
    assert!(said[2].starts_with("Use it: on "), "{}", said[2]);
    let e2e_pct = |table: &str| -> f64 {
        let row = table.lines().find(|line| line.starts_with("e2e_mean ")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        words[words.len() - 2].parse().unwrap()
    };
    let (before, after) = (e2e_pct(&said[1]), e2e_pct(&said[3]));
    assert!(before < -60.0 && after.abs() < 0.25 * before.abs(), "{before} {after}");
}
