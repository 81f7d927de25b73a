//! `cold-start`, and `simulate --cold`.

use serde_json::Value;

use crate::cli_support::{Folder, Run, run, simulate};

fn cold_start(line: &str) -> Run {
    let mut args = vec!["cold-start", "--efficiency", "ideal", "--model", "llama-3.1-8b", "--hardware", "h100"];
    args.extend(line.split_ascii_whitespace());
    run(&args)
}

fn term<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["terms"].as_array().unwrap().iter().find(|term| term["term"] == name).unwrap()
}

fn seconds(of: &Value) -> f64 {
    of["estimate_s"].as_f64().unwrap()
}

/// A complete start of vLLM 0.15 whose times are `disk_s` and `inductor_s`, and round numbers.
fn log(model: &str, disk_s: f64, inductor_s: f64) -> String {
    let engine_s = 5.0 + inductor_s + 9.0;
    let compile_s = 5.0 + inductor_s;
    format!(
        "(APIServer pid=1) INFO 03-01 10:00:00 [api_server.py:1] vLLM API server version 0.15.1\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:00:09 [core.py:1] Initializing a V1 LLM engine (v0.15.1) with config: model='{model}', \
         max_seq_len=8192, tensor_parallel_size=1, pipeline_parallel_size=1, enforce_eager=False\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:00:18 [gpu_model_runner.py:1] Starting to load model {model}...\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:00:30 [default_loader.py:1] Loading weights took {disk_s:.2} seconds\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:00:31 [gpu_model_runner.py:1] Model loading took 14.99 GiB memory and {:.6} seconds\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:00:36 [backends.py:1] Dynamo bytecode transform time: 5.00 s\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:00:50 [backends.py:1] Compiling a graph for compile range (1, 8192) takes 9.00 s\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:00:50 [monitor.py:1] torch.compile takes {compile_s:.2} s in total\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:00:52 [gpu_worker.py:1] Available KV cache memory: 55.25 GiB\n\
         Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|###| 51/51 [00:04<00:00, 12.75it/s]\n\
         Capturing CUDA graphs (decode, FULL): 100%|###| 35/35 [00:02<00:00, 17.50it/s]\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:00:59 [gpu_model_runner.py:1] Graph capturing finished in 6 secs, took 0.50 GiB\n\
         (EngineCore_DP0 pid=2) INFO 03-01 10:01:00 [core.py:1] init engine (profile, create kv cache, warmup model) took {engine_s:.2} seconds\n\
         (APIServer pid=1) INFO 03-01 10:01:04 [entry.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000\n",
        disk_s + 1.0
    )
}

#[test]
fn six_terms_are_predicted() {
    let report = cold_start("--storage-gb-s 7 --format json").json();
    let names: Vec<&str> =
        report["terms"].as_array().unwrap().iter().map(|term| term["term"].as_str().unwrap()).collect();
    assert_eq!(names, ["storage", "host_to_device", "runtime_warm_up", "kv_and_buffers", "first_prefill", "queueing"]);
    let storage = term(&report, "storage");
    // 16.06 GB at 7 GB/s.
    assert!((seconds(storage) - 16.060_522_496 / 7.0).abs() < 1e-9, "{storage}");
    assert_eq!((&storage["source"], &report["storage"]), (&"physics".into(), &"7 GB/s".into()));
    assert_eq!(term(&report, "runtime_warm_up")["source"], "assumed");
    let sum: f64 = report["terms"].as_array().unwrap().iter().map(seconds).sum();
    assert!((seconds(&report["first_token"]) / sum - 1.0).abs() < 1e-9);
    assert!(report["ready"]["upper_s"].as_f64().unwrap() > seconds(&report["ready"]));
    let graphs = term(&report, "runtime_warm_up")["parts"].as_array().unwrap();
    let of = |name: &str| graphs.iter().find(|part| part["name"] == name).unwrap()["graphs"].as_u64();
    assert_eq!((of("piecewise_graphs"), of("full_graphs")), (Some(51), Some(51)));

    let table = cold_start("--storage page-cache --compile-cache warm");
    assert_eq!(table.code, 0, "{}", table.stderr);
    for text in ["host_to_device", "  piecewise_graphs", "ready", "first token", "51 graphs of 32 layers", "page-cache"]
    {
        assert!(table.stdout.contains(text), "{text} is not in {}", table.stdout);
    }
    assert!(!table.stdout.contains("inductor"), "{}", table.stdout);
}

#[test]
fn logs_are_fitted_and_the_file_is_read_again() {
    let folder = Folder::new();
    let logs: Vec<String> = [(12.0, 40.0), (11.0, 44.0), (13.0, 42.0)]
        .into_iter()
        .enumerate()
        .map(|(at, (disk_s, inductor_s))| {
            folder.write(&format!("{at}.log"), log("meta-llama/Llama-3.1-8B", disk_s, inductor_s))
        })
        .collect();
    let out = folder.path("starts.toml");
    let line = format!("--log {} --out {out} --format json", logs.join(" "));
    let report = cold_start(&line).json();
    let starts = report["logs"]["starts"].as_array().unwrap();
    assert_eq!((starts.len(), starts[0]["ready_s"].as_f64()), (3, Some(64.0)));
    assert_eq!(starts[0]["not_found"], Value::Array(Vec::new()));
    let measured = starts[0]["measured"].as_array().unwrap();
    let weights = measured.iter().find(|of| of["quantity"] == "weights").unwrap();
    assert_eq!(weights["measured_s"].as_f64(), Some(12.0));
    assert_eq!(weights["terms"], serde_json::json!(["storage", "host_to_device"]));
    let inductor = |report: &Value| {
        let parts = term(report, "runtime_warm_up")["parts"].as_array().unwrap().clone();
        parts.into_iter().find(|part| part["name"] == "inductor").unwrap()
    };
    let part = inductor(&report);
    assert_eq!(part["source"], "fitted");
    assert!((40.0..44.0).contains(&seconds(&part)), "{part}");

    let again = cold_start(&format!("--fitted {out} --format json")).json();
    assert_eq!((inductor(&again), &again["storage"]), (part, &"nvme".into()));
    assert_eq!(again["ready"], report["ready"]);
    let other = cold_start(&format!("--fitted {out} --storage network --format json")).json();
    assert_eq!(term(&other, "storage")["source"], "assumed");
    assert!(other["warnings"].to_string().contains("the rate of network is assumed"), "{}", other["warnings"]);

    let table = cold_start(&format!("--log {}", logs.join(" ")));
    for text in ["weights", "12.0", "inductor_s", "ready after 64.0 s", "14.99 GiB", "scatter"] {
        assert!(table.stdout.contains(text), "{text} is not in {}", table.stdout);
    }
    // Another file is not replaced.
    let foreign = folder.write("mine.toml", "a = 1\n");
    cold_start(&format!("--log {} --out {foreign}", logs[0])).fails(1, &["mine.toml: is there already"]);
    assert_eq!(folder.read("mine.toml"), "a = 1\n");
}

#[test]
fn logs_without_a_start_are_refused() {
    let folder = Folder::new();
    let whole = log("meta-llama/Llama-3.1-8B", 12.0, 40.0);
    let none =
        folder.write("none.log", "(APIServer pid=1) INFO 03-01 10:00:00 [loggers.py:1] Engine 000: Running: 0 reqs\n");
    let twice = folder.write("whole.log", &whole);
    cold_start(&format!("--log {twice} {twice}")).fails(1, &["whole.log: is given twice"]);
    cold_start("--storage-gb-s 1e300").fails(2, &["must be a number from 0.001 to 100000"]);
    let cut = folder.write("cut.log", &whole[..whole.find("Capturing").unwrap()]);
    let other = folder.write("other.log", whole.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B"));
    let out = folder.path("starts.toml");
    cold_start(&format!("--log {none} {cut} --out {out}")).fails(
        1,
        &["none.log: has no start-up line of vLLM", "cut.log: ends after torch.compile: the line 'init engine"],
    );
    cold_start(&format!("--log {other} --out {out}"))
        .fails(1, &["other is of the model 'Qwen/Qwen3-8B', not of llama-3.1-8b"]);
    assert!(!folder.names().contains(&"starts.toml".to_owned()));
    cold_start("--log missing.log").fails(1, &["missing.log"]);
    cold_start(&format!("--fitted {none}")).fails(1, &["none.log"]);
    cold_start("--out somewhere.toml").fails(2, &["--log"]);
    cold_start("--storage tape").fails(2, &["page-cache"]);
    cold_start("--storage nvme --storage-gb-s 3").fails(2, &["--storage-gb-s"]);
    cold_start("--input-len 0").fails(2, &["--input-len"]);
    cold_start("--max-num-batched-tokens 1 --input-len 5000").fails(1, &["1024 steps of max_num_batched_tokens = 1"]);
}

const LOAD: &str = "--model llama-3.1-8b --hardware h100 --request-rate 2 --num-requests 300 --input-len 256 --output-len 8 --format json";

#[test]
fn a_load_waits_for_a_server_that_starts() {
    let warm = simulate(LOAD).json();
    assert!(warm.get("cold").is_none());
    let cold = simulate(&format!("{LOAD} --cold --storage page-cache")).json();
    let start = &cold["cold"];
    let ready_s = seconds(&start["ready_at"]);
    assert_eq!(start["ready_at"], start["ready"]);
    let (waited, later) = (&start["waited"], &start["later"]);
    assert_eq!(waited["requests"].as_u64().unwrap() + later["requests"].as_u64().unwrap(), 300);
    // The load takes 150 s, so that both kinds are there.
    let ttft = |of: &Value, figure: &str| of["ttft_ms"][figure].as_f64().unwrap();
    assert!(ttft(waited, "max") <= 1000.0 * ready_s + 2000.0 && ttft(waited, "max") > 800.0 * ready_s, "{waited}");
    assert!(ttft(later, "p50") < 100.0, "{later}");
    let all = cold["stages"][0]["ttft_ms"]["mean"].as_f64().unwrap();
    assert!(all > 20.0 * warm["stages"][0]["ttft_ms"]["mean"].as_f64().unwrap());
    assert!(!cold["warnings"].to_string().contains("does not keep up"), "{}", cold["warnings"]);

    let table = simulate(&format!("{} --cold", LOAD.replace(" --format json", "")));
    for text in ["ready ", "waited for the start", "came later", "runtime_warm_up", "TTFT mean ms"] {
        assert!(table.stdout.contains(text), "{text} is not in {}", table.stdout);
    }
}

#[test]
fn a_replica_that_is_added_leaves_earlier_requests_to_others() {
    let cold = simulate(&format!("{LOAD} --cold --scale-up-at 30 --storage page-cache --compile-cache warm")).json();
    let start = &cold["cold"];
    let count = |of: &Value| of["requests"].as_u64().unwrap();
    let left_out = start["left_out"].as_u64().unwrap();
    assert!((30..90).contains(&left_out), "about 60 of 300 requests are sent in 30 s: {left_out}");
    assert_eq!(left_out + count(&start["waited"]) + count(&start["later"]), 300);
    assert_eq!(cold["stages"][0]["requests"].as_u64().unwrap(), 300 - left_out);
    assert!((seconds(&start["ready_at"]) - 30.0 - seconds(&start["ready"])).abs() < 1e-9);
}

#[test]
fn flags_of_a_start_need_one() {
    simulate(&format!("{LOAD} --storage nvme")).fails(2, &["add --cold"]);
    simulate(&format!("{LOAD} --scale-up-at 3")).fails(2, &["--cold"]);
    simulate(&format!("{LOAD} --cold --scale-up-at 100000"))
        .fails(1, &["the load sends no request from then on (300 before)"]);
    simulate(&format!("{LOAD} --cold missing.toml")).fails(1, &["missing.toml"]);
    let closed = "--model llama-3.1-8b --hardware h100 --concurrency 2 --input-len 9 --output-len 9";
    simulate(&format!("{closed} --cold --scale-up-at 3")).fails(2, &["--scale-up-at"]);
    assert_eq!(simulate(&format!("{closed} --cold")).code, 0);
}

#[test]
fn turns_and_contents_are_those_of_the_requests_behind_a_scale_up() {
    let folder = Folder::new();
    let turns = "session_id,arrival,input_len,output_len,think_time_s,prefix_group,prefix_len\n\
                 a,0,64,20,,old,64\n\
                 b,10,320,20,,new,320\n\
                 b,,360,5,2.5,,\n\
                 c,1000,330,4,,new,320\n\
                 c,,360,4,3,,\n";
    let (path, tokens) = (folder.write("turns.csv", turns), folder.path("tokens.jsonl"));
    let server = "--model llama-3.1-8b --hardware h100 --max-model-len 4096";
    let line = format!("{server} --requests {path} --cold --scale-up-at 5 --output-tokens {tokens} --format json");
    let report = simulate(&line).json();
    assert_eq!((&report["cold"]["left_out"], &report["cold"]["never_sent"]), (&1.into(), &0.into()));
    assert_eq!(report["sessions"]["sessions"], 2);
    let prompt_tokens = |group: &str| report["sessions"][group]["prompt_tokens"].clone();
    assert_eq!((prompt_tokens("first_turns"), prompt_tokens("later_turns")), (650.into(), 720.into()));
    let lines = folder.read("tokens.jsonl");
    let hashes = |line: &str| serde_json::from_str::<Value>(line).unwrap()["block_hashes"].as_array().unwrap().clone();
    let hashes: Vec<Vec<Value>> = lines.lines().skip(1).map(hashes).collect();
    // Whole blocks of 16 tokens that others share: of the group's 320 tokens, and of a session's turn before, 340 or 334 tokens.
    assert_eq!(hashes.len(), 4);
    assert!(hashes.iter().all(|of| of.len() >= 20 && of[..20] == hashes[0][..20]), "{lines}");
    assert_eq!(hashes[1][..20], hashes[0][..]);
    assert_ne!(hashes[1][20], hashes[3][20], "the sessions differ behind what they share");
    let later = simulate(&format!("{server} --requests {path} --cold --scale-up-at 20"));
    let later = later.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(later.contains("and left out, and with them 1 later turn of their sessions"), "{later}");
    let stages =
        "{load: {type: constant, stages: [{rate: 2, duration: 20}, {rate: 4, duration: 9}]}, data: {type: mock}}";
    let profile = folder.write("profile.yaml", stages);
    simulate(&format!("{server} --profile {profile} --cold --scale-up-at 5"))
        .fails(1, &["--scale-up-at 5", "36 of the profile's requests are never sent", "--requests"]);
}
