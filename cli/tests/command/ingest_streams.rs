//! `ridgepoint ingest` of what an unmodified vLLM writes in addition to its traces.

use crate::cli_support;
use crate::ingest_support;

use crate::ingest::ingest;
use cli_support::Folder;
use ingest_support::{export, span, summary};
use serde_json::json;

const START_UP: &str = "\
(APIServer pid=7) INFO 01-02 03:04:05 [api_utils.py:286] non-default args: {'model': 'llama-3.1-8b', 'block_size': 32, 'max_num_seqs': 64}
(APIServer pid=7) INFO 01-02 03:04:05 [scheduler.py:307] Chunked prefill is enabled with max_num_batched_tokens=512.
(EngineCore pid=9) INFO 01-02 03:04:06 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='llama-3.1-8b', tensor_parallel_size=2, x
(EngineCore pid=9) INFO 01-02 03:04:07 [kv_cache_utils.py:2327] GPU KV cache size: 6,400 tokens, Maximum concurrency for 2,048 tokens: 3.1x
";

fn iteration(number: u64, elapsed: &str) -> String {
    format!(
        "(APIServer pid=7) INFO 01-02 03:04:08 [loggers.py:199] Engine 000: Iteration({number}): 2 context requests, 300 context \
         tokens, 5 generation requests, 5 generation tokens, iteration elapsed time: {elapsed} ms, GPU KV cache usage: 12.5%\n"
    )
}

#[test]
fn a_log_becomes_steps_with_labels_and_kv_blocks() {
    let folder = Folder::new();
    folder.write("vllm.log", START_UP.to_owned() + &iteration(200, "7.25") + "INFO: other\n" + &iteration(201, "8.00"));
    let run = ingest(&folder, &["vllm.log"], &["--hardware", "h100"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("200 KV blocks of 32 tokens"), "{}", run.stderr);
    assert!(run.stdout.contains("vllm-log") && run.stdout.contains("forward pass"), "{}", run.stdout);
    let table = folder.read("out/steps.csv");
    let row = table.lines().nth(1).unwrap();
    // 12.5 % of 200 blocks are in use.
    let expected = "vllm,llama-3.1-8b,h100,2,,vllm-0.32.0,64,512,200,0,2,5,300,5,,,,,,,200,175,7250.0,,1,7250.0,,";
    assert_eq!(row, expected);
}

#[test]
fn usage_without_a_number_of_blocks_is_said() {
    let folder = Folder::new();
    folder.write("vllm.log", iteration(200, "7.25") + &iteration(201, "8.00"));
    let run = ingest(&folder, &["vllm.log"], &["--since-start", "--kv-block-bytes", "5"]);
    for said in [
        "the KV cache usage of 2 iterations is not read",
        "--since-start changes nothing",
        "--kv-block-bytes changes nothing",
    ] {
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    }
    assert!(folder.read("out/steps.csv").lines().nth(1).unwrap().contains(",200,0,2,5,300,5,,,,,,,,,7250.0,"));
}

#[test]
fn a_log_that_holds_no_steps_or_broken_ones_is_refused() {
    for (text, parts) in [
        (START_UP.to_owned(), ["has no line with Iteration(N)", "--enable-logging-iteration-details"]),
        (iteration(7, "fast"), ["vllm.log: line 1", "'iteration elapsed time: fast ms', expected a time in ms"]),
        (
            iteration(200, "1").replace("300", "1"),
            ["vllm.log: line 1", "1 context tokens, expected at least one for each"],
        ),
    ] {
        let folder = Folder::new();
        folder.write("vllm.log", text);
        ingest(&folder, &["vllm.log"], &[]).fails(1, &parts);
        assert_eq!(folder.names(), ["vllm.log"]);
    }
}

#[test]
fn transfers_of_a_log_are_reported() {
    let folder = Folder::new();
    let line = "(APIServer pid=7) INFO 01-02 03:04:08 [metrics.py:103] KV Transfer metrics: vllm:kv_offload_load_bytes=4000, \
                vllm:kv_offload_load_time=0.5, vllm:kv_offload_load_size_count=2\n";
    folder.write("vllm.log", START_UP.to_owned() + line);
    let json = ingest(&folder, &["vllm.log"], &["--format", "json"]).json();
    let of = &json["transfers"][0];
    assert_eq!((of["direction"].as_str(), of["count"].as_u64()), (Some("cpu_to_gpu"), Some(2)));
    assert_eq!((of["mean_time_us"].as_f64(), of["mean_bytes_per_s"].as_f64()), (Some(250_000.0), Some(8000.0)));
    assert!(of["latency_us"].is_null() && of["bytes_per_s"].is_null(), "a single line determines no fixed time: {of}");
    assert_eq!(folder.names(), ["vllm.log"]);
}

#[test]
fn kv_events_of_either_kind_are_counted() {
    let stored = json!({"type": "BlockStored", "block_hashes": [1, 2], "parent_block_hash": null, "token_ids": [5, 6, 7, 8],
        "block_size": 2, "lora_id": null, "medium": "GPU", "colour": 5});
    let line = |seq: u64, events: &serde_json::Value| {
        json!({"topic": "kv", "seq": seq, "batch": [10.0 + seq as f64, events, 0]}).to_string() + "\n"
    };
    let other = json!([["BlockStored", [2], 9, [], 2, null, "GPU"], ["BlockStored", [1], null, [], 2, null, "GPU"]]);
    let folder = Folder::new();
    folder.write("kv_events.jsonl", line(0, &json!([stored])) + &line(3, &other));
    let run = ingest(&folder, &["kv_events.jsonl"], &["--format", "json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("names and keys of KV events that are not read: colour (1)"), "{}", run.stderr);
    let of = &run.json()["kv_events"][0];
    let expected = json!([{"event": "BlockStored", "medium": "GPU", "count": 3, "blocks": 4, "tokens": 4}]);
    assert_eq!(of["events"], expected);
    for (key, count) in [("batches", 2), ("lost_batches", 2), ("unknown_parents", 1), ("other_parents", 1)] {
        assert_eq!(of[key].as_u64(), Some(count), "{key}: {of}");
    }
    assert_eq!(of["duration_s"].as_f64(), Some(3.0));
    let table = ingest(&folder, &["kv_events.jsonl"], &[]);
    assert!(table.stdout.contains("1 blocks with another parent than before"), "{}", table.stdout);

    folder.write("bad.jsonl", line(0, &other) + "[1.5, [[7]]]\n");
    ingest(&folder, &["bad.jsonl"], &[]).fails(1, &["bad.jsonl: line 2", "an event has no name: [7]"]);
    assert_eq!(folder.names(), ["bad.jsonl", "kv_events.jsonl"]);
}

#[test]
fn a_dump_of_kv_events_is_known_by_its_bytes() {
    let payload = b"\x92\xcb\x40\x24\0\0\0\0\0\0\x91\x93\xacBlockRemoved\x92\x01\xc4\x02\x01\xff\xa3GPU";
    let mut dump = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
    dump.extend_from_slice(payload);
    let folder = Folder::new();
    std::fs::write(folder.path("kv.raw"), &dump).unwrap();
    let json = ingest(&folder, &["kv.raw"], &["--format", "json"]).json();
    assert_eq!(json["files"][0]["format"].as_str(), Some("kv-event-dump"));
    let expected = json!([{"event": "BlockRemoved", "medium": "GPU", "count": 1, "blocks": 2, "tokens": 0}]);
    assert_eq!(json["kv_events"][0]["events"], expected);

    dump.extend_from_slice(&[0, 0, 0, 9, 0x92]);
    std::fs::write(folder.path("kv.raw"), &dump).unwrap();
    let cut = ingest(&folder, &["kv.raw"], &[]);
    assert!(cut.code == 0 && cut.stderr.contains("the last batch is cut short"), "{}", cut.stderr);
    dump[4] = 0xa1;
    std::fs::write(folder.path("kv.raw"), &dump).unwrap();
    ingest(&folder, &["kv.raw"], &["--input-format", "kv-event-dump"]).fails(1, &["kv.raw: batch 1"]);
}

#[test]
fn metrics_before_and_after_stand_beside_the_rows() {
    let reply = |requests: u64, tokens: u64| {
        format!(
            "# TYPE vllm:request_success_total counter\nprocess_start_time_seconds 1.5e+09\n\
             vllm:request_success_total{{engine=\"0\",finished_reason=\"stop\"}} {requests}.0\n\
             vllm:prompt_tokens_total{{engine=\"0\"}} {tokens}.0\nvllm:estimated_flops_per_gpu_total{{engine=\"0\"}} {tokens}e+09\n"
        )
    };
    let folder = Folder::new();
    folder.write("before.txt", reply(10, 1000));
    folder.write("after.txt", reply(12, 1700));
    let request = |at: u64| {
        json!({"arrival_ms": at, "ttft_ms": 5.0, "prompt_tokens": 300, "output_tokens": 1}).to_string() + "\n"
    };
    folder.write("capture.jsonl", request(0) + &request(7));
    let files = ["capture.jsonl", "before.txt", "after.txt"];
    let run = ingest(&folder, &files, &["--format", "json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let total = |name: &str| {
        let json = run.json();
        json["metrics"].as_array().unwrap().iter().find(|total| total["name"] == name).cloned().unwrap()
    };
    assert_eq!(total("requests"), json!({"name": "requests", "server": 2.0, "rows": 2.0}));
    assert_eq!(total("prompt_tokens"), json!({"name": "prompt_tokens", "server": 700.0, "rows": 600.0}));
    assert_eq!(total("estimated_flops_per_gpu")["server"].as_f64(), Some(7e11));
    let table = ingest(&folder, &["before.txt", "after.txt"], &[]);
    assert!(table.code == 0 && table.stdout.contains("prompt tokens"), "{}{}", table.stdout, table.stderr);
    ingest(&folder, &["before.txt"], &[]).fails(1, &["before.txt", "name the reply from before the run as well"]);
    folder.write("odd.txt", "# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total x\n");
    ingest(&folder, &["odd.txt", "after.txt"], &[]).fails(1, &["odd.txt: line 2", "is 'x', expected a number from 0"]);
}

#[test]
fn an_experiment_folder_is_taken_as_a_whole() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("exp/results")).unwrap();
    let config =
        "model: llama-2-7b\nhardware: H100\ntensor_parallelism: 1\nmax_num_seqs: 64\nmax_num_batched_tokens: 2048\n";
    folder.write("exp/exp-config.yaml", config);
    folder.write("exp/profile.yaml", "load: {}\n");
    folder.write("exp/vllm.log", START_UP.replace("llama-3.1-8b", "elsewhere") + &iteration(200, "7.25"));
    let spans: Vec<_> = (200..205).map(|id| summary(id, 20_000_000 * id, (0, 0), 8)).collect();
    let step = export(&[], "vllm.scheduler.step", vec![span("scheduler_steps", &[], spans)]);
    folder.write("exp/traces.json", step.to_string());
    folder.write("exp/kv_events.jsonl", "[1.5, [[\"BlockRemoved\", [1], \"GPU\"]], null, 3]\n");
    let request = json!([{"start_time": 1.0, "end_time": 2.0, "request": "{}", "response": "",
        "info": {"input_tokens": 5, "output_tokens": 2, "output_token_times": [1.5, 2.0]}}]);
    folder.write("exp/results/per_request_lifecycle_metrics.json", request.to_string());
    let more = ["--keep-preemptions", "--format", "json"];
    let run = ingest(&folder, &["exp"], &more);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let json = run.json();
    let runs: Vec<_> = json["runs"].as_array().unwrap().iter().map(|of| of["experiment"].as_str().unwrap()).collect();
    assert_eq!(runs, ["exp", "exp/client", "exp/log"]);
    for of in json["runs"].as_array().unwrap() {
        let labels = (of["model"].as_str(), of["hardware"].as_str(), of["max_num_seqs"].as_u64());
        assert_eq!(labels, (Some("llama-2-7b"), Some("H100"), Some(64)), "{of}");
    }
    assert_eq!(json["kv_events"][0]["batches"].as_u64(), Some(1));
    for name in ["traces.json", "vllm.log", "kv_events.jsonl", "results/per_request_lifecycle_metrics.json"] {
        std::fs::remove_file(folder.path(&format!("exp/{name}"))).unwrap();
    }
    ingest(&folder, &["exp"], &["--force"]).fails(1, &["has exp-config.yaml and none of the files", "traces.json"]);
}

#[test]
fn the_log_of_one_server_labels_the_runs_of_other_files() {
    let folder = Folder::new();
    folder.write("vllm.log", START_UP);
    let request = r#"{"arrival_ms": 1, "ttft_ms": 2, "itl_ms": [3], "prompt_tokens": 9, "output_tokens": 2}"#;
    folder.write("night.jsonl", request.to_owned() + "\n");
    let run = ingest(&folder, &["vllm.log", "night.jsonl"], &["--hardware", "h100"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stderr.contains("night.jsonl: labels that it lacks are those of the server's log 'vllm'"),
        "{}",
        run.stderr
    );
    let table = folder.read("out/requests.csv");
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with("night,llama-3.1-8b,h100,2,,vllm-0.32.0,64,512,line-0,1000000,"), "{row}");

    folder.write("other.jsonl", format!("{{\"meta\": {{\"tp\": 4}}}}\n{request}\n"));
    let run = ingest(&folder, &["vllm.log", "other.jsonl"], &["--hardware", "h100", "--force"]);
    assert_eq!(run.code, 1);
    let problem = "tensor_parallel_size of the run 'other' is 4, and 2 in the server's log: leave the log out";
    assert!(run.stderr.contains(problem), "{}", run.stderr);
}

#[test]
fn each_process_of_a_log_is_a_run_of_its_own() {
    let line = |process: &str| iteration(200, "7.25").replace("APIServer pid=7", process).replace("Engine 000: ", "");
    let folder = Folder::new();
    folder.write("vllm.log", line("EngineCore_DP0 pid=8") + &line("EngineCore_DP1 pid=9"));
    let run = ingest(&folder, &["vllm.log"], &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let table = folder.read("out/steps.csv");
    let names: Vec<&str> = table.lines().skip(1).filter_map(|row| row.split(',').next()).collect();
    assert_eq!(names, ["vllm/0", "vllm/1"], "{table}");
}

#[test]
fn a_second_meta_line_is_refused_and_a_request_beside_the_first_counts() {
    let request = "\"prompt_tokens\":9,\"output_tokens\":2,\"ttft_ms\":5,\"itl_ms\":[3],\"arrival_ms\":1";
    let folder = Folder::new();
    let meta = |model: &str| format!("\"meta\":{{\"model\":\"{model}\"}}");
    folder.write("one.jsonl", format!("{{{},{request}}}\n{{{request}}}\n", meta("llama-3.1-8b")));
    assert_eq!(ingest(&folder, &["one.jsonl"], &[]).code, 0);
    assert_eq!(folder.read("out/requests.csv").lines().count(), 3);
    folder.write("two.jsonl", format!("{{{}}}\n{{{request}}}\n{{{}}}\n{{{request}}}\n", meta("a"), meta("b")));
    let run = ingest(&folder, &["two.jsonl"], &["--force"]);
    assert!(run.code == 1 && run.stderr.contains("line 3: a second meta"), "{}", run.stderr);
}
