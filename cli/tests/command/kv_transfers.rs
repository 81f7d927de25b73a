//! Measured times of KV transfers wherever a server is described, and what rows and files say of the tiers.

use crate::cli_support;

use crate::sweep::sweep;
use cli_support::{Folder, run, simulate};
use serde_json::{Value, json};

/// 39 usable blocks, of which each prompt takes 31.
const SERVER: &str = "--model llama-3.1-8b --hardware h100 --num-gpu-blocks-override 40 --max-model-len 500";
/// Prompts of 30 blocks each: A, then B, then A again.
const LOAD: &str =
    "arrival,input_len,output_len,prefix_group,prefix_len\n0,480,4,a,480\n10,480,4,b,480\n20,480,4,a,480\n";
/// A load of the 22 blocks that A lost takes 100 µs + 46,137,344 B / 10 GB/s = 4.714 ms.
const RATES: &str = r#"{"gpu_to_cpu": {"latency_us": 5, "bytes_per_s": 1e9}, "cpu_to_gpu": {"latency_us": 100, "bytes_per_s": 1e10}, "contention": 0.5}"#;
const LOAD_NS: u64 = 4_713_735;

#[test]
fn a_server_file_names_its_measured_transfers_or_has_them() {
    let folder = Folder::new();
    let (load, rates) = (folder.write("aba.csv", LOAD), folder.write("rates.json", RATES));
    let server =
        "model: llama-3.1-8b\nhardware: h100\nnum_gpu_blocks_override: 40\nmax_model_len: 500\nkv_offloading_size: 1\n";
    for (name, of) in [("path.yaml", &rates), ("object.yaml", &RATES.to_owned())] {
        let config = folder.write(name, format!("{server}kv_transfers: {of}\n"));
        let tier = simulate(&format!("--config {config} --requests {load} --format json")).json()["kv_offload"].clone();
        assert_eq!((&tier["loads"]["time_ns"], &tier["contention"]), (&LOAD_NS.into(), &0.5.into()), "{name}");
    }
    let config = folder.write("bad.yaml", format!("{server}kv_transfers: {{contention: 1}}\n"));
    simulate(&format!("--config {config} --requests {load}")).fails(1, &["kv_transfers", "gpu_to_cpu"]);
    let config = folder.write("number.yaml", format!("{server}kv_transfers: 3\n"));
    simulate(&format!("--config {config} --requests {load}"))
        .fails(1, &["kv_transfers = 3 must be the path of a file"]);
    let without = simulate(&format!("{SERVER} --requests {load} --kv-transfers {rates} --format json")).json();
    let said = without["warnings"].to_string();
    assert!(said.contains("kv_transfers has no effect without kv_offloading_size"), "{said}");
}

#[test]
fn a_sweep_takes_measured_transfers_and_reports_the_work_of_the_tiers() {
    let folder = Folder::new();
    let (load, rates) = (folder.write("aba.csv", LOAD), folder.write("rates.json", RATES));
    let server =
        "[server]\nmodel = \"llama-3.1-8b\"\nhardware = \"h100\"\nnum_gpu_blocks_override = 40\nmax_model_len = 500\n";
    let grid =
        format!("{server}kv_offloading_size = [0, 1]\nkv_transfers = \"{rates}\"\n[load]\nrequests = \"{load}\"\n");
    let (grid, out) = (folder.write("grid.toml", grid), folder.path("out.json"));
    assert_eq!(sweep(&grid, &format!("--out {out}")).code, 0);
    let rows: Vec<Value> = serde_json::from_str(&folder.read("out.json")).unwrap();
    let [without, with] = rows.as_slice() else { panic!("{rows:?}") };
    for key in [
        "host_hit_share",
        "disk_hit_share",
        "kv_loads",
        "kv_load_bytes",
        "kv_stores",
        "kv_store_bytes",
        "kv_load_wait_mean_ms",
    ] {
        assert!(without[key].is_null(), "{key}: {without}");
    }
    // As in `simulate`: without the tier 480 + 480 + 352 tokens are computed, with it one of the last prompt.
    assert_eq!((&without["prefill_tokens"], &with["prefill_tokens"]), (&1312.into(), &961.into()));
    assert_eq!((&with["kv_loads"], &with["kv_load_bytes"]), (&1.into(), &46_137_344.into()));
    assert_eq!(with["kv_store_bytes"], 60 * 2_097_152);
    assert!(with["disk_hit_share"].is_null());
    let simulated =
        simulate(&format!("{SERVER} --kv-offloading-size 1 --kv-transfers {rates} --requests {load} --format json"))
            .json();
    assert_eq!(with["host_hit_share"], simulated["kv_offload"]["hit_share"]);
    assert_eq!(with["kv_load_wait_mean_ms"], simulated["kv_offload"]["mean_load_wait_ms"]);
    assert!(with["kv_load_wait_mean_ms"].as_f64().unwrap() >= LOAD_NS as f64 / 1e6);
    // Rows that are older than the file of transfer times are refused.
    std::thread::sleep(std::time::Duration::from_millis(20));
    folder.write("rates.json", RATES.replace("1e10", "2e10"));
    sweep(&grid, &format!("--out {out}")).fails(1, &["rates.json"]);
}

#[test]
fn a_sweep_with_a_file_of_transfers_that_is_not_there_runs_nothing() {
    let folder = Folder::new();
    let grid = "[server]\nmodel = \"llama-3.1-8b\"\nhardware = \"h100\"\nkv_offloading_size = 1\nkv_transfers = [\"nowhere.json\", \"no.json\"]\n\
                [load]\nrequest_rate_per_s = 1\ninput_len_tokens = 100\noutput_len_tokens = 5\nnum_requests = 5\n";
    let grid = folder.write("grid.toml", grid);
    sweep(&grid, &format!("--out {}", folder.path("out.json"))).fails(1, &["nowhere.json", "no.json"]);
    assert_eq!(folder.names(), ["grid.toml"]);
}

#[test]
fn a_capture_is_judged_with_the_transfers_that_its_server_had() {
    let folder = Folder::new();
    let (load, rates) = (folder.write("aba.csv", LOAD), folder.write("rates.json", RATES));
    let tokens = folder.path("t.jsonl");
    let server = format!("{SERVER} --kv-offloading-size 1");
    assert_eq!(
        simulate(&format!("{server} --kv-transfers {rates} --requests {load} --output-tokens {tokens}")).code,
        0
    );
    let worst_pct = |more: &str| {
        let line = format!("evaluate capture --efficiency ideal {tokens} {server} {more} --format json");
        let judged = run(&line.split_ascii_whitespace().collect::<Vec<_>>()).json();
        let rows = judged["metrics"].as_array().unwrap().iter();
        rows.filter(|row| row["metric"] != "step_mean").map(|row| row["ape_pct"].as_f64().unwrap()).fold(0.0, f64::max)
    };
    assert!(worst_pct(&format!("--kv-transfers {rates}")) < 1e-9);
    assert!(worst_pct("") > 1.0, "the datasheet's link is five times as fast");
}

#[test]
fn exported_tables_have_the_links() {
    let folder = Folder::new();
    let rates = folder.write("rates.json", RATES);
    let export = |name: &str, more: &[&str]| -> Value {
        let path = folder.path(name);
        let args = ["export", "--model", "llama-3.1-8b", "--hardware", "h100", "--out", &path];
        let run = run(&[&args, more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        serde_json::from_str::<Value>(&folder.read(name)).unwrap()["kv_transfers"].clone()
    };
    let link = |latency_us: f64, bytes_per_s: f64| json!({"latency_us": latency_us, "bytes_per_s": bytes_per_s});
    let assumed = export("assumed.json", &[]);
    // 85 % of 64 GB/s, and datasheet figures of a disk.
    assert_eq!((&assumed["cpu_to_gpu"], &assumed["cpu_to_disk"]), (&link(20.0, 54.4e9), &link(100.0, 5e9)));
    let measured = export("measured.json", &["--kv-transfers", &rates]);
    assert_eq!((&measured["cpu_to_gpu"], &measured["gpu_to_cpu"]), (&link(100.0, 1e10), &link(5.0, 1e9)));
    assert_eq!(measured["contention"], 0.5);
}

#[test]
fn files_of_a_replay_report_loads_and_hits_by_tier() {
    let folder = Folder::new();
    let (load, rates) = (folder.write("aba.csv", LOAD), folder.write("rates.json", RATES));
    let [bench, trace, otlp] = ["bench.json", "trace.json", "spans.json"].map(|name| folder.path(name));
    let line = format!(
        "{SERVER} --kv-offloading-size 1 --kv-transfers {rates} --requests {load} --kv-metrics --output-json {bench} --save-detailed \
         --trace {trace} --output-otlp {otlp}"
    );
    assert_eq!(simulate(&line).code, 0);
    let bench: Value = serde_json::from_str(&folder.read("bench.json")).unwrap();
    let waits_s: Vec<f64> = serde_json::from_value(bench["kv_loads"].clone()).unwrap();
    assert!(waits_s[..2] == [0.0, 0.0] && waits_s[2] >= LOAD_NS as f64 / 1e9, "{waits_s:?}");
    assert!((bench["mean_kv_load_ms"].as_f64().unwrap() - waits_s[2] * 1e3 / 3.0).abs() < 1e-9, "{bench}");

    let trace: Value = serde_json::from_str(&folder.read("trace.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
    // A finds 8 blocks on the GPU, but for its last token, and 22 on the host.
    assert_eq!(named("hit tokens by tier").last().unwrap()["args"], json!({"gpu": 127, "host": 352, "disk": 0}));
    assert_eq!(named("KV blocks")[0]["ph"], "C");
    let lives = events.iter().find(|event| event["name"] == "lives of KV blocks").unwrap();
    assert!(lives["args"]["lifetime_ms"]["mean"].as_f64().unwrap() > 0.0, "{lives}");
    let groups = events.iter().filter(|event| event["args"]["prefix"].is_string()).count();
    assert_eq!(groups, 2, "A and B");
    for name in ["hits", "hashing and look-ups", "balance of prefix caching"] {
        assert_eq!((named(name).len(), &named(name)[0]["ph"]), (1, &"i".into()), "{name}");
    }

    let ingested = run(&["ingest", &otlp, "--out", &folder.path("tables"), "--format", "json"]).json();
    let hits = ingested["cache_hits"].as_array().unwrap();
    assert_eq!(
        hits[0],
        json!({"tier": "cpu", "source": "kv_events", "queried_tokens": null, "hit_tokens": 352.0, "rate": null})
    );
    let all = json!({"tier": "all", "source": "requests", "queried_tokens": 1440.0, "hit_tokens": 479.0, "rate": 479.0 / 1440.0});
    assert_eq!(hits[1..], [all]);
}
