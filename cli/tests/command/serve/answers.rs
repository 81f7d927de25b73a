//! Answers are the command's own documents.

use serde_json::{Value, json};

use super::{Server, ideal};
use crate::cli_support::{Folder, run};

/// What the command prints in JSON; `line` is split at blanks.
fn command(line: &str) -> Value {
    let mut args: Vec<&str> = line.split_ascii_whitespace().collect();
    args.extend(["--format", "json"]);
    run(&args).json()
}

#[test]
fn a_step_is_what_the_command_predicts() {
    let server = Server::start(&[]);
    for (line, body) in [
        (
            "--model llama-3.1-8b --hardware h100 --decode 64x2048 --prefill 512@1024:partial --explain",
            json!({"model": "llama-3.1-8b", "hardware": "h100", "decode": ["64x2048"], "prefill": ["512@1024:partial"], "explain": true}),
        ),
        (
            "--model meta-llama/Llama-3.1-70B-Instruct --hardware h200 --tp 4 --max-num-seqs 64 --enforce-eager --decode 3x100,5x7 \
             --correction global --engine-version 0.24",
            json!({
                "model": "meta-llama/Llama-3.1-70B-Instruct", "hardware": "h200", "tensor_parallel_size": 4, "max_num_seqs": 64,
                "enforce_eager": true, "decode": ["3x100", "5x7"], "correction": "global", "engine_version": "0.24",
            }),
        ),
        (
            "--model gpt-oss-20b --hardware l4 --efficiency ideal --decode 2x9",
            json!({"model": "gpt-oss-20b", "hardware": "l4", "efficiency": "ideal", "decode": ["2x9"]}),
        ),
    ] {
        let expected = command(&format!("predict-step {line}"));
        // The second answer is of the model that the first one left in the cache.
        for _ in 0..2 {
            assert_eq!(server.post("/v1/predict-step", &body).json(), expected, "{line}");
        }
    }
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/mixed_batch.json")).unwrap();
    let mut body: Value = serde_json::from_str(&text).unwrap();
    body["model"] = "llama-3.1-70b".into();
    body["hardware"] = "h100".into();
    body["tensor_parallel_size"] = 4.into();
    let line = "predict-step --model llama-3.1-70b --hardware h100 --tp 4 --batch examples/mixed_batch.json";
    assert_eq!(server.post("/v1/predict-step", &body).json(), command(line));
    let hits = "ridgepoint_cache_hits_total{cache=\"predict_step\"}";
    assert!((server.metric(hits) - 3.0).abs() < 0.1, "{}", server.metric(hits));
}

#[test]
fn a_replay_is_what_the_command_replays() {
    let server = Server::start(&[]);
    let flags = "simulate --efficiency ideal --model llama-3.1-8b --hardware h100 --max-model-len 4096";
    for (line, load) in [
        (
            "--request-rate 8 --num-requests 200 --input-len 300 --output-len 40 --burstiness 0.5 --seed 7",
            json!({"request_rate": 8, "num_requests": 200, "input_len": 300, "output_len": 40, "burstiness": 0.5, "seed": 7}),
        ),
        (
            "--concurrency 6 --input-len 300 --output-len 40 --noise 0.05",
            json!({"max_concurrency": 6, "random_input_len": 300, "random_output_len": 40, "noise": 0.05}),
        ),
    ] {
        let mut body = ideal(load);
        body["max_model_len"] = 4096.into();
        assert_eq!(server.post("/v1/simulate", &body).json(), command(&format!("{flags} {line}")), "{line}");
    }
    let folder = Folder::new();
    let requests = json!([
        {"arrival_ms": 0, "input_len": 100, "output_len": 20},
        {"arrival_ms": 15, "input_len": 700, "output_len": 5},
    ]);
    let lines: Vec<String> = requests.as_array().unwrap().iter().map(Value::to_string).collect();
    let list = folder.write("requests.jsonl", lines.join("\n"));
    let profile = json!({
        "load": {"type": "constant", "stages": [{"rate": 5, "duration": 10}]},
        "data": {"type": "random", "input_distribution": {"min": 100, "max": 900, "mean": 500, "std_dev": 100},
                 "output_distribution": {"min": 10, "max": 10, "mean": 10, "std_dev": 0}},
    });
    let described = folder.write("profile.yaml", profile.to_string());
    for (line, key, value) in
        [(format!("--requests {list}"), "requests", requests), (format!("--profile {described}"), "profile", profile)]
    {
        let mut body = ideal(json!({"max_model_len": 4096}));
        body[key] = value;
        let (mut answer, mut expected) =
            (server.post("/v1/simulate", &body).json(), command(&format!("{flags} {line}")));
        // The load is named by its file.
        let (of_body, of_file) = (answer["load"].take(), expected["load"].take());
        assert_eq!(answer, expected);
        assert_eq!(of_body.as_str().unwrap().split(": ").nth(1), of_file.as_str().unwrap().split(": ").nth(1));
    }
}

#[test]
fn sessions_and_a_host_tier_are_those_of_the_command() {
    let server = Server::start(&[]);
    let flags = "simulate --efficiency ideal --model llama-3.1-8b --hardware h100 --max-model-len 4096 --num-gpu-blocks-override 300";
    let turns = "--turns 3 --prefix-len 320 --input-len 200 --output-len 20";
    let keys = json!({
        "max_model_len": 4096, "num_gpu_blocks_override": 300, "turns": 3, "random_prefix_len": 320, "input_len": 200, "output_len": 20,
    });
    for (line, more) in [
        (
            "--request-rate 4 --num-sessions 30 --think-time-s 2 --kv-offloading-size 2 --kv-metrics --seed 5",
            json!({"request_rate": 4, "num_sessions": 30, "think_time_s": 2, "kv_offloading_size": 2, "kv_metrics": true, "seed": 5}),
        ),
        (
            r#"--concurrency 3 --kv-transfer-config {"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"num_cpu_blocks":90}}"#,
            json!({
                "concurrency": 3,
                "kv_transfer_config": {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {"num_cpu_blocks": 90}},
            }),
        ),
    ] {
        let mut body = ideal(keys.clone());
        let Value::Object(more) = more else { panic!() };
        body.as_object_mut().unwrap().extend(more);
        let answer = server.post("/v1/simulate", &body).json();
        assert_eq!(answer, command(&format!("{flags} {turns} {line}")), "{line}");
        // Prompts of 520, 740 and 960 tokens.
        let sessions = answer["sessions"]["sessions"].as_u64().unwrap();
        assert_eq!(answer["stages"][0]["input_tokens"], sessions * (520 + 740 + 960));
        assert!(answer["kv_offload"]["stores"]["count"].as_u64().unwrap() > 0, "{answer}");
        assert!(answer["kv_offload"]["without_tier"]["ttft_mean_ms"].is_number());
        assert_eq!(answer["kv_metrics"].is_object(), body["kv_metrics"] == true);
    }
}

#[test]
fn series_agree_with_the_metrics() {
    let server = Server::start(&[]);
    let body = ideal(json!({
        "request_rate": 30, "num_requests": 501, "input_len": 400, "output_len": 60, "max_num_seqs": 8, "series": true,
        "max_model_len": 4096,
    }));
    let answer = server.post("/v1/simulate", &body).json();
    let (all, series) = (&answer["stages"][0], &answer["series"]);
    for metric in ["ttft_ms", "tpot_ms", "e2e_ms"] {
        let quantiles = series[metric].as_array().unwrap();
        assert_eq!(quantiles.len(), 101);
        for (at, percentile) in [(0, "min"), (50, "p50"), (90, "p90"), (99, "p99"), (100, "max")] {
            let (found, expected) = (quantiles[at].as_f64().unwrap(), all[metric][percentile].as_f64().unwrap());
            assert!((found / expected - 1.0).abs() < 1e-9, "{metric} {percentile}: {found} {expected}");
        }
    }
    // Gaps come from histograms with three digits.
    let median = series["itl_ms"][50].as_f64().unwrap() / all["itl_ms"]["p50"].as_f64().unwrap();
    assert!((median - 1.0).abs() < 0.01, "{median}");
    let timeline = series["timeline"].as_array().unwrap();
    assert!(timeline.len() <= 400 && timeline.len() > 100, "{}", timeline.len());
    let most = |key: &str| timeline.iter().map(|point| point[key].as_u64().unwrap()).max();
    assert_eq!(most("running"), answer["counters"]["max_running"].as_u64());
    assert_eq!(most("waiting"), answer["counters"]["max_waiting"].as_u64());
    let kv_used = timeline.iter().map(|point| point["kv_used"].as_f64().unwrap()).fold(0.0, f64::max);
    let expected = answer["counters"]["peak_kv_share"].as_f64().unwrap();
    assert!((kv_used - expected).abs() < 1e-9, "{kv_used} {expected}");
    let without = ideal(json!({"concurrency": 1, "input_len": 4, "output_len": 4, "max_model_len": 4096}));
    assert!(server.post("/v1/simulate", &without).json().get("series").is_none());
}

#[test]
fn a_sweep_has_the_rows_that_the_command_writes() {
    let server = Server::start(&[]);
    let grid = r#"
        [server]
        model = "llama-3.1-8b"
        hardware = ["h100", "l4"]
        max_num_seqs = [8, 64]
        max_model_len = 4096
        [load]
        request_rate_per_s = [2, 20]
        input_len_tokens = 300
        output_len_tokens = 20
        num_requests = 100
    "#;
    let body = json!({
        "efficiency": "ideal",
        "server": {"model": "llama-3.1-8b", "hardware": ["h100", "l4"], "max_num_seqs": [8, 64], "max_model_len": 4096},
        "load": {"request_rate_per_s": [2, 20], "input_len_tokens": 300, "output_len_tokens": 20, "num_requests": 100},
    });
    let folder = Folder::new();
    let (path, out) = (folder.write("grid.toml", grid), folder.path("rows.json"));
    let mut summary = command(&format!("sweep {path} --efficiency ideal --out {out}"));
    let answer = server.post("/v1/sweep", &body).json();
    let rows: Value = serde_json::from_str(&folder.read("rows.json")).unwrap();
    assert_eq!(answer["rows"].as_array().unwrap().len(), 8);
    assert_eq!(answer["rows"], rows);
    summary["out"] = "rows".into();
    assert_eq!(answer["summary"], summary);
}

#[test]
fn lists_and_details_are_those_of_the_command() {
    let server = Server::start(&[]);
    for (path, line) in [
        ("/v1/models", "models"),
        ("/v1/models/llama-3.1-8b", "models llama-3.1-8b"),
        ("/v1/models/meta-llama/Llama-3.1-70B-Instruct", "models meta-llama/Llama-3.1-70B-Instruct"),
        ("/v1/hardware", "hardware"),
        ("/v1/hardware/NVIDIA%20H100%2080GB%20HBM3", "hardware H100-80GB-HBM3"),
    ] {
        assert_eq!(server.get(path).json(), command(line), "{path}");
    }
    server.get("/v1/models/no-such-model").fails(404, "unknown_model");
    server.get("/v1/hardware/hardware/l4.toml").fails(404, "unknown_hardware");
}

#[test]
fn the_memory_equation_adds_up_and_reports_what_does_not_fit() {
    let server = Server::start(&[]);
    let load = json!({"concurrency": 1, "input_len": 4, "output_len": 4, "num_requests": 1});
    let replayed = server.post("/v1/simulate", &ideal(load)).json();
    let answer = server.post("/v1/kv-capacity", &ideal(json!({}))).json();
    assert_eq!(answer["num_gpu_blocks"], replayed["engine"]["num_gpu_blocks"]);
    assert_eq!((&answer["fits"], &answer["problems"]), (&json!(true), &json!([])));
    let number = |key: &str| answer[key].as_f64().unwrap();
    let terms = answer["equation"].as_array().unwrap();
    let sum: f64 = terms.iter().map(|term| term["bytes"].as_f64().unwrap()).sum();
    assert!((sum - number("kv_cache_bytes")).abs() < 1.0, "{answer}");
    assert!((number("usable_bytes") - 0.92 * number("device_memory_bytes")).abs() < 1.0);
    assert!((number("kv_tokens") - number("num_gpu_blocks") * number("block_size")).abs() < 1.0);
    let large = json!({"model": "llama-3.1-70b", "hardware": "l4"});
    let answer = server.post("/v1/kv-capacity", &large).json();
    assert_eq!(answer["fits"], false);
    assert!(answer["kv_cache_bytes"].as_f64().unwrap() < 0.0 && !answer["problems"][0].as_str().unwrap().is_empty());
    // A step of it can be predicted, with a warning; a replay cannot.
    let load = json!({"model": "llama-3.1-70b", "hardware": "l4", "concurrency": 1, "input_len": 4, "output_len": 4});
    server.post("/v1/simulate", &load).fails(422, "invalid");
}

#[test]
fn what_the_server_knows_of_itself() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/healthz").json(), json!({"status": "ok"}));
    let version = server.get("/v1/version").json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["build"].as_str().unwrap().starts_with(env!("CARGO_PKG_VERSION")));
    let measured = server.get("/v1/measured").json();
    let runs = measured["runs"].as_array().unwrap();
    assert!(runs.len() >= 10 && measured["source"].as_str().unwrap().contains("inference-sim"));
    let metric = runs[0]["metrics"].as_array().unwrap().iter().find(|metric| metric["metric"] == "e2e_mean").unwrap();
    assert!(metric["measured_ms"].as_f64().unwrap() > 0.0 && metric["predicted_ms"].as_f64().unwrap() > 0.0);
    server.post("/v1/predict-step", &ideal(json!({"decode": ["1x5"]}))).json();
    server.post("/v1/predict-step", &ideal(json!({"decode": ["x"]}))).fails(422, "invalid");
    let requests = |status: u16| {
        server.metric(&format!("ridgepoint_http_requests_total{{route=\"/v1/predict-step\",status=\"{status}\"}}"))
    };
    assert!((requests(200) - 1.0).abs() < 0.1 && (requests(422) - 1.0).abs() < 0.1);
    let text = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(text.contains("ridgepoint_http_request_duration_seconds_bucket") && text.ends_with("# EOF\n"));
}
