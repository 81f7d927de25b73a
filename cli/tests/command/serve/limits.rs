//! Limits of time, of the queue, of connections, and the token.

use std::io::{Read, Write};
use std::time::Instant;

use serde_json::json;

use super::{JSON, PATIENCE, Server, ideal, long_replay, read_answer, request};

const RUNNING: &str = "ridgepoint_jobs_running";

#[test]
fn a_result_that_takes_too_long_is_given_up() {
    let server = Server::start(&["--request-timeout-s", "1"]);
    let started = Instant::now();
    server.post("/v1/simulate", &long_replay()).fails(504, "compute_timeout");
    let sweep = json!({
        "efficiency": "ideal",
        "server": {"model": "llama-3.1-8b", "hardware": "h100", "max_model_len": 4096},
        "load": {"concurrency": 4, "input_len_tokens": 100, "output_len_tokens": 400, "num_requests": 2_000_000},
    });
    server.post("/v1/sweep", &sweep).fails(504, "compute_timeout");
    // Both replays ended with their requests: they would take minutes.
    server.wait_for(RUNNING, 0.0);
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn a_client_that_leaves_stops_its_replay() {
    let server = Server::start(&["--request-timeout-s", "3000"]);
    let mut stream = server.connect();
    stream.write_all(&request("POST", "/v1/simulate", JSON, long_replay().to_string().as_bytes())).unwrap();
    server.wait_for(RUNNING, 1.0);
    drop(stream);
    server.wait_for(RUNNING, 0.0);
}

#[test]
fn a_full_queue_is_a_503_that_says_when_to_come_back() {
    let server = Server::start(&["--threads", "1", "--max-queued", "1", "--request-timeout-s", "3000"]);
    let hot = ideal(json!({"decode": ["1x5"]}));
    server.post("/v1/predict-step", &hot).json();
    let long = request("POST", "/v1/simulate", JSON, long_replay().to_string().as_bytes());
    let (mut first, mut second) = (server.connect(), server.connect());
    first.write_all(&long).unwrap();
    server.wait_for(RUNNING, 1.0);
    second.write_all(&long).unwrap();
    server.wait_for("ridgepoint_jobs_queued", 1.0);
    let refused = server.post("/v1/simulate", &long_replay());
    assert!(refused.headers["retry-after"].parse::<u32>().unwrap() >= 1);
    let message = refused.fails(503, "busy");
    assert!(message.contains("--max-queued"), "{message}");
    // Steps of models that are in the cache need no thread.
    server.post("/v1/predict-step", &hot).json();
    drop(second);
    server.wait_for("ridgepoint_jobs_queued", 0.0);
    drop(first);
    server.wait_for(RUNNING, 0.0);
    server.post("/v1/kv-capacity", &ideal(json!({}))).json();
}

#[test]
fn a_body_that_does_not_arrive_is_a_408() {
    let server = Server::start(&["--request-timeout-s", "0.5"]);
    let mut stream = server.connect();
    let head =
        "POST /v1/predict-step HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n";
    write!(stream, "{head}content-length: 100\r\n\r\n{{\"model\"").unwrap();
    read_answer(stream).fails(408, "body_timeout");
}

#[test]
fn connections_beyond_the_limit_get_a_reason() {
    let server = Server::start(&["--max-connections", "2"]);
    let held = [server.connect(), server.connect()];
    // The server accepts in order, so both are open when it sees the third.
    read_answer(server.connect()).fails(503, "busy");
    drop(held);
    let end = Instant::now() + PATIENCE;
    loop {
        let mut stream = server.connect();
        let _ = stream.write_all(&request("GET", "/healthz", &[], b""));
        let mut text = String::new();
        if stream.read_to_string(&mut text).is_ok() && text.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(Instant::now() < end);
    }
}

#[test]
fn a_token_guards_all_but_the_page_and_the_health() {
    let folder = crate::cli_support::Folder::new();
    let file = folder.write("token", "0123456789abcdef\n");
    let body = ideal(json!({"decode": ["1x5"]})).to_string();
    for server in
        [Server::start(&["--token-file", &file]), Server::start_with(&[], &[("RIDGEPOINT_TOKEN", "0123456789abcdef")])]
    {
        for path in ["/v1/models", "/v1/version", "/metrics", "/v1/nothing"] {
            let refused = server.get(path);
            assert_eq!(refused.headers["www-authenticate"], "Bearer");
            refused.fails(401, "unauthorised");
        }
        server.request("POST", "/v1/predict-step", JSON, body.as_bytes()).fails(401, "unauthorised");
        let wrong = [JSON[0], ("authorization", "Bearer 0123456789abcdeF")];
        server.request("POST", "/v1/predict-step", &wrong, body.as_bytes()).fails(401, "unauthorised");
        let right = [JSON[0], ("authorization", "Bearer 0123456789abcdef")];
        server.request("POST", "/v1/predict-step", &right, body.as_bytes()).json();
        assert_eq!((server.get("/").status, server.get("/healthz").status), (200, 200));
    }
}

#[test]
fn what_cannot_be_listened_on_or_read_ends_with_an_error() {
    let server = Server::start(&[]);
    let port = server.address.rsplit(':').next().unwrap();
    let taken = crate::cli_support::run(&["serve", "--port", port]);
    taken.fails(1, &["cannot be listened on", "--port takes another one"]);
    let folder = crate::cli_support::Folder::new();
    let short = folder.write("token", "short");
    crate::cli_support::run(&["serve", "--token-file", &short]).fails(1, &["at least 16 printable"]);
    crate::cli_support::run(&["serve", "--token-file", &folder.path("none")]).fails(1, &["none"]);
    crate::cli_support::run(&["serve", "--host", "example.org"]).fails(2, &["--host"]);
    crate::cli_support::run(&["serve", "--request-timeout-s", "0"]).fails(2, &["above zero"]);
}
