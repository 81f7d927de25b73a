//! Requests that are meant to end the server, to stop it or to learn of it: each is refused before it costs much.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::{JSON, Server, ideal, long_replay, request};
use crate::cli_support::{Folder, run};

/// A body with the keys of a server and those of `over`.
fn measured(over: Value) -> Value {
    let mut body = json!({"model": "llama-3.1-8b", "hardware": "h100"});
    let Value::Object(over) = over else { panic!("{over}") };
    body.as_object_mut().unwrap().extend(over);
    body
}

#[test]
fn a_grid_is_judged_before_it_is_multiplied_out() {
    let server = Server::start(&[]);
    let grid = |batched: u32, seqs: u32| {
        json!({
            "server": {
                "model": "m".repeat(60_000), "hardware": "h100",
                "max_num_batched_tokens": (1..=batched).collect::<Vec<_>>(), "max_num_seqs": (1..=seqs).collect::<Vec<_>>(),
            },
            "load": {"request_rate_per_s": 1, "input_len_tokens": 10, "output_len_tokens": 5, "num_requests": 5},
        })
    };
    let many = server.post("/v1/sweep", &grid(100, 1000)).fails(422, "invalid");
    assert!(many.contains("the grid makes 100000 configurations, at most 2000"), "{many}");
    let long = server.post("/v1/sweep", &grid(2, 1000)).fails(422, "invalid");
    assert!(long.contains("repeat long texts"), "{long}");
}

#[test]
fn a_body_of_very_many_values_is_refused_before_it_is_parsed() {
    let server = Server::start(&[]);
    let objects = "{\"\":0},".repeat(500_000);
    let body = format!("{{\"model\":\"llama-3.1-8b\",\"hardware\":\"h100\",\"requests\":[{objects}{{}}]}}");
    for path in ["/v1/predict-step", "/v1/kv-capacity", "/v1/simulate"] {
        server.request("POST", path, JSON, body.as_bytes()).fails(413, "body_too_long");
    }
}

#[test]
fn a_long_body_needs_a_thread_for_long_work_and_its_faults_are_counted() {
    let server = Server::start(&["--threads", "1", "--max-queued", "0", "--request-timeout-s", "3000"]);
    let faulty = |number: usize| ideal(json!({"requests": vec![json!({"num_scheduled_tokens": 1}); number]}));
    let message = server.post("/v1/predict-step", &faulty(20_000)).fails(422, "invalid");
    assert!(message.contains("requests[0].num_computed_tokens is missing") && message.len() < 10_000, "{message}");
    let mut stream = server.connect();
    stream.write_all(&request("POST", "/v1/simulate", JSON, long_replay().to_string().as_bytes())).unwrap();
    server.wait_for("ridgepoint_jobs_running", 1.0);
    server.post("/v1/predict-step", &faulty(20_000)).fails(503, "busy");
    server.post("/v1/predict-step", &faulty(2)).fails(422, "invalid");
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn transfers_beyond_any_link_are_refused() {
    let server = Server::start(&["--request-timeout-s", "60"]);
    let link = |latency_us: f64, bytes_per_s: f64| json!({"latency_us": latency_us, "bytes_per_s": bytes_per_s});
    let load = json!({
        "concurrency": 4, "input_len": 100, "output_len": 10, "num_requests": 8, "kv_offloading_size": 4,
    });
    for (slow, said) in [(link(1e18, 9e8), "latency_us"), (link(10.0, 1e-9), "bytes_per_s")] {
        let mut body = measured(load.clone());
        body["kv_transfers"] = json!({"gpu_to_cpu": slow, "cpu_to_gpu": link(71.0, 3e9), "contention": 1.0});
        let message = server.post("/v1/simulate", &body).fails(422, "invalid");
        assert!(message.contains(&format!("gpu_to_cpu.{said} = ")), "{message}");
    }
}

#[test]
fn blocks_of_host_and_disk_count_towards_the_memory() {
    let server = Server::start(&["--request-timeout-s", "60"]);
    let load = json!({"request_rate": 100, "num_requests": 20_000, "input_len": 100_000, "output_len": 10});
    let mut host = measured(load.clone());
    host["kv_offloading_size"] = 100_000.into();
    let message = server.post("/v1/simulate", &host).fails(422, "invalid_argument");
    assert!(message.contains("for tables of KV blocks"), "{message}");
    let disk = json!({
        "model": "llama-4-scout", "hardware": "h200", "tensor_parallel_size": 8, "num_gpu_blocks_override": 16_777_216, "block_size": 1,
        "request_rate": 100, "num_requests": 200, "input_len": 1_000_000, "output_len": 10,
        "kv_transfer_config": {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": {
            "num_cpu_blocks": 67_108_864, "spec_name": "TieringOffloadingSpec",
            "secondary_tiers": [{"type": "fs", "root_dir": "/x"}]}},
    });
    server.post("/v1/simulate", &disk).fails(422, "invalid_argument");
    let grid = json!({
        "server": {"model": "llama-3.1-8b", "hardware": "h100", "kv_offloading_size": 100_000},
        "load": {"request_rate_per_s": 100, "num_requests": 20_000, "input_len_tokens": 100_000, "output_len_tokens": 10},
    });
    server.post("/v1/sweep", &grid).fails(422, "invalid_argument");
}

#[test]
fn remarks_are_counted_beyond_a_hundred() {
    let server = Server::start(&[]);
    let keys: Map<String, Value> = (0..20_000).map(|number| (format!("k{number}"), 1.into())).collect();
    let step = server.post("/v1/predict-step", &ideal(json!({"decode": ["1x5"], "compilation_config": keys}))).json();
    let warnings = step["warnings"].as_array().unwrap();
    assert!((100..150).contains(&warnings.len()), "{}", warnings.len());
    assert!(warnings.iter().any(|warning| warning == "and 19900 more remarks"), "{warnings:?}");
}

#[test]
fn only_this_machine_is_asked_and_no_other_site_computes() {
    let server = Server::start(&["--allowed-host", "Ridgepoint.example"]);
    let status = |host: &str, path: &str| {
        server.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())
    };
    for path in ["/", "/v1/models", "/healthz", "/nothing"] {
        status("evil.example:8080", path).fails(421, "host");
    }
    for host in ["localhost", "127.0.0.1:80", "[::1]", "ridgepoint.example:443"] {
        assert_eq!(status(host, "/v1/version").status, 200, "{host}");
    }
    let body = ideal(json!({"decode": ["1x5"]})).to_string();
    let with = |name: &'static str, value: &'static str| {
        server.request("POST", "/v1/predict-step", &[JSON[0], (name, value)], body.as_bytes())
    };
    with("sec-fetch-site", "cross-site").fails(403, "other_site");
    with("origin", "http://evil.example").fails(403, "other_site");
    with("sec-fetch-site", "same-origin").json();
    with("origin", "http://localhost").json();
}

#[test]
fn faults_of_the_data_folder_are_the_servers() {
    let folder = Folder::new();
    let models = std::path::PathBuf::from(folder.path("models"));
    std::fs::create_dir(&models).unwrap();
    std::fs::create_dir(folder.path("hardware")).unwrap();
    std::fs::write(folder.path("hardware/bad.toml"), "name = [").unwrap();
    let server = Server::start(&["--data-dir", &folder.path(""), "--request-timeout-s", "60"]);
    for path in ["/v1/hardware/h100", "/v1/hardware"] {
        let message = server.get(path).fails(500, "data_folder");
        assert!(
            message.contains("hardware/bad.toml") && !message.contains(folder.path("").trim_end_matches('/')),
            "{message}"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_data_folder_is_not_read() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("hardware")).unwrap();
    let pipe = folder.path("hardware/pipe.toml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let server = Server::start(&["--data-dir", &folder.path("")]);
    assert_eq!(server.get("/v1/hardware/h100").status, 200);
}

#[test]
fn a_server_for_all_wants_a_token_or_the_word_that_it_needs_none() {
    let refused = run(&["serve", "--host", "0.0.0.0", "--port", "0"]);
    refused.fails(2, &["no token is set", "--insecure"]);
}

#[test]
fn malformed_paths_are_answered_like_other_errors() {
    let server = Server::start(&[]);
    server.get("/v1/models/%ff").fails(400, "malformed");
    let started = Instant::now();
    server.get("/v1/hardware/%00").fails(404, "unknown_hardware");
    assert!(started.elapsed() < Duration::from_secs(60));
}
