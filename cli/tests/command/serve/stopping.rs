//! The end of a server: requests that run are answered.
#![cfg(unix)]

use std::io::{Read, Write};
use std::process::Command;

use serde_json::json;

use super::{JSON, Server, ideal, long_replay, read_answer, request};

fn signal(name: &str, server: &Server) {
    assert!(Command::new("kill").args([name, &server.child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_signal_ends_the_server_after_the_requests_that_run() {
    for name in ["-TERM", "-INT"] {
        let mut server = Server::start(&[]);
        let load =
            json!({"concurrency": 8, "input_len": 100, "output_len": 300, "num_requests": 4000, "max_model_len": 4096});
        let mut stream = server.connect();
        stream.write_all(&request("POST", "/v1/simulate", JSON, ideal(load).to_string().as_bytes())).unwrap();
        let idle = server.connect();
        server.wait_for("ridgepoint_http_requests_total{route=\"/metrics\",status=\"200\"}", 1.0);
        while server.metric("ridgepoint_jobs_running") < 1.0
            && server.metric("ridgepoint_cache_misses_total{cache=\"simulate\"}") < 1.0
        {}
        signal(name, &server);
        assert_eq!(read_answer(stream).json()["stages"][0]["finished"], 4000);
        drop(idle);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn the_time_for_the_end_is_bounded_and_a_second_signal_is_obeyed_at_once() {
    let mut server = Server::start(&["--request-timeout-s", "1"]);
    let mut stream = server.connect();
    stream.write_all(&request("POST", "/v1/simulate", JSON, long_replay().to_string().as_bytes())).unwrap();
    server.wait_for("ridgepoint_jobs_running", 1.0);
    signal("-TERM", &server);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 504"), "{text}");

    let mut server = Server::start(&["--request-timeout-s", "3000"]);
    let mut stream = server.connect();
    stream.write_all(&request("POST", "/v1/simulate", JSON, long_replay().to_string().as_bytes())).unwrap();
    server.wait_for("ridgepoint_jobs_running", 1.0);
    signal("-TERM", &server);
    // The first signal was seen when nobody is let in any more.
    while std::net::TcpStream::connect(&server.address).is_ok() {}
    signal("-TERM", &server);
    assert_eq!(server.child.wait().unwrap().code(), None);
}

#[test]
fn the_log_has_a_line_per_request_where_it_is_wanted() {
    for (flags, lines) in [(&["--log"][..], 2), (&[][..], 0)] {
        let mut server = Server::start(flags);
        server.get("/healthz");
        server.get("/v1/nothing?a=1");
        signal("-TERM", &server);
        let mut text = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(lines == 0 || text.starts_with("GET /healthz 200 "), "{text}");
    }
}
