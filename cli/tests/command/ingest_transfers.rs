//! `ridgepoint ingest` of transfers of KV blocks between GPU and CPU.

use crate::cli_support;
use crate::common;
use crate::ingest_support;

use crate::ingest::ingest;
use cli_support::Folder;
use ingest_support::{event, export, span, summary};
use serde_json::{Value, json};

/// Planted fixed times, µs.
const LATENCY_US: [f64; 2] = [400.0, 900.0];
/// Planted bandwidths.
const BYTES_PER_S: [f64; 2] = [20e9, 12e9];
const CONTENTION: f64 = 0.7;
/// 16 tokens of 32 layers with 8 KV heads of 128, K and V in two bytes: Llama-3.1-8B on one GPU.
const BLOCK_BYTES: f64 = 16.0 * 32.0 * 2.0 * 8.0 * 128.0 * 2.0;

const MEDIA: [[&str; 2]; 2] = [["GPU", "CPU"], ["CPU", "GPU"]];

fn begun(id: u64, of: usize, blocks: u64, step: u64) -> Value {
    json!(["TransferInitiated", id, "r", MEDIA[of][0], MEDIA[of][1], blocks, step])
}

fn done(id: u64, of: usize, blocks: u64, success: bool, step: u64) -> Value {
    json!(["TransferCompleted", id, "r", MEDIA[of][0], MEDIA[of][1], blocks, success, step])
}

/// Events of 2,400 steps, a line for each. Of every eight steps the first begins a store and a load, the fifth a store and the seventh a
/// load, and each has ended before the next of its direction begins.
fn capture() -> String {
    const STEPS: u64 = 2400;
    let place = |step: u64| usize::try_from(step).unwrap();
    let mut starts_us = vec![0.0];
    for step in 0..STEPS {
        starts_us.push(starts_us[place(step)] + 6_000.0 + 400.0 * ((step * 7) % 11) as f64);
    }
    let mut events: Vec<Vec<Value>> = vec![Vec::new(); starts_us.len()];
    let blocks = |step: u64, of: usize| 1 + (step * 29 + 13 * of as u64) % 83;
    let work_us = |step: u64, of: usize| {
        let noise = 1.0 + 0.03 * (((step + 5 * of as u64) * 37 % 21) as f64 - 10.0) / 10.0;
        (LATENCY_US[of] + blocks(step, of) as f64 * BLOCK_BYTES / BYTES_PER_S[of] * 1e6) * noise
    };
    let mut transfer = |step: u64, of: usize, time_us: f64| {
        let end = starts_us.partition_point(|at| *at < starts_us[place(step)] + time_us).min(starts_us.len() - 1);
        let (id, blocks) = (2 * step + of as u64, blocks(step, of));
        events[place(step)].push(begun(id, of, blocks, step));
        events[end].push(done(id, of, blocks, true, end as u64));
    };
    for step in (0..STEPS - 8).step_by(8) {
        let (store, load) = (work_us(step, 0), work_us(step, 1));
        let both = store.min(load);
        // The rest of the longer one runs alone.
        transfer(step, 0, both / CONTENTION + (store - both));
        transfer(step, 1, both / CONTENTION + (load - both));
        transfer(step + 4, 0, work_us(step + 4, 0));
        transfer(step + 6, 1, work_us(step + 6, 1));
    }
    events[0].push(json!(["BlockStored", [1, 2], null, [], 16, null, "GPU"]));
    let line = |(step, events): (usize, &Vec<Value>)| {
        json!([1_700_000_000.0 + starts_us[step] / 1e6, events, null, step]).to_string() + "\n"
    };
    events.iter().enumerate().map(line).collect()
}

fn experiment(folder: &Folder, events: &str) {
    std::fs::create_dir_all(folder.path("exp")).unwrap();
    let config =
        "model: llama-3.1-8b\nhardware: H100\ntensor_parallelism: 1\nmax_num_seqs: 64\nmax_num_batched_tokens: 2048\n";
    folder.write("exp/exp-config.yaml", config);
    folder.write("exp/kv_events.jsonl", events);
}

fn within(value: f64, lower: &Value, upper: &Value) -> bool {
    (lower.as_f64().unwrap()..=upper.as_f64().unwrap()).contains(&value)
}

#[test]
fn planted_rates_are_recovered_and_written() {
    let folder = Folder::new();
    experiment(&folder, &capture());
    let rates = folder.path("rates.json");
    let json = ingest(&folder, &["exp"], &["--format", "json", "--output-transfers", &rates]).json();
    let transfers = json["transfers"].as_array().unwrap();
    assert_eq!(transfers.len(), 2);
    for (at, of) in transfers.iter().enumerate() {
        assert_eq!(of["direction"].as_str(), Some(["gpu_to_cpu", "cpu_to_gpu"][at]));
        assert_eq!(
            (of["count"].as_u64(), of["fitted"].as_u64(), of["failed"].as_u64()),
            (Some(598), Some(598), Some(0))
        );
        let (lower, upper) = (&of["lower"], &of["upper"]);
        assert!(within(LATENCY_US[at], &lower["latency_us"], &upper["latency_us"]), "{of}");
        assert!(within(BYTES_PER_S[at], &lower["bytes_per_s"], &upper["bytes_per_s"]), "{of}");
        let found = of["bytes_per_s"].as_f64().unwrap();
        assert!((found / BYTES_PER_S[at] - 1.0).abs() < 0.03, "{of}");
        assert!((found / of["blocks_per_s"].as_f64().unwrap() / BLOCK_BYTES - 1.0).abs() < 1e-9, "{of}");
        assert_eq!(of["bytes"].as_f64(), Some(of["blocks"].as_f64().unwrap() * BLOCK_BYTES));
    }
    let contention = &json["transfer_contention"][0];
    assert!(within(CONTENTION, &contention["lower"], &contention["upper"]), "{contention}");
    let written: Value = serde_json::from_str(&folder.read("rates.json")).unwrap();
    let expected = json!({
        "gpu_to_cpu": {"latency_us": transfers[0]["latency_us"], "bytes_per_s": transfers[0]["bytes_per_s"]},
        "cpu_to_gpu": {"latency_us": transfers[1]["latency_us"], "bytes_per_s": transfers[1]["bytes_per_s"]},
        "contention": contention["factor"],
    });
    assert_eq!(written, expected);
    assert_eq!(json["written"], json!([rates]));
    let faults = json["transfer_faults"][0].as_object().unwrap();
    assert!(faults.iter().all(|(key, count)| key == "file" || count.as_u64() == Some(0)), "{faults:?}");
    // A file of its own kind is replaced.
    let table = ingest(&folder, &["exp"], &["--output-transfers", &rates]);
    assert!(
        table.code == 0 && table.stdout.contains("of its speed for each direction while both run"),
        "{}",
        table.stdout
    );
}

#[test]
fn without_a_model_the_bandwidth_is_in_blocks() {
    let folder = Folder::new();
    let events = capture();
    folder.write("kv_events.jsonl", &events);
    let run = ingest(&folder, &["kv_events.jsonl"], &["--format", "json"]);
    let said = "because the files do not report the model, tensor_parallel_size: give kv_block_bytes";
    assert!(
        run.stderr.contains("the bandwidth is in blocks per second") && run.stderr.contains(said),
        "{}",
        run.stderr
    );
    let of = &run.json()["transfers"][0];
    assert!(of["bytes_per_s"].is_null() && of["bytes"].is_null() && of["lower"]["bytes_per_s"].is_null(), "{of}");
    assert!((of["blocks_per_s"].as_f64().unwrap() * BLOCK_BYTES / BYTES_PER_S[0] - 1.0).abs() < 0.03, "{of}");
    let rates = folder.path("rates.json");
    ingest(&folder, &["kv_events.jsonl"], &["--output-transfers", &rates]).fails(
        1,
        &[
            "--output-transfers",
            "the bytes of a block gpu_to_cpu are not known",
            "no file determines the rates of both directions",
        ],
    );
    assert_eq!(folder.names(), ["kv_events.jsonl"]);
    let given = ["--format", "json", "--kv-block-bytes", "1000000"];
    let of = &ingest(&folder, &["kv_events.jsonl"], &given).json()["transfers"][0];
    assert!((of["bytes_per_s"].as_f64().unwrap() / of["blocks_per_s"].as_f64().unwrap() - 1e6).abs() < 1.0, "{of}");
    for bytes in ["0", "-5", "many", "inf", "1e13"] {
        ingest(&folder, &["kv_events.jsonl"], &["--kv-block-bytes", bytes]).fails(2, &["--kv-block-bytes"]);
    }
}

#[test]
fn events_without_a_time_are_counted_by_what_is_wrong() {
    let line = |seconds: f64, events: Value, step: u64| json!([seconds, events, null, step]).to_string() + "\n";
    let lines = [
        // 1 lacks its end, 3 begins twice and ends once, 4 has no blocks, 5 fails, 6 goes to a disk, 8 and 9 meet a clock or a counter that runs backwards,
        // 10 changes its blocks, 11 has no source, 12 is over at once, and 20 is sound.
        line(
            10.0,
            json!([
                begun(1, 0, 4, 5),
                begun(3, 0, 4, 5),
                begun(3, 0, 4, 5),
                begun(4, 1, 0, 5),
                begun(5, 0, 4, 5),
                ["TransferInitiated", 6, "r", "GPU", "FS", 4, 5],
                begun(8, 0, 4, 5),
                begun(9, 0, 4, 5),
                begun(10, 0, 4, 5),
                ["TransferInitiated", 11, "r", null, "CPU", 4, 5],
                begun(12, 0, 4, 5),
                done(12, 0, 4, true, 5),
                begun(20, 1, 7, 5)
            ]),
            5,
        ),
        line(10.5, json!([done(2, 0, 4, true, 6), done(3, 0, 4, true, 6), done(4, 1, 0, true, 6)]), 6),
        line(
            10.6,
            json!([done(5, 0, 4, false, 7), done(10, 0, 5, true, 7), done(20, 1, 7, true, 7), done(20, 1, 7, true, 7)]),
            7,
        ),
        line(9.0, json!([done(8, 0, 4, true, 8)]), 8),
        line(11.0, json!([done(9, 0, 4, true, 3)]), 3),
    ];
    let folder = Folder::new();
    folder.write("kv_events.jsonl", lines.concat());
    let run = ingest(&folder, &["kv_events.jsonl"], &["--format", "json"]);
    let json = run.json();
    let expected = [
        ("without_end", 2),
        ("without_begin", 1),
        ("failed", 1),
        ("doubled_ids", 3),
        ("without_blocks", 1),
        ("contradictory", 1),
        ("end_before_begin", 1),
        ("steps_backwards", 1),
        ("within_a_step", 1),
        ("without_time", 0),
        ("incomplete", 1),
        ("other_media", 1),
    ];
    for (key, count) in expected {
        assert_eq!(json["transfer_faults"][0][key].as_u64(), Some(count), "{key}: {}", json["transfer_faults"]);
    }
    assert!(run.stderr.contains("other media than GPU and CPU are left out: GPU->FS (1)"), "{}", run.stderr);
    assert!(
        run.stderr.contains("1 transfers of cpu_to_gpu do not determine its latency and bandwidth"),
        "{}",
        run.stderr
    );
    let of = &json["transfers"][1];
    assert!(of["latency_us"].is_null() && of["lower"].is_null() && of["median_time_us"].is_f64(), "{of}");
    assert_eq!(json["kv_events"][0]["batches_back_in_time"].as_u64(), Some(1));
    let table = ingest(&folder, &["kv_events.jsonl"], &[]);
    assert!(
        table.stdout.contains("left out: transfers of") && table.stdout.contains("two clocks?"),
        "{}",
        table.stdout
    );
}

#[test]
fn numbers_that_are_none_are_refused() {
    let folder = Folder::new();
    for (events, said) in [
        (json!([["TransferInitiated", 1, "r", "GPU", "CPU", -4, 5]]), "num_blocks is -4, expected a whole number"),
        (
            json!([["TransferCompleted", 1, "r", "GPU", "CPU", 4, true, -1]]),
            "scheduler_step is -1, expected a whole number",
        ),
    ] {
        folder.write("kv_events.jsonl", json!([1.5, events, null, 2]).to_string());
        ingest(&folder, &["kv_events.jsonl"], &[]).fails(1, &["kv_events.jsonl: line 1", said]);
    }
    folder.write("kv_events.jsonl", "[1.5, [[\"AllBlocksCleared\"]], null, -2]\n");
    ingest(&folder, &["kv_events.jsonl"], &[]).fails(1, &["its step is -2, expected a whole number"]);
    folder.write("kv_events.jsonl", "[-1.5, [[\"AllBlocksCleared\"]], null, 2]\n");
    ingest(&folder, &["kv_events.jsonl"], &[]).fails(1, &["its time is -1.5"]);
}

#[test]
fn events_of_two_files_are_never_one_transfer() {
    let transfer = |name: &str, id: u64, ns: u64, blocks: i64| {
        let pairs = [
            ("transfer.id", json!(id)),
            ("kv.src", json!("GPU")),
            ("kv.dst", json!("CPU")),
            ("kv.num_blocks", json!(blocks)),
            ("scheduler.step", json!(ns / 1_000_000)),
        ];
        let mut event = event(name, &pairs);
        event["timeUnixNano"] = json!(ns.to_string());
        event
    };
    let folder = Folder::new();
    folder.write("kv_events.jsonl", json!([1_700_000_000.0, [begun(1, 0, 4, 5)], null, 5]).to_string() + "\n");
    let events = vec![
        summary(200, 9_000_000_000, (0, 0), 2),
        // The monotonic clock of another process.
        transfer("TransferCompleted", 1, 5_000_000, 4),
        transfer("TransferInitiated", 2, 7_000_000, 4),
        transfer("TransferCompleted", 2, 9_000_000, 4),
        transfer("TransferInitiated", 3, 0, 4),
        transfer("TransferInitiated", 4, 8_000_000, -4),
    ];
    folder.write(
        "traces.json",
        export(&[], "vllm.scheduler.step", vec![span("scheduler_steps", &[], events)]).to_string(),
    );
    let run = ingest(&folder, &["kv_events.jsonl", "traces.json"], &["--format", "json"]);
    let json = run.json();
    let faults = json["transfer_faults"].as_array().unwrap();
    assert_eq!((faults[0]["without_end"].as_u64(), faults[0]["without_begin"].as_u64()), (Some(1), Some(0)));
    assert_eq!((faults[1]["without_end"].as_u64(), faults[1]["without_begin"].as_u64()), (Some(0), Some(1)));
    assert_eq!(faults[1]["without_time"].as_u64(), Some(1));
    assert_eq!(json["transfers"][0]["count"].as_u64(), Some(2));
    assert!((json["transfers"][0]["median_time_us"].as_f64().unwrap() - 2000.0).abs() < 1.0);
    assert!(run.stderr.contains("1 KV events left out; the first: kv.num_blocks is -4"), "{}", run.stderr);
}

#[test]
fn one_reply_of_metrics_reports_hits_by_tier_since_the_start() {
    let folder = Folder::new();
    let reply = "# TYPE vllm:prefix_cache_queries_total counter\nprocess_start_time_seconds 1.5e+09\n\
        vllm:prefix_cache_queries_total{engine=\"0\"} 2000.0\nvllm:prefix_cache_hits_total{engine=\"0\"} 500.0\n\
        vllm:external_prefix_cache_queries_total{engine=\"0\"} 1500.0\nvllm:external_prefix_cache_hits_total{engine=\"0\"} 1200.0\n\
        vllm:kv_offload_load_size_count{engine=\"0\"} 4.0\nvllm:kv_offload_load_bytes_total{engine=\"0\"} 8e+06\n\
        vllm:kv_offload_load_time_total{engine=\"0\"} 0.002\n\
        vllm:cache_config_info{_block_size_resolved=\"True\",block_size=\"32\",engine=\"0\"} 1.0\n";
    folder.write("metrics.txt", reply);
    ingest(&folder, &["metrics.txt"], &[]).fails(1, &["or take all since the start (since_start)"]);
    let stored = json!([
        5.0,
        [["BlockStored", [1, 2], null, [], 32, null, "CPU"], ["BlockStored", [2], null, [], 32, null, "GPU"]]
    ]);
    folder.write("kv.jsonl", stored.to_string());
    let json = ingest(&folder, &["metrics.txt", "kv.jsonl"], &["--since-start", "--format", "json"]).json();
    let expected = json!([
        {"tier": "gpu", "source": "metrics", "queried_tokens": 2000.0, "hit_tokens": 500.0, "rate": 0.25},
        {"tier": "external", "source": "metrics", "queried_tokens": 1500.0, "hit_tokens": 1200.0, "rate": 0.8},
        {"tier": "cpu", "source": "kv_events", "queried_tokens": null, "hit_tokens": 32.0, "rate": null},
    ]);
    assert_eq!(json["cache_hits"], expected);
    let of = &json["transfers"][0];
    assert_eq!(
        (of["direction"].as_str(), of["count"].as_u64(), of["source"].as_str()),
        (Some("cpu_to_gpu"), Some(4), Some("metrics"))
    );
    assert_eq!(
        (of["mean_time_us"].as_f64(), of["mean_bytes_per_s"].as_f64(), of["latency_us"].as_f64()),
        (Some(500.0), Some(4e9), None)
    );
    folder.write("again.txt", reply);
    let two = ingest(&folder, &["metrics.txt", "again.txt"], &["--since-start"]);
    two.fails(1, &["again.txt: a second reply of /metrics"]);
}

#[test]
fn a_file_counts_once() {
    let folder = Folder::new();
    folder.write("events.jsonl", capture());
    let twice = ingest(&folder, &["events.jsonl", "./events.jsonl"], &[]);
    twice.fails(1, &["./events.jsonl: is named twice: name it once"]);
    experiment(&folder, &capture());
    ingest(&folder, &["exp", "exp/kv_events.jsonl"], &[]).fails(1, &["exp/kv_events.jsonl: is named twice"]);
}

#[test]
fn dumps_of_a_real_server_are_read_whole_and_agree_with_each_other() {
    let Some(data) = common::data_pack("transfers and hits of a real server") else { return };
    let files = ["offload_log.log", "metrics_offload.txt", "kv_events_offload.jsonl"];
    let files = files.map(|name| data.join("vllm-cpu").join(name).to_str().unwrap().to_owned());
    let folder = Folder::new();
    let mut args = vec!["ingest"];
    args.extend(files.iter().map(String::as_str));
    let out = folder.path("out");
    args.extend(["--since-start", "--format", "json", "--out", &out]);
    let json = cli_support::run(&args).json();
    let total = |name: &str| {
        let totals = json["metrics"].as_array().unwrap();
        totals.iter().find(|total| total["name"] == name).unwrap()["server"].as_f64().unwrap()
    };
    let hits: Vec<f64> = [0, 1].map(|at| json["cache_hits"][at]["hit_tokens"].as_f64().unwrap()).to_vec();
    assert!(((hits[0] + hits[1]) / total("cached_tokens") - 1.0).abs() < 0.01, "{hits:?}");
    let rates = [0, 1].map(|at| json["cache_hits"][at]["rate"].as_f64().unwrap());
    assert!((rates[0] / 0.3796 - 1.0).abs() < 0.01 && (rates[1] / 0.7283 - 1.0).abs() < 0.01, "{rates:?}");
    // A block of 32 tokens has 8 layers of 2 heads of 64 in bf16: what was loaded is what was found.
    let loaded = total("kv_load_bytes") / (8.0 * 2.0 * 2.0 * 64.0 * 2.0);
    assert!((loaded / hits[1] - 1.0).abs() < 0.01, "{loaded}");
    // The report counts every event of the dump, and the batches that the dump lacks.
    let text = std::fs::read_to_string(&files[2]).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: usize = lines.iter().map(|line| line["batch"][1].as_array().unwrap().len()).sum();
    let read = &json["kv_events"][0];
    let counted: u64 = read["events"].as_array().unwrap().iter().map(|of| of["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, events as u64);
    let numbers = lines[lines.len() - 1]["seq"].as_u64().unwrap() - lines[0]["seq"].as_u64().unwrap() + 1;
    assert_eq!(read["batches"].as_u64().unwrap() + read["lost_batches"].as_u64().unwrap(), numbers);
    for of in json["transfers"].as_array().unwrap().iter().filter(|of| of["source"] == "log") {
        let (mean, fitted) = (of["mean_bytes_per_s"].as_f64().unwrap(), of["bytes_per_s"].as_f64().unwrap());
        println!("{}: {} us, {fitted} B/s, {} to {}", of["direction"], of["latency_us"], of["lower"], of["upper"]);
        assert!(fitted >= mean * 0.99, "a latency only makes the bandwidth behind it higher: {of}");
    }
}
