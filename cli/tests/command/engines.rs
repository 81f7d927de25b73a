//! Servers of SGLang and TensorRT-LLM through `ridgepoint simulate`: their launch lines, their flags, and flags of another engine.

use crate::cli_support;

use cli_support::{Folder, Run, run};
use serde_json::Value;

const LOAD: [&str; 8] = ["--concurrency", "8", "--num-requests", "32", "--input-len", "2048", "--output-len", "64"];

fn simulated(args: &[&str]) -> Run {
    run(&[&["simulate", "--hardware", "h100", "--format", "json"], LOAD.as_slice(), args].concat())
}

fn of_line(line: &str) -> Value {
    simulated(&["--serve-command", line]).json()
}

fn rules(json: &Value) -> &Value {
    &json["engine"]["rules"]
}

#[test]
fn a_launch_line_brings_its_engine() {
    let sglang = of_line(
        "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --chunked-prefill-size 4096 --disable-radix-cache",
    );
    assert_eq!(rules(&sglang)["sglang"]["chunked_prefill_size"], 4096, "{}", sglang["engine"]);
    assert_eq!(sglang["engine"]["enable_prefix_caching"], false);
    let folder = Folder::new();
    let file = folder.write("extra.yml", "scheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}\n");
    let trtllm = of_line(&format!("trtllm-serve Qwen/Qwen3-8B --max_num_tokens 4096 --extra_llm_api_options {file}"));
    assert_eq!(rules(&trtllm)["trtllm"]["capacity_scheduler_policy"], "MAX_UTILIZATION", "{}", trtllm["engine"]);
    assert_eq!(
        (&trtllm["engine"]["max_num_batched_tokens"], &trtllm["engine"]["block_size"]),
        (&4096.into(), &32.into())
    );
    let vllm = of_line("vllm serve Qwen/Qwen3-8B");
    assert!(rules(&vllm).is_null());
    // Each is replayed by its own rules: all of these requests end, at other times.
    let ttft =
        |json: &Value| json["stages"][0]["ttft_ms"]["mean"].as_f64().unwrap_or_else(|| panic!("{}", json["stages"][0]));
    let times = [&sglang, &trtllm, &vllm].map(ttft);
    assert!([&sglang, &trtllm, &vllm].iter().all(|json| json["stages"][0]["finished"] == 32));
    let apart = |a: usize, b: usize| (times[a] - times[b]).abs() > 1.0;
    assert!(apart(0, 1) && apart(1, 2) && apart(0, 2), "{times:?}");
}

#[test]
fn flags_of_an_engine_are_flags_of_the_command() {
    let args =
        ["--model", "qwen3-8b", "--engine", "sglang", "--max-running-requests", "4", "--scheduler-recv-interval", "7"];
    let json = simulated(&args).json();
    assert_eq!(
        (&json["engine"]["max_num_seqs"], &rules(&json)["sglang"]["scheduler_recv_interval"]),
        (&4.into(), &7.into())
    );
}

#[test]
fn flags_of_another_engine_name_it() {
    let foreign = "which vllm does not have: leave it out, or name the engine that has it";
    simulated(&["--model", "qwen3-8b", "--chunked-prefill-size", "4096"])
        .fails(1, &["chunked_prefill_size is an argument of sglang", foreign]);
    simulated(&["--model", "qwen3-8b", "--engine", "trtllm", "--mem-fraction-static", "0.8"])
        .fails(1, &["mem_fraction_static is an argument of sglang, which trtllm does not have"]);
    let line = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B";
    simulated(&["--serve-command", line, "--engine", "trtllm"]).fails(1, &["starts sglang", "give --engine sglang"]);
}

#[test]
fn a_sweep_puts_engines_side_by_side() {
    let folder = Folder::new();
    let server = "[server]\nmodel = \"qwen3-8b\"\nhardware = \"h100\"\nengine = [\"vllm\", \"sglang-0.5\", \"trtllm\"]\nmax_num_seqs = [8, 64]\n";
    let load = "[load]\nconcurrency = 16\ninput_len = 1024\noutput_len = 32\nnum_requests = 32\n";
    let grid = folder.write("grid.toml", format!("{server}{load}"));
    let out = folder.path("out.json");
    let sweep = |more: &[&str]| run(&[&["sweep", &grid, "--out", &out, "--format", "json"], more].concat());
    let first = sweep(&[]).json();
    assert_eq!(first["statuses"]["ok"], 6);
    let rows: Vec<Value> = serde_json::from_str(&folder.read("out.json")).unwrap();
    let engines: Vec<&str> = rows.iter().map(|row| row["serving_engine"].as_str().unwrap()).collect();
    assert_eq!(engines, ["vllm-0.24", "vllm-0.24", "sglang-0.5", "sglang-0.5", "trtllm-1.3", "trtllm-1.3"]);
    let beside: Vec<Vec<u64>> = first["engines"].as_array().unwrap().iter().map(rows_of).collect();
    assert_eq!(beside, [[0, 2, 4], [1, 3, 5]], "those with 8 requests, and those with 64");
    let of_vllm = &first["engines"][1]["engines"][0];
    assert_eq!(
        (&of_vllm["ttft_mean_ms"], &of_vllm["measured_share"]),
        (&rows[1]["ttft_mean_ms"], &rows[1]["measured_share"])
    );
    let (mean, bounds) = (of_vllm["tpot_mean_ms"].as_f64().unwrap(), &of_vllm["tpot_bounds_ms"]);
    assert!(bounds[0].as_f64().unwrap() < mean && mean < bounds[1].as_f64().unwrap(), "{of_vllm}");
    assert!((0.5..=1.0).contains(&of_vllm["measured_share"].as_f64().unwrap()), "{of_vllm}");
    let simulated = simulated_row(&["--model", "qwen3-8b", "--engine", "sglang", "--max-num-seqs", "64"]);
    assert_eq!(rows[3]["ttft_mean_ms"], simulated, "{}", rows[3]);
    assert_eq!(sweep(&[]).json()["reused"], 6, "rows of each engine are known again");
    let wrong = folder.write("wrong.toml", format!("{}{load}", server.replace("max_num_seqs", "max_prefill_tokens")));
    run(&["sweep", &wrong, "--out", &folder.path("none.csv")])
        .fails(1, &["max_prefill_tokens is an argument of sglang, which vllm does not have"]);
    let unknown = folder.write("unknown.toml", format!("{}{load}", server.replace("sglang-0.5", "lmdeploy")));
    run(&["sweep", &unknown, "--out", &folder.path("none.csv")])
        .fails(1, &["engine = \"lmdeploy\" must be vllm, sglang or trtllm"]);
}

/// The rows of engines that stand side by side.
fn rows_of(beside: &Value) -> Vec<u64> {
    beside["engines"].as_array().unwrap().iter().map(|of| of["configuration"].as_u64().unwrap()).collect()
}

/// The mean TTFT of the sweep's load on a server.
fn simulated_row(server: &[&str]) -> Value {
    let load = ["--concurrency", "16", "--num-requests", "32", "--input-len", "1024", "--output-len", "32"];
    let json = run(&[&["simulate", "--hardware", "h100", "--format", "json"], load.as_slice(), server].concat()).json();
    json["stages"][0]["ttft_ms"]["mean"].clone()
}
