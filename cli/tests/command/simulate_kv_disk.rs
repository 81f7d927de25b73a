//! `ridgepoint simulate` with KV blocks on a disk behind host memory.

use crate::cli_support;

use cli_support::{Folder, simulate};

/// Prompts of 30 blocks each: A, then B, then A again. B lives long enough to find room on the host once A's blocks are written.
const LOAD: &str =
    "arrival,input_len,output_len,prefix_group,prefix_len\n0,480,4,a,480\n10,480,20,b,480\n20,480,4,a,480\n";

/// A server of 40 blocks with a host's tier of 31 and these tiers behind it.
fn server(tiers: &str) -> String {
    let extra = format!(r#"{{"spec_name":"TieringOffloadingSpec","num_cpu_blocks":31,"secondary_tiers":{tiers}}}"#);
    let config =
        format!(r#"{{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":{extra}}}"#);
    format!(
        "--model llama-3.1-8b --hardware h100 --num-gpu-blocks-override 40 --max-model-len 500 --kv-transfer-config {config}"
    )
}

/// B takes the 8 blocks that A never used and 24 from A's end, and A's blocks on the host. A finds its first 7 blocks on the GPU; the
/// other 23, each of 2 MiB, are read in 100 µs + 23 · 2 MiB / (7 GB/s) = 6,990.6 µs.
#[test]
fn a_prompt_that_gpu_and_host_have_lost_is_read_from_the_disk() {
    let folder = Folder::new();
    let load = folder.write("aba.csv", LOAD);
    let line = format!(r#"{} --requests {load}"#, server(r#"[{"type":"fs","root_dir":"/kv","n_read_threads":16}]"#));
    let (trace, otlp, rows) = (folder.path("trace.json"), folder.path("otlp.jsonl"), folder.path("rows.csv"));
    let outputs = format!("--trace {trace} --output-otlp {otlp} --output-csv {rows}");
    let json = simulate(&format!("{line} {outputs} --kv-metrics --format json")).json();
    let (tier, disk) = (&json["kv_offload"], &json["kv_offload"]["disk"]);
    assert_eq!((&disk["block_bytes"], &disk["num_disk_blocks"]), (&2_097_152.into(), &serde_json::Value::Null));
    assert_eq!((&disk["reads"]["count"], &disk["reads"]["blocks"]), (&1.into(), &23.into()));
    assert_eq!((&disk["reads"]["bytes"], &disk["reads"]["time_ns"]), (&48_234_496.into(), &6_990_643.into()));
    assert_eq!((&tier["loads"]["blocks"], &tier["hit_tokens"]), (&23.into(), &368.into()));
    assert_eq!((&disk["hit_tokens"], &json["kv_metrics"]["hits"]["disk_hit_tokens"]), (&368.into(), &368.into()));
    assert_eq!(json["kv_metrics"]["hits"]["host_hit_tokens"], 0);
    // Without the disk the 7 blocks on the GPU are found, and 480 − 112 tokens computed anew.
    let computed = |of: &serde_json::Value| of["prefill_tokens"].as_u64().unwrap();
    assert_eq!((computed(&tier["with_tier"]), computed(&disk["without_disk"])), (480 + 480 + 1, 480 + 480 + 368));
    // This model pays for a read from some thousands of tokens on, beyond what fits: 30 blocks take 9.1 ms to read.
    let (host, longest) = (&tier["longest"], &disk["longest"]);
    let read_ms = longest["load_ms"].as_f64().unwrap() - host["load_ms"].as_f64().unwrap();
    assert!(disk["break_even"].is_null() && host["tokens"] == 480, "{disk}");
    assert!((read_ms - (0.1 + 30.0 * 2.097_152 / 7.0)).abs() < 1e-9, "{read_ms}");
    let warnings = json["warnings"].to_string();
    for part in ["vLLM 0.32.0's TieringOffloadingManager", "vLLM 0.19.0's", "7.00 GB/s", "datasheet figures"] {
        assert!(warnings.contains(part), "{part} in {warnings}");
    }
    let written = |path: &str| std::fs::read_to_string(path).unwrap();
    assert!(written(&trace).contains("reads from the disk") && written(&trace).contains("writes to the disk"));
    assert!(written(&otlp).contains("STORAGE"));
    // The wait for the read is part of the wait for KV blocks: 6.99 ms and the load's.
    let third = written(&rows).lines().nth(3).unwrap().to_owned();
    let wait_ms: f64 = third.rsplit(',').next().unwrap().parse().unwrap();
    assert!(third.contains(",368,") && wait_ms > 6.99 + 0.9, "{third}");

    let table = simulate(&line).stdout;
    for part in ["disk tier  ", "1 reads of 0.04 GiB", "a read never pays", "without disk", "with no limit"] {
        assert!(table.contains(part), "{part} in {table}");
    }
    // Measured times: 1 ms and 1 GB/s.
    let rates = r#"{"gpu_to_cpu": {"latency_us": 5, "bytes_per_s": 1e10}, "cpu_to_gpu": {"latency_us": 5, "bytes_per_s": 1e10}, "contention": 1, "disk_to_cpu": {"latency_us": 1000, "bytes_per_s": 1e9}, "cpu_to_disk": {"latency_us": 0, "bytes_per_s": 1e10}}"#;
    let rates = folder.write("rates.json", rates);
    let measured = simulate(&format!("{line} --kv-transfers {rates} --format json")).json();
    let disk = &measured["kv_offload"]["disk"];
    assert_eq!((&disk["reads"]["time_ns"], &disk["is_assumed"]), (&49_234_496.into(), &false.into()));
    // A disk of 31 blocks drops A's for B's, which are written when the engine runs again, for a short prompt.
    let load = folder.write("abca.csv", LOAD.replace("20,480", "15,16,1,c,16\n20,480"));
    let small = server(r#"[{"type":"fs","root_dir":"/kv","num_disk_blocks":31}]"#);
    let small = simulate(&format!("{small} --requests {load} --kv-transfers {rates} --format json")).json();
    let disk = &small["kv_offload"]["disk"];
    assert!(disk["evicted_blocks"].as_u64().unwrap() >= 30, "{disk}");
    assert_eq!((&disk["max_blocks_in_use"], &disk["reads"]["count"]), (&31.into(), &0.into()));
}

#[test]
fn disks_that_are_not_modelled_are_reported() {
    let fails = |tiers: &str, said: &[&str]| {
        simulate(&format!("{} --request-rate 1 --num-requests 2 --input-len 100 --output-len 2", server(tiers)))
            .fails(1, said);
    };
    fails(r#"[{"type":"p2p","root_dir":"/kv"}]"#, &["type = \"p2p\" in secondary_tiers", "fs is modelled"]);
    let fs = r#"{"type":"fs","root_dir":"/kv"}"#;
    fails(&format!("[{fs},{fs}]"), &["secondary_tiers with 2 tiers", "one of the type fs"]);
    fails(r#"[{"type":"fs"}]"#, &["gives no root_dir"]);
    let with = |key: &str, value: &str| format!(r#"[{{"type":"fs","root_dir":"/kv","{key}":{value}}}]"#);
    fails(&with("n_read_threads", "0"), &["n_read_threads = 0", "from 1 to 4096"]);
    fails(&with("n_write_threads", "1.5"), &["n_write_threads = 1.5", "whole number"]);
    fails(&with("num_disk_blocks", "-3"), &["num_disk_blocks = -3", "leave it out for a disk without a limit"]);
    fails(&with("backpressure", "{}"), &["backpressure = {}", "not modelled"]);
    fails(&with("bandwidth", "7"), &["bandwidth = 7", "n_read_threads"]);
    fails("7", &["secondary_tiers = 7", "list with one tier"]);
    let without_spec = server(&format!("[{fs}]")).replace("TieringOffloadingSpec", "CPUOffloadingSpec");
    simulate(&format!("{without_spec} --request-rate 1 --num-requests 2 --input-len 100 --output-len 2"))
        .fails(1, &["secondary_tiers without the spec_name TieringOffloadingSpec"]);
}
