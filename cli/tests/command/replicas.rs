//! Replicas behind a router through `ridgepoint simulate`.

use serde_json::Value;

use crate::cli_support::{Folder, Run, run};

const SERVER: [&str; 6] = ["--model", "llama-3.1-8b", "--hardware", "h100", "--input-len", "600"];

fn simulated(more: &[&str]) -> Run {
    run(&[&["simulate"], SERVER.as_slice(), &["--output-len", "20"], more].concat())
}

fn json(more: &[&str]) -> Value {
    simulated(&[&["--format", "json"], more].concat()).json()
}

const RATE: [&str; 4] = ["--request-rate", "40", "--num-requests", "400"];

#[test]
fn replicas_share_a_load() {
    let of = json(&[RATE.as_slice(), &["--replicas", "4"]].concat());
    let replicas = of["replicas"]["replicas"].as_array().unwrap();
    assert_eq!((&of["replicas"]["router"], replicas.len()), (&"round-robin".into(), 4));
    assert!(replicas.iter().all(|of| of["requests"] == 100 && of["finished"] == 100), "{replicas:?}");
    assert_eq!((&of["stages"][0]["finished"], &of["replicas"]["most_over_mean"]), (&400.into(), &1.0.into()));
    let busy: f64 = replicas.iter().map(|of| of["gpu_busy_share"].as_f64().unwrap()).sum::<f64>() / 4.0;
    assert!((of["counters"]["gpu_busy_share"].as_f64().unwrap() - busy).abs() < 1e-9);
    // One server has four times the load of each, and waits longer.
    let ttft = |of: &Value| of["stages"][0]["ttft_ms"]["mean"].as_f64().unwrap();
    let alone = json(&RATE);
    assert!(ttft(&alone) > ttft(&of) && alone.get("replicas").is_none());
    let one = json(&[RATE.as_slice(), &["--replicas", "1", "--router", "llm-d"]].concat());
    assert_eq!(one, alone);
    let again = json(&[RATE.as_slice(), &["--replicas", "4"]].concat());
    assert_eq!(again, of);
    let page = simulated(&[RATE.as_slice(), &["--replicas", "4"]].concat()).stdout;
    assert!(
        page.contains("replica  sent") && page.lines().filter(|line| line.contains(" 100 ")).count() >= 4,
        "{page}"
    );
}

#[test]
fn every_router_sends_all_requests_and_those_that_know_prefixes_find_them() {
    let folder = Folder::new();
    let rows: String = (0..300)
        .map(|at| {
            format!(
                "{{\"timestamp\": {}, \"input_length\": 512, \"output_length\": 8, \"hash_ids\": [{}]}}\n",
                at * 20,
                (at * 7 + at / 5) % 40
            )
        })
        .collect();
    let path = folder.write("load.jsonl", &rows);
    let cached = |router: &str| {
        let args = [
            "simulate",
            "--model",
            "llama-3.1-8b",
            "--hardware",
            "h100",
            "--format",
            "json",
            "--replicas",
            "4",
            "--requests",
            &path,
        ];
        let of = run(&[args.as_slice(), &["--router", router]].concat()).json();
        assert_eq!((&of["replicas"]["router"], &of["stages"][0]["finished"]), (&router.into(), &300.into()));
        of["counters"]["cached_tokens"].as_u64().unwrap()
    };
    let apart = cached("round-robin");
    for router in ["least-requests", "power-of-two", "session", "vllm-dp", "llm-d"] {
        cached(router);
    }
    for router in ["cache-aware", "dynamo"] {
        assert!(cached(router) > apart + 5_000, "{router}: {} and {apart}", cached(router));
    }
}

#[test]
fn what_is_of_one_server_is_refused() {
    let with = |more: &[&str]| simulated(&[RATE.as_slice(), &["--replicas", "2"], more].concat());
    with(&["--kv-metrics"]).fails(2, &["--kv-metrics is of one server alone"]);
    with(&["--cold"]).fails(2, &["--cold is of one server alone"]);
    let folder = Folder::new();
    let path = folder.path("trace.json");
    with(&["--trace", &path]).fails(2, &["--trace is of one server alone"]);
    assert!(!std::path::Path::new(&path).exists());
    with(&["--data-parallel-size", "2", "--kv-offloading-size", "10"])
        .fails(2, &["data-parallel ranks are not modelled together with KV blocks on the host"]);
    with(&["--router", "random"]).fails(2, &["random", "least-requests"]);
    simulated(&[RATE.as_slice(), &["--replicas", "0"]].concat()).fails(2, &["--replicas", "0"]);
    simulated(&[RATE.as_slice(), &["--router", "llm-d"]].concat()).fails(2, &["--replicas"]);
}
