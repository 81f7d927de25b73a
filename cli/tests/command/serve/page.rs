//! The page's files, and methods that a path does not have.

use std::io::Read;

use super::{JSON, Server};

#[test]
fn the_page_is_sent_once_and_then_known() {
    let server = Server::start(&[]);
    let page = server.get("/?model=llama-3.1-8b");
    assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    assert!(page.headers["content-security-policy"].starts_with("default-src 'self'"));
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let etag = page.headers["etag"].clone();
    let again = server.request("GET", "/index.html", &[("if-none-match", &etag)], b"");
    assert_eq!((again.status, again.body.len(), again.headers["etag"].clone()), (304, 0, etag));
    assert_eq!(server.request("GET", "/", &[("if-none-match", "\"other\"")], b"").status, 200);
    server.get("/no-such-file.js").fails(404, "not_found");
    server.get("/../Cargo.toml").fails(404, "not_found");
    server.get("/%2e%2e/Cargo.toml").fails(404, "not_found");
}

#[test]
fn long_answers_are_gzip_where_it_is_taken() {
    let server = Server::start(&[]);
    let plain = server.get("/v1/models");
    assert!(!plain.headers.contains_key("content-encoding"));
    let packed = server.request("GET", "/v1/models", &[("accept-encoding", "gzip, br")], b"");
    assert_eq!(
        (packed.headers["content-encoding"].as_str(), packed.headers["vary"].as_str()),
        ("gzip", "accept-encoding")
    );
    assert!(packed.body.len() * 4 < plain.body.len());
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
}

#[test]
fn methods_that_a_path_lacks_are_named() {
    let server = Server::start(&[]);
    let head = server.request("HEAD", "/v1/models", &[], b"");
    let get = server.get("/v1/models");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.headers["content-length"], get.headers["content-length"]);
    for (method, path, allowed) in [
        ("POST", "/v1/models", "GET,HEAD"),
        ("OPTIONS", "/v1/simulate", "POST"),
        ("GET", "/v1/predict-step", "POST"),
        ("PUT", "/", "GET,HEAD"),
        ("DELETE", "/healthz", "GET,HEAD"),
    ] {
        let refused = server.request(method, path, &[], b"");
        assert_eq!(refused.headers["allow"], allowed, "{method} {path}");
        refused.fails(405, "method_not_allowed");
        // No other site may read an answer, or ask for more than one that is read.
        let elsewhere = server.request(method, path, &[("origin", "http://example.org")], b"");
        assert!(!elsewhere.headers.keys().any(|name| name.starts_with("access-control")));
        assert_eq!(elsewhere.status, if matches!(method, "GET" | "OPTIONS") { 405 } else { 403 }, "{method} {path}");
    }
    server.get("/v1/nothing").fails(404, "not_found");
    server.get("/v1/models?tp=4").fails(400, "query");
    server.request("POST", "/v1/nothing", JSON, b"{}").fails(404, "not_found");
}
