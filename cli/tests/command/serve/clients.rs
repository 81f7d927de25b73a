//! Clients that misbehave: the server goes on for the others.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::json;

use super::{JSON, Server, ideal, read_answer, request};

#[test]
fn nonsense_ends_its_own_connection_alone() {
    let server = Server::start(&[]);
    let long_line = [b"GET /".to_vec(), vec![b'a'; 100_000], b" HTTP/1.1\r\n\r\n".to_vec()].concat();
    let many_headers = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/simulate HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/simulate HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /v1/simulate HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-type: application/json\r\n\r\nzz\r\n",
        &long_line,
        many_headers.as_bytes(),
        &[0; 50_000],
    ] {
        let mut stream = server.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let status = String::from_utf8_lossy(&answer).split(' ').nth(1).map(str::to_owned);
        assert!(status.is_none_or(|status| status.starts_with('4')), "{:?}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn slow_and_idle_clients_do_not_stop_the_others() {
    let server = Server::start(&[]);
    let slow: Vec<TcpStream> = (0..300)
        .map(|index| {
            let mut stream = server.connect();
            match index % 3 {
                0 => {}
                1 => stream.write_all(b"GET /healthz HTTP/1.1\r\nhos").unwrap(),
                _ => stream
                    .write_all(b"POST /v1/simulate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{")
                    .unwrap(),
            }
            stream
        })
        .collect();
    for _ in 0..20 {
        server.post("/v1/predict-step", &ideal(json!({"decode": ["1x5"]}))).json();
    }
    assert!(server.metric("ridgepoint_connections") > 200.0);
    drop(slow);
    server.wait_for("ridgepoint_connections", 1.0);
}

#[test]
fn a_connection_takes_many_requests_in_a_row_and_at_once() {
    let server = Server::start(&[]);
    let mut stream = server.connect();
    let health = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for _ in 0..3 {
        stream.write_all(health).unwrap();
        let (mut bytes, mut chunk) = (Vec::new(), [0; 1024]);
        while !bytes.ends_with(b"{\"status\":\"ok\"}") {
            let read = stream.read(&mut chunk).unwrap();
            assert!(read > 0);
            bytes.extend_from_slice(&chunk[..read]);
        }
    }
    // Several at once. A client that then closed its side would count as gone.
    stream.write_all(&health.repeat(5)).unwrap();
    stream.write_all(&request("GET", "/healthz", &[], b"")).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text.matches("{\"status\":\"ok\"}").count(), 6, "{text}");
}

#[test]
fn a_body_that_ends_early_is_a_lost_client_and_no_defect() {
    let server = Server::start(&[]);
    let mut stream = server.connect();
    let head = "POST /v1/predict-step HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    // An expectation is met before the body is sent.
    let body = ideal(json!({"decode": ["1x5"]})).to_string();
    let mut stream = server.connect();
    let headers = [JSON[0], ("expect", "100-continue")];
    let whole = request("POST", "/v1/predict-step", &headers, body.as_bytes());
    stream.write_all(&whole[..whole.len() - body.len()]).unwrap();
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100"));
    stream.write_all(body.as_bytes()).unwrap();
    read_answer(stream).json();
}
