//! Bodies that are at fault: each is answered with a status, a kind and what to do.

use std::io::Write;

use serde_json::{Value, json};

use super::{JSON, Server, ideal, read_answer};

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    let server = Server::start(&[]);
    let post = |text: &[u8]| server.request("POST", "/v1/predict-step", JSON, text);
    let message = post(b"{\"model\": \"llama-3.1-8b\",\n \"hardware\": }").fails(400, "malformed");
    assert!(message.contains("line 2"), "{message}");
    let body: Value = serde_json::from_slice(&post(b"{\n\"a\": }").body).unwrap();
    assert_eq!(body["error"]["location"]["line"], 2);
    for text in [
        &b"[]"[..],
        b"1",
        b"\"model\"",
        b"{\"model\": \"a\", \"model\": \"b\"}",
        b"{\"model\": \xff}",
        b"{\"model\": 1e999}",
        b"{",
        b"null",
        b"\0",
    ] {
        post(text).fails(400, "malformed");
    }
    server.request("POST", "/v1/predict-step", JSON, b"").fails(400, "malformed");
    for deep in ["[", "{\"a\":"] {
        post(deep.repeat(200_000).as_bytes()).fails(400, "malformed");
    }
}

#[test]
fn only_json_is_taken() {
    let server = Server::start(&[]);
    let body = ideal(json!({"decode": ["1x5"]})).to_string();
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"] {
        let headers = [("content-type", content_type)];
        server.request("POST", "/v1/predict-step", &headers, body.as_bytes()).fails(415, "media_type");
    }
    server.request("POST", "/v1/predict-step", &[], body.as_bytes()).fails(415, "media_type");
    let headers = [("content-type", "application/json;charset=UTF-8")];
    server.request("POST", "/v1/predict-step", &headers, body.as_bytes()).json();
}

#[test]
fn every_fault_of_the_keys_is_named() {
    let server = Server::start(&[]);
    for (path, body, kind, said) in [
        ("/v1/predict-step", json!({}), "invalid", "model is missing"),
        (
            "/v1/predict-step",
            ideal(json!({"tensor_paralel_size": 2, "max_num_seqs": 0, "decode": ["1x5"]})),
            "invalid",
            "did you mean tensor_parallel_size?",
        ),
        (
            "/v1/predict-step",
            ideal(json!({"decod": ["1x5"]})),
            "invalid",
            "decod is not a known key: did you mean decode?",
        ),
        ("/v1/predict-step", ideal(json!({"decode": ["5"]})), "invalid", "decode \"5\": ambiguous"),
        ("/v1/predict-step", ideal(json!({"decode": "5x5"})), "invalid", "must be a list of texts"),
        (
            "/v1/predict-step",
            ideal(json!({"requests": [], "decode": ["5x5"]})),
            "invalid",
            "both of requests and the shorthand",
        ),
        ("/v1/predict-step", ideal(json!({})), "invalid", "neither of requests and the shorthand"),
        ("/v1/predict-step", ideal(json!({"requests": []})), "invalid", "the batch has no requests"),
        (
            "/v1/predict-step",
            ideal(json!({"requests": [{"num_computed_tokens": 5, "num_scheduled_token": 1}]})),
            "invalid",
            "requests[0].num_scheduled_token is not a known key",
        ),
        (
            "/v1/predict-step",
            ideal(json!({"requests": [{"num_computed_tokens": 5, "num_scheduled_tokens": 0}]})),
            "invalid",
            "request 0: ",
        ),
        ("/v1/predict-step", ideal(json!({"decode": ["1000001x5"]})), "invalid", "more than 1000000"),
        (
            "/v1/predict-step",
            ideal(json!({"decode": ["1x5"], "efficiency": "best"})),
            "invalid",
            "must be tables or ideal",
        ),
        (
            "/v1/predict-step",
            ideal(json!({"decode": ["1x5"], "model": "lama-3.1-8b"})),
            "unknown_model",
            "did you mean llama-3.1-8b, ",
        ),
        (
            "/v1/predict-step",
            ideal(json!({"decode": ["1x5"], "hardware": "h10"})),
            "unknown_hardware",
            "GET /v1/hardware",
        ),
        ("/v1/predict-step", ideal(json!({"decode": ["1x5"], "model": {"hidden_size": 1}})), "invalid", "model: "),
        ("/v1/simulate", ideal(json!({"request_rate": 5})), "invalid", "request_rate = 5 needs input_len"),
        (
            "/v1/simulate",
            ideal(json!({"request_rate": 5, "concurrency": 5})),
            "invalid",
            "request_rate and concurrency: give one",
        ),
        ("/v1/simulate", ideal(json!({})), "invalid", "no load: give one of request_rate"),
        ("/v1/simulate", ideal(json!({"requests": [], "input_len": 5})), "invalid", "cannot be given with requests"),
        (
            "/v1/simulate",
            ideal(json!({"request_rate": 1, "num_requests": 4, "input_len": 5, "output_len": 5, "turns": 2})),
            "invalid",
            "num_requests = 4 cannot be given with turns: give num_sessions",
        ),
        (
            "/v1/simulate",
            ideal(json!({"concurrency": 1, "input_len": 5, "output_len": 5, "think_time_s": 2})),
            "invalid",
            "think_time_s = 2 needs turns",
        ),
        (
            "/v1/simulate",
            ideal(json!({"requests": [], "turns": 2})),
            "invalid",
            "turns = 2 cannot be given with requests",
        ),
        (
            "/v1/simulate",
            ideal(json!({"concurrency": 1, "input_len": 5, "output_len": 5, "turns": 9000, "num_sessions": 9000})),
            "invalid_argument",
            "of 81000000 requests",
        ),
        ("/v1/simulate", ideal(json!({"requests": "/etc/passwd"})), "invalid", "must be a list of requests"),
        ("/v1/simulate", ideal(json!({"profile": "/etc/passwd"})), "invalid", "must be an object"),
        (
            "/v1/simulate",
            ideal(json!({"requests": [{"arrival_ms": 0, "input_len": 5, "output_len": "x"}]})),
            "parse",
            "output_len",
        ),
        (
            "/v1/simulate",
            ideal(json!({"concurrency": 4, "input_len": 5, "output_len": 5, "num_requests": 100_000_000})),
            "invalid_argument",
            "GiB",
        ),
        (
            "/v1/sweep",
            json!({"server": {"model": "llama-3.1-8b", "hardware": "h100"}}),
            "invalid",
            "[load] has no load",
        ),
        (
            "/v1/sweep",
            json!({"server": {"model": "models/llama-3.1-8b.json", "hardware": "h100"}, "load": {"concurrency": 1, "input_len_tokens": 1, "output_len_tokens": 1}}),
            "invalid",
            "unknown model",
        ),
        (
            "/v1/sweep",
            json!({"server": {"model": "llama-3.1-8b", "hardware": "h100"}, "load": {"profile": "/etc/passwd"}}),
            "invalid",
            "no files are read here",
        ),
        (
            "/v1/sweep",
            json!({"server": {"model": "llama-3.1-8b", "hardware": "h100", "max_num_seqs": (1..3000).collect::<Vec<u32>>()},
                   "load": {"concurrency": 1, "input_len_tokens": 1, "output_len_tokens": 1}}),
            "invalid",
            "the grid makes 2999 configurations",
        ),
        (
            "/v1/kv-capacity",
            json!({"model": "llama-3.1-8b", "hardware": "h100", "decode": ["1x5"]}),
            "invalid",
            "decode is not a known key",
        ),
    ] {
        let message = server.post(path, &body).fails(422, kind);
        assert!(message.contains(said), "'{said}' is not in: {message}");
    }
}

#[test]
fn a_model_may_be_pasted() {
    let server = Server::start(&[]);
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/llama-3.1-8b.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let by_name = server.post("/v1/predict-step", &ideal(json!({"decode": ["64x2048"]}))).json();
    let pasted = server.post("/v1/predict-step", &ideal(json!({"decode": ["64x2048"], "model": config}))).json();
    assert_eq!((&pasted["step_time_us"], &pasted["model"]), (&by_name["step_time_us"], &json!("config.json")));
    let slower = json!({"decode": ["64x2048"], "hardware": {"h100": {"memory_bandwidth_gb_s": 1675}}});
    let slower = server.post("/v1/predict-step", &ideal(slower)).json();
    let ratio = slower["bound_us"].as_f64().unwrap() / by_name["bound_us"].as_f64().unwrap();
    assert!((ratio - 2.0).abs() < 0.01, "half the bandwidth takes twice as long: {ratio}");
}

#[test]
fn a_sweep_takes_a_pasted_model_and_gpu() {
    let server = Server::start(&[]);
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/llama-3.1-8b.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let grid = |model: Value, hardware: Value| {
        json!({
            "efficiency": "ideal", "correction": "none",
            "server": {"model": model, "hardware": hardware, "max_num_seqs": [8, 64], "max_model_len": 4096},
            "load": {"input_len_tokens": 300, "output_len_tokens": 20, "num_requests": 60},
            "slo": {"ttft_p99_ms": 100},
        })
    };
    let rows = |model: Value, hardware: Value| server.post("/v1/sweep", &grid(model, hardware)).json()["rows"].clone();
    let named = rows(json!("llama-3.1-8b"), json!("h100"));
    let pasted = rows(config.clone(), json!({"h100": {"sm_count": 132}}));
    assert_eq!(pasted.as_array().unwrap().len(), 2);
    for (own, of_name) in pasted.as_array().unwrap().iter().zip(named.as_array().unwrap()) {
        assert_eq!((&own["model"], &own["status"]), (&json!("config.json"), &json!("ok")), "{own}");
        assert_eq!(own["request_rate_per_s"], of_name["request_rate_per_s"]);
        assert_eq!(own["ttft_p99_ms"], of_name["ttft_p99_ms"]);
    }
    let slower = rows(config.clone(), json!({"h100": {"memory_bandwidth_gb_s": 1675}}));
    assert!(slower[1]["tpot_mean_ms"].as_f64() > named[1]["tpot_mean_ms"].as_f64(), "{slower}");
    let mut with_precision = grid(config, json!("h100"));
    with_precision["server"]["precision"] = "fp8".into();
    // A name that the pasted ones have is no file, and a list of objects is no list of names.
    for (body, said) in [
        (grid(json!("config.json"), json!("h100")), "unknown model"),
        (grid(json!("llama-3.1-8b"), json!("own_hardware")), "unknown hardware"),
        (grid(json!([{}]), json!("h100")), "model = "),
        (grid(json!({"hidden_size": 1}), json!({"datasheet": {}})), "model: "),
        (grid(json!("llama-3.1-8b"), json!({"/etc/passwd": {}})), "unknown hardware"),
        (with_precision, "precision chooses a variant of a model that is named"),
    ] {
        let message = server.post("/v1/sweep", &body).fails(422, "invalid");
        assert!(message.contains(said), "'{said}' is not in: {message}");
    }
}

#[test]
fn a_body_beyond_the_limit_is_refused_before_it_is_read_or_while_it_is() {
    let server = Server::start(&["--max-body-mib", "1"]);
    let long = vec![b' '; (1 << 20) + 1];
    server.request("POST", "/v1/predict-step", JSON, &long).fails(413, "body_too_long");
    let mut announced = server.connect();
    let head =
        "POST /v1/simulate HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n";
    write!(announced, "{head}content-length: 99999999999\r\n\r\n").unwrap();
    read_answer(announced).fails(413, "body_too_long");
    let mut chunked = server.connect();
    write!(chunked, "{head}transfer-encoding: chunked\r\n\r\n").unwrap();
    let chunk = [b"10000\r\n".to_vec(), vec![b' '; 1 << 16], b"\r\n".to_vec()].concat();
    while chunked.write_all(&chunk).is_ok() {}
    let at_the_limit = [ideal(json!({"decode": ["1x5"]})).to_string().into_bytes(), vec![b' '; 1 << 19]].concat();
    server.request("POST", "/v1/predict-step", JSON, &at_the_limit).json();
}
