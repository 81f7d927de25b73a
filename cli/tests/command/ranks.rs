//! Data-parallel ranks of a server through `ridgepoint simulate`.

use serde_json::{Value, json};

use crate::cli_support::run;

/// The report of 200 requests, 40 a second.
fn simulated(more: &[&str]) -> Value {
    let load = ["simulate", "--hardware", "h100", "--request-rate", "40", "--num-requests", "200", "--format", "json"];
    run(&[load.as_slice(), &["--input-len", "600", "--output-len", "20"], more].concat()).json()
}

const DENSE: [&str; 2] = ["--model", "llama-3.1-8b"];
const EXPERTS: [&str; 3] = ["--model", "qwen3-30b-a3b", "--enable-expert-parallel"];
const TWO: [&str; 2] = ["--data-parallel-size", "2"];

/// The list of ranks.
fn ranks(of: &Value) -> &Vec<Value> {
    of["replicas"]["replicas"].as_array().unwrap()
}

fn sum(of: &Value, key: &str) -> u64 {
    ranks(of).iter().map(|rank| rank[key].as_u64().unwrap()).sum()
}

fn ttft_ms(of: &Value) -> f64 {
    of["stages"][0]["ttft_ms"]["mean"].as_f64().unwrap()
}

#[test]
fn a_dense_models_ranks_are_replicas_behind_the_engines_balancing() {
    let ranked = simulated(&[DENSE.as_slice(), &TWO].concat());
    assert_eq!(ranked["replicas"]["ranks"], json!({"per_replica": 2, "router": "vllm-dp", "in_lockstep": false}));
    assert_eq!((&ranked["stages"][0]["finished"], sum(&ranked, "requests")), (&json!(200), 200));
    assert_eq!((&ranked["all_replicas"], &ranks(&ranked)[0]["dummy_steps"]), (&Value::Null, &Value::Null));
    // The same engines, but for the noise of a seed: as many servers of one GPU behind the same rule.
    let replicas = simulated(&[DENSE.as_slice(), &["--replicas", "2", "--router", "vllm-dp"]].concat());
    assert_eq!((&ranked["stages"], ranks(&ranked)), (&replicas["stages"], ranks(&replicas)));
}

#[test]
fn ranks_that_share_experts_wait_for_each_other() {
    let ranked = simulated(&[EXPERTS.as_slice(), &TWO].concat());
    assert_eq!(ranked["replicas"]["ranks"], json!({"per_replica": 2, "router": "vllm-dp", "in_lockstep": true}));
    assert_eq!((&ranked["stages"][0]["finished"], sum(&ranked, "finished")), (&json!(200), 200));
    assert!(sum(&ranked, "dummy_steps") == ranked["counters"]["dummy_steps"].as_u64().unwrap());
    assert!(ranked["warnings"].to_string().contains("2 data-parallel ranks run in lockstep"));
    // One rank for all never waits for another.
    let alone = simulated(&[EXPERTS.as_slice(), &TWO, &["--kv-metrics"]].concat());
    assert!(alone["stages"][0]["finished"] == 100 && alone.get("replicas").is_none());
    assert!(alone["warnings"].to_string().contains("with --kv-metrics, one data-parallel rank is replayed for all"));
    assert!(ttft_ms(&ranked) > ttft_ms(&alone), "{} {}", ttft_ms(&ranked), ttft_ms(&alone));
}

#[test]
fn each_engine_has_its_own_balancing() {
    let of = |engine: &str, model: &[&str]| {
        let attention = ["--tp-size", "2", "--enable-attention-dp"];
        let two: &[&str] = if engine == "trtllm" { &attention } else { &TWO };
        let of = simulated(&[model, two, &["--engine", engine]].concat());
        assert_eq!(of["stages"][0]["finished"], 200, "{engine}");
        of["replicas"]["ranks"].clone()
    };
    assert_eq!(of("sglang", &EXPERTS), json!({"per_replica": 2, "router": "round-robin", "in_lockstep": true}));
    assert_eq!(of("sglang", &DENSE), json!({"per_replica": 2, "router": "round-robin", "in_lockstep": false}));
    assert_eq!(of("trtllm", &DENSE), json!({"per_replica": 2, "router": "trtllm-adp", "in_lockstep": true}));
}

#[test]
fn replicas_may_have_ranks() {
    let of = simulated(&[EXPERTS.as_slice(), &TWO, &["--replicas", "2", "--router", "least-requests"]].concat());
    assert_eq!((ranks(&of).len(), sum(&of, "finished"), &of["replicas"]["router"]), (4, 200, &json!("least-requests")));
    let to_first = ranks(&of)[..2].iter().map(|of| of["requests"].as_u64().unwrap()).sum::<u64>();
    assert!((80..=120).contains(&to_first), "{to_first}");
    let args =
        ["simulate", "--model", "qwen3-30b-a3b", "--hardware", "h100", "--concurrency", "8", "--input-len", "100"];
    let args = [args.as_slice(), &["--output-len", "5", "--num-requests", "16"], &TWO].concat();
    let page = run(&args).stdout;
    assert!(page.contains("rank  sent") && page.contains("dummy steps"), "{page}");
    let page = run(&[args.as_slice(), &["--replicas", "2"]].concat()).stdout;
    assert!(page.contains("replica.rank  sent") && page.contains("\n2.2 "), "{page}");
}
