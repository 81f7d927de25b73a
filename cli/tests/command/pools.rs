//! Prefill and decode replicas apart through `ridgepoint simulate`.

use serde_json::Value;

use crate::cli_support::{Run, run};

const LOAD: [&str; 14] = [
    "--model",
    "llama-3.1-8b",
    "--hardware",
    "h100",
    "--request-rate",
    "4",
    "--num-requests",
    "60",
    "--input-len",
    "1600",
    "--output-len",
    "20",
    "--seed",
    "3",
];

fn simulated(more: &[&str]) -> Run {
    run(&[&["simulate"], LOAD.as_slice(), more].concat())
}

fn json(more: &[&str]) -> Value {
    simulated(&[&["--format", "json"], more].concat()).json()
}

const APART: [&str; 4] = ["--prefill-replicas", "1", "--decode-replicas", "2"];

fn apart(more: &[&str]) -> Value {
    json(&[APART.as_slice(), more].concat())
}

fn number(of: &Value) -> f64 {
    of.as_f64().unwrap()
}

#[test]
fn pools_share_a_load_and_say_what_moved() {
    let of = apart(&["--decode-args", "--tensor-parallel-size 2"]);
    let pools = &of["pools"];
    assert_eq!((&of["stages"][0]["finished"], &pools["transfers"]), (&60.into(), &60.into()));
    assert_eq!((&pools["prefill"]["gpus_per_replica"], &pools["decode"]["gpus_per_replica"]), (&1.into(), &2.into()));
    assert_eq!((&pools["prefill"]["replicas"], &pools["decode"]["replicas"]), (&1.into(), &2.into()));
    assert_eq!(of["deployment"]["tensor_parallel_size"], 2);
    // Eight KV heads of 128 in 32 layers, keys and values of two bytes: 131,072 bytes a token; 100 blocks of 16 tokens.
    assert_eq!((&pools["way"]["bytes_per_token"], &pools["way"]["over"]), (&131_072.0.into(), &"nvlink".into()));
    assert_eq!(pools["bytes"], 60.0 * 1600.0 * 131_072.0);
    assert!(of.get("intervals").is_none_or(Value::is_null) && of.get("replicas").is_none());
    let warnings = of["warnings"].to_string();
    assert!(warnings.contains("was not measured") && pools["note"].as_str().unwrap().contains("was not measured"));
    let page = simulated(&APART).stdout;
    assert!(page.contains("prefill on 1 of") && page.contains("KV moved") && page.contains("over NVLink"), "{page}");
}

#[test]
fn a_slow_link_makes_first_tokens_late_and_latency_adds_to_each() {
    let mean = |of: &Value, key: &str| number(&of["pools"][key]["mean"]);
    let (fast, slow) = (apart(&[]), apart(&["--kv-transfer-bandwidth", "2"]));
    // 209.7 MB at 2 GB/s take 105 ms where they are alone.
    assert!(mean(&slow, "transfer_ms") > 104.0 && mean(&fast, "transfer_ms") < 1.0);
    assert_eq!(slow["pools"]["way"]["over"], "given");
    let ttft = |of: &Value| number(&of["stages"][0]["ttft_ms"]["mean"]);
    assert!(ttft(&slow) > ttft(&fast) + 90.0);
    let late = apart(&["--kv-transfer-latency-ms", "50"]);
    assert!((ttft(&late) - ttft(&fast) - 50.0).abs() < 15.0);
    // Nine GPUs are more than a server's NVLink joins.
    let many = json(&["--prefill-replicas", "1", "--decode-replicas", "8"]);
    assert_eq!(many["pools"]["way"]["over"], "network");
}

#[test]
fn each_engine_moves_kv_in_its_own_way() {
    for engine in ["vllm", "sglang", "trtllm"] {
        let of = apart(&["--engine", engine, "--router", "least-requests", "--prefill-router", "round-robin"]);
        assert_eq!((&of["stages"][0]["finished"], &of["pools"]["transfers"]), (&60.into(), &60.into()), "{engine}");
        assert_eq!(of["pools"]["decode"]["router"], "least-requests");
    }
    let of = apart(&["--engine", "sglang"]);
    assert_eq!(of["engine"]["enable_prefix_caching"], false);
}

#[test]
fn pools_that_cannot_be_are_refused_with_a_way_out() {
    let with = |more: &[&str]| simulated(&[APART.as_slice(), more].concat());
    simulated(&["--prefill-replicas", "1"]).fails(2, &["--decode-replicas"]);
    with(&["--replicas", "2"]).fails(2, &["--replicas", "cannot be used with"]);
    with(&["--output-tokens", "tokens.jsonl"]).fails(2, &["of one server alone"]);
    with(&["--prefill-args", "--tensor-paralel-size 2"]).fails(2, &["--prefill-args", "--tensor-paralel-size"]);
    with(&["--prefill-args", "--config other.yaml"]).fails(2, &["--prefill-args", "--config"]);
    with(&["--prefill-args", "--model llama-3.1-70b -tp 8"]).fails(2, &["of one model alone"]);
    with(&["--prefill-args", "--kv-cache-dtype fp8"]).fails(1, &["65536 bytes", "--kv-cache-dtype"]);
    with(&["--decode-args", "--block-size 32"]).fails(1, &["block_size is 16 here and 32 there"]);
    with(&["--decode-args", "--data-parallel-size 2"]).fails(1, &["data-parallel ranks are not modelled"]);
    with(&["--kv-transfer-bandwidth", "0"]).fails(2, &["above zero"]);
    let cards = ["--hardware", "l40s", "--gpu-memory-utilization", "0.9"];
    let no_link: Vec<&str> = LOAD.iter().copied().filter(|of| !["--hardware", "h100"].contains(of)).collect();
    run(&[&["simulate"], no_link.as_slice(), &cards, &APART].concat())
        .fails(1, &["l40s has no [network]", "--kv-transfer-bandwidth"]);
}
