//! `ridgepoint simulate --kv-metrics`.

use crate::cli_support;

use cli_support::{Folder, simulate};
use serde_json::Value;

/// Prompts of 420 tokens, 320 of them shared. At most one is in the engine, and the cache holds them all.
const LOAD: &str = "--model llama-3.1-8b --hardware h100 --max-model-len 4096 --concurrency 1 --num-requests 5 --random-prefix-len 320 \
                    --input-len 100 --output-len 4";

#[test]
fn kv_metrics_are_reported_and_change_nothing_else() {
    let mut with = simulate(&format!("{LOAD} --kv-metrics --format json")).json();
    let metrics = with.as_object_mut().unwrap().remove("kv_metrics").unwrap();
    assert_eq!(with, simulate(&format!("{LOAD} --format json")).json());

    let hits = &metrics["hits"];
    assert_eq!((&hits["requests"], &hits["asked_tokens"]), (&5.into(), &2100.into()));
    // Twenty blocks of 16 for each request but the first.
    assert_eq!((&hits["gpu_hit_tokens"], &hits["missed_tokens"]), (&1280.into(), &820.into()));
    let groups = metrics["prefix_groups"].as_array().unwrap();
    assert_eq!((groups.len(), &groups[0]["gpu_hit_tokens"]), (1, &1280.into()));
    assert!(groups[0]["prefix"].is_string(), "{}", groups[0]);
    let blocks = &metrics["blocks"];
    // 27 blocks for the first, 7 for each other.
    assert_eq!((&blocks["allocated"], &blocks["evicted"], &blocks["resident"]), (&55.into(), &0.into(), &55.into()));
    assert_eq!(
        (&blocks["hits"], &blocks["lookup_hits"], &blocks["lookup_misses"]),
        (&80.into(), &80.into(), &5.into())
    );
    assert_eq!(blocks["reuse_gap_ms"]["count"], 60);
    assert!(blocks["lifetime_ms"].is_null());
    let (host, balance) = (&metrics["host"], &metrics["balance"]);
    // 424 tokens have 26 full blocks.
    assert_eq!((&host["hashed_blocks"], &host["inserted_blocks"]), (&130.into(), &50.into()));
    assert!((host["hash_ms"].as_f64().unwrap() - 0.13).abs() < 1e-9, "{host}");
    let number = |key: &str| balance[key].as_f64().unwrap();
    assert!(number("net_ms") > 0.0 && number("hit_rate") > number("break_even_hit_rate"), "{balance}");
    assert!((number("saved_ms") - number("cost_ms") - number("net_ms")).abs() < 1e-9, "{balance}");
}

#[test]
fn the_table_names_lives_hits_and_break_even() {
    let table = simulate(&format!("{LOAD} --kv-metrics --block-size 8")).stdout;
    let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["KV blocks, ms", "between hits", "prefix requests", "hashing ", "prefix caching pays from a hit rate of"]
    {
        assert!(table.contains(part), "'{part}' is not in {table}");
    }
    assert!(table.contains("block_size = 8: hashing was timed for blocks of 16 to 128 tokens"), "{table}");
}

#[test]
fn without_prefix_caching_blocks_have_no_lives() {
    let json = simulate(&format!("{LOAD} --no-enable-prefix-caching --kv-metrics --format json")).json();
    let metrics = &json["kv_metrics"];
    assert!(metrics["blocks"].is_null() && metrics["host"].is_null() && metrics["balance"].is_null(), "{metrics}");
    assert_eq!((&metrics["hits"]["asked_tokens"], &metrics["hits"]["gpu_hit_tokens"]), (&2100.into(), &0.into()));
}

#[test]
fn a_trace_counts_cached_tokens() {
    let folder = Folder::new();
    let path = folder.path("trace.json");
    simulate(&format!("{LOAD} --trace {path} --format json")).json();
    let trace: Value = serde_json::from_str(&folder.read("trace.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let cached: Vec<_> = events.filter(|event| event["name"] == "cached tokens found").collect();
    let values: Vec<_> = cached.iter().map(|event| event["args"]["tokens"].as_u64().unwrap()).collect();
    assert_eq!(values, [320, 640, 960, 1280]);
}
