//! `ridgepoint simulate` with KV blocks in host memory.

use crate::cli_support;

use cli_support::{Folder, simulate};

const SERVER: &str = "--model llama-3.1-8b --hardware h100 --num-gpu-blocks-override 40 --max-model-len 500";

/// Prompts of 30 blocks each: A, then B, then A again.
const LOAD: &str =
    "arrival,input_len,output_len,prefix_group,prefix_len\n0,480,4,a,480\n10,480,4,b,480\n20,480,4,a,480\n";

/// Of 39 blocks, B takes 31: the 8 that A never used, and 23 from A's end. A finds its first 8 on the GPU and loads the other 22, each of
/// 2 MiB, in 20 µs + 22 · 2 MiB / (0.85 · 64 GB/s) = 868.1 µs.
#[test]
fn a_prompt_that_the_gpu_has_lost_is_loaded_from_the_host() {
    let folder = Folder::new();
    let load = folder.write("aba.csv", LOAD);
    let json = simulate(&format!("{SERVER} --requests {load} --kv-offloading-size 1 --format json")).json();
    let tier = &json["kv_offload"];
    assert_eq!((&tier["num_cpu_blocks"], &tier["block_bytes"]), (&512.into(), &2_097_152.into()));
    assert_eq!((&tier["loads"]["count"], &tier["loads"]["blocks"]), (&1.into(), &22.into()));
    assert_eq!((&tier["loads"]["bytes"], &tier["stores"]["blocks"]), (&46_137_344.into(), &60.into()));
    assert_eq!(tier["loads"]["time_ns"], 868_113);
    // All but the last of its 480 tokens are there, and 22 · 16 of them came from the host.
    assert_eq!((&json["counters"]["cached_tokens"], &tier["hit_tokens"]), (&479.into(), &352.into()));
    // Without the tier 8 blocks are found: 480 + 480 + 352 tokens are computed, with it one of the last prompt.
    let computed = |server: &str| tier[server]["prefill_tokens"].as_u64().unwrap();
    assert_eq!((computed("without_tier"), computed("with_tier")), (1312, 961));
    let ms = |of: &str| tier["break_even"][of].as_f64().unwrap();
    assert!(ms("load_ms") < ms("saved_ms") && ms("tokens") >= 16.0, "{tier}");

    let table = simulate(&format!("{SERVER} --requests {load} --kv-offloading-size 1")).stdout;
    for part in ["512 blocks on the host, 1.00 GiB", "1 loads of 0.04 GiB", "a load pays from", "without"] {
        assert!(table.contains(part), "{part} in {table}");
    }
    assert!(!json["warnings"].to_string().contains("nothing was loaded"), "{}", json["warnings"]);
    // A tier of one block holds nothing until A comes again.
    let one = r#"{"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"num_cpu_blocks":1}}"#;
    let json = simulate(&format!("{SERVER} --requests {load} --kv-transfer-config {one} --format json")).json();
    assert!(json["warnings"].to_string().contains("nothing was loaded from the host's tier of 1 block"), "{json}");
    // vLLM's own form of the tier, and measured times: 100 µs and 10 GB/s.
    let rates = r#"{"gpu_to_cpu": {"latency_us": 5, "bytes_per_s": 1e9}, "cpu_to_gpu": {"latency_us": 100, "bytes_per_s": 1e10}, "contention": 0.5}"#;
    let rates = folder.write("rates.json", rates);
    let config = folder.write(
        "server.yaml",
        "model: llama-3.1-8b\nhardware: h100\nkv_transfer_config: {kv_connector: OffloadingConnector, kv_role: kv_both, kv_connector_extra_config: {cpu_bytes_to_use: 1073741824}}\n",
    );
    let line = format!(
        "--config {config} --num-gpu-blocks-override 40 --max-model-len 500 --requests {load} --kv-transfers {rates} --format json"
    );
    let tier = simulate(&line).json()["kv_offload"].clone();
    assert_eq!((&tier["num_cpu_blocks"], &tier["contention"]), (&512.into(), &0.5.into()));
    assert_eq!(tier["loads"]["time_ns"], 4_713_735, "100 µs + 46,137,344 B / 10 GB/s, to the next whole ns");
}

#[test]
fn tiers_that_are_not_modelled_are_reported() {
    let fails = |code, line: &str, said: &[&str]| {
        simulate(&format!("{SERVER} --request-rate 1 --num-requests 2 --input-len 100 --output-len 2 {line}"))
            .fails(code, said);
    };
    fails(2, "--kv-offloading-size -1", &["--kv-offloading-size", "at least 0"]);
    fails(2, "--kv-offloading-size nan", &["--kv-offloading-size"]);
    fails(1, "--kv-offloading-size 0.0001", &["0.0001 GiB", "holds no KV block", "0.0020 GiB"]);
    fails(
        1,
        r#"--kv-transfer-config {"kv_connector":"LMCacheConnectorV1"}"#,
        &["LMCacheConnectorV1", "only OffloadingConnector"],
    );
    fails(
        1,
        r#"--kv-transfer-config {"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"num_cpu_blocks":9,"cpu_bytes_to_use":1e9}}"#,
        &["has both num_cpu_blocks and cpu_bytes_to_use", "keep one"],
    );
    fails(
        1,
        r#"--kv-transfer-config {"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"cpu_bytes_to_use":1000}}"#,
        &["cpu_bytes_to_use", "1000", "holds no KV block: one takes 2097152 bytes"],
    );
    fails(1, "--kv-transfer-config {}", &["names no kv_connector", "cpu_bytes_to_use"]);
    fails(1, "--kv-transfer-config [", &["must be an object or its JSON"]);
    fails(
        1,
        "--kv-offloading-size 4 --no-enable-prefix-caching",
        &["not modelled together with enable_prefix_caching"],
    );
    fails(1, "--kv-offloading-size 4 --kv-transfers no-such.json", &["no-such.json"]);
    let folder = Folder::new();
    let bad = folder.write("bad.json", r#"{"gpu_to_cpu": {"latency_us": -1, "bytes_per_s": 1}, "cpu_to_gpu": {"latency_us": 0, "bytes_per_s": -5}, "contention": 2}"#);
    let line = format!("--kv-offloading-size 4 --kv-transfers {bad}");
    fails(1, &line, &["bad.json", "gpu_to_cpu.latency_us = -1", "cpu_to_gpu.bytes_per_s = -5", "contention = 2"]);
}
