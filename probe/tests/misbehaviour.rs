//! Servers that misbehave: each ends with a named result in bounded time, and nothing hangs or panics.
#![expect(clippy::unwrap_used, clippy::panic)]

#[path = "support/mod.rs"]
mod support;

use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ridgepoint_probe::{Limits, Settings, Target, Trust, probe};
use support::mock::{After, Duplex, Handler, Incoming, Mock, Wrap, document, end, events, last, piece, stream, token};
use support::tls::{certificate, wrap};

/// Time in which every case must have ended, on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// Limits of servers that never answer.
fn short() -> Limits {
    let ms = Duration::from_millis;
    Limits { connect: ms(300), first_token: ms(400), idle: ms(300), total: ms(1200) }
}

/// A server and what its report must say: an outcome, or a remark on requests that are ok.
struct Case {
    name: &'static str,
    expected: &'static str,
    limits: Limits,
    handler: Handler,
}

fn case(
    name: &'static str,
    expected: &'static str,
    handler: impl Fn(&Incoming, &mut dyn Duplex) -> Result<After> + Send + Sync + 'static,
) -> Case {
    Case { name, expected, limits: Limits::default(), handler: Arc::new(handler) }
}

/// A case that a limit ends.
fn late(
    name: &'static str,
    expected: &'static str,
    handler: impl Fn(&Incoming, &mut dyn Duplex) -> Result<After> + Send + Sync + 'static,
) -> Case {
    Case { limits: short(), ..case(name, expected, handler) }
}

/// A case of a status with a JSON error.
fn status(name: &'static str, expected: &'static str, status: u16) -> Case {
    case(name, expected, move |_, out| {
        document(out, status, "application/json", r#"{"error": {"message": "because"}}"#)
    })
}

/// A case of a stream with these events.
fn body(name: &'static str, expected: &'static str, text: &'static [u8]) -> Case {
    case(name, expected, move |_, out| {
        events(out)?;
        piece(out, text)?;
        end(out)
    })
}

/// A case of bytes in place of a reply, after which the connection is closed.
fn raw(name: &'static str, expected: &'static str, text: &'static [u8]) -> Case {
    case(name, expected, move |_, out| {
        out.write_all(text)?;
        out.flush()?;
        Ok(After::Close)
    })
}

/// Writes until the other side has had enough.
fn drip(out: &mut dyn Duplex, text: &str, times: u32) -> Result<After> {
    for _ in 0..times {
        out.write_all(text.as_bytes())?;
        out.flush()?;
        sleep(Duration::from_millis(50));
    }
    Ok(After::Close)
}

const DONE: &str = "data: [DONE]\n\n";
const A: &str = "data: {\"choices\": [{\"index\": 0, \"text\": \"a\"}]}\n\n";
const END: &str = "data: {\"choices\": [{\"index\": 0, \"text\": \"\", \"finish_reason\": \"length\"}]}\n\n";

/// Statuses and headers.
fn of_heads() -> Vec<Case> {
    vec![
        status("401", "unauthorised", 401),
        status("403", "forbidden", 403),
        status("404", "not_found", 404),
        status("400", "bad_request", 400),
        status("422", "bad_request", 422),
        status("500", "server_error", 500),
        status("418", "unexpected_status", 418),
        status("429 for ever", "rate_limited", 429),
        status("503 for ever", "unavailable", 503),
        case("502 with a page", "server_error", |_, out| document(out, 502, "text/html", "<html>Bad Gateway</html>")),
        raw("204", "unexpected_status", b"HTTP/1.1 204 No Content\r\n\r\n"),
        case("429 once, with Retry-After", "retried", |incoming, out| {
            if incoming.number == 0 {
                out.write_all(b"HTTP/1.1 429 x\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n")?;
                return Ok(After::Keep);
            }
            stream(incoming, out, Duration::ZERO, Duration::ZERO)
        }),
        case("503 once, without Retry-After", "retried", |incoming, out| {
            if incoming.number == 0 {
                return document(out, 503, "text/plain", "loading");
            }
            stream(incoming, out, Duration::ZERO, Duration::ZERO)
        }),
        case("429 that asks for an hour", "retried", |incoming, out| {
            if incoming.number == 0 {
                out.write_all(b"HTTP/1.1 429 x\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n")?;
                return Ok(After::Keep);
            }
            stream(incoming, out, Duration::ZERO, Duration::ZERO)
        }),
        case("refuses stream_options", "plain_options", |incoming, out| {
            if incoming.body.contains("stream_options") {
                return document(out, 400, "application/json", r#"{"error": "unknown field"}"#);
            }
            stream(incoming, out, Duration::ZERO, Duration::ZERO)
        }),
        raw(
            "a redirect to itself",
            "redirect",
            b"HTTP/1.1 302 x\r\nlocation: /v1/completions\r\ncontent-length: 0\r\n\r\n",
        ),
        case("a giant header", "headers_too_large", |_, out| {
            write!(out, "HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20))?;
            Ok(After::Close)
        }),
        case("a thousand headers", "headers_too_large", |_, out| {
            write!(out, "HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(1000))?;
            Ok(After::Close)
        }),
        raw("a banner of ssh", "not_http", b"SSH-2.0-OpenSSH_9.2\r\n"),
        raw("no reply at all", "closed", b""),
        raw("half a header", "closed", b"HTTP/1.1 200 OK\r\ncontent-"),
        late("no reply, and the connection stays", "first_token_time_out", |_, _| {
            sleep(Duration::from_secs(2));
            Ok(After::Close)
        }),
        late("headers byte by byte", "first_token_time_out", |_, out| drip(out, "H", 60)),
        case("a connection that closes when idle", "reconnected", |incoming, out| {
            stream(incoming, out, Duration::ZERO, Duration::ZERO)?;
            Ok(if incoming.number == 0 { After::Keep } else { After::Close })
        }),
    ]
}

/// Bodies that are no stream of a completion.
fn of_bodies() -> Vec<Case> {
    vec![
        case("a page", "html", |_, out| document(out, 200, "text/html", "<!doctype html><title>Sign in</title>")),
        case("JSON that does not stream", "not_streaming", |_, out| {
            document(
                out,
                200,
                "application/json",
                r#"{"choices": [{"text": "all of it"}], "usage": {"completion_tokens": 3}}"#,
            )
        }),
        case("an error with status 200", "error_event", |_, out| {
            document(out, 200, "application/json", r#"{"error": {"message": "no"}}"#)
        }),
        case("plain text", "not_events", |_, out| document(out, 200, "text/plain", "OK")),
        case("other JSON", "not_events", |_, out| document(out, 200, "application/json", r#"{"status": "up"}"#)),
        raw(
            "gzip by header",
            "compressed",
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
        ),
        body("gzip without a header", "compressed", b"\x1f\x8b\x08\x00\x00"),
        body("an empty body", "cut_stream", b": only a comment\n\n"),
        body("invalid UTF-8", "invalid_utf8", b"data: {\"choices\": [{\"text\": \"\xff\xfe\"}]}\n\n"),
        body("invalid JSON", "invalid_json", b"data: {choices}\n\n"),
        body("an event of another shape", "invalid_json", b"data: [1, 2, 3]\n\n"),
        body(
            "an error in the stream",
            "error_event",
            b"data: {\"error\": {\"message\": \"CUDA out of memory\", \"code\": 500}}\n\n",
        ),
        body("an event of the name error", "error_event", b"event: error\ndata: overloaded\n\n"),
        case("a giant line", "line_too_long", |_, out| {
            events(out)?;
            piece(out, "data: ")?;
            (0..40).try_for_each(|_| piece(out, "x".repeat(1 << 16)))?;
            end(out)
        }),
        case("no token at all", "no_tokens", |_, out| {
            events(out)?;
            piece(out, format!("{END}{DONE}"))?;
            end(out)
        }),
        case("a stream that is cut", "cut_stream", |_, out| {
            events(out)?;
            piece(out, A)?;
            Ok(After::Close)
        }),
        case("a stream that ends early", "cut_stream", |_, out| {
            events(out)?;
            piece(out, A)?;
            end(out)
        }),
        raw(
            "fewer bytes than announced",
            "cut_stream",
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\ndata: ",
        ),
        raw(
            "a chunk without a size",
            "broken_transfer",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        ),
        case("tokens without end", "endless_stream", |_, out| {
            events(out)?;
            loop {
                piece(out, A.repeat(10))?;
            }
        }),
        late("tokens without end, slowly", "total_time_out", |_, out| {
            events(out)?;
            loop {
                piece(out, A)?;
                sleep(Duration::from_millis(50));
            }
        }),
        late("keep-alives alone", "first_token_time_out", |_, out| {
            events(out)?;
            for _ in 0..60 {
                piece(out, ": keep-alive\n\n")?;
                sleep(Duration::from_millis(50));
            }
            end(out)
        }),
        late("one token, then silence", "idle_time_out", |_, out| {
            events(out)?;
            piece(out, A)?;
            sleep(Duration::from_secs(2));
            Ok(After::Close)
        }),
        late("one token, then bytes one by one", "idle_time_out", |_, out| {
            events(out)?;
            piece(out, A)?;
            for _ in 0..60 {
                piece(out, "d")?;
                sleep(Duration::from_millis(50));
            }
            end(out)
        }),
    ]
}

/// Streams that are read to their end, with a remark.
fn of_remarks() -> Vec<Case> {
    fn of(
        name: &'static str,
        remark: &'static str,
        text: impl Fn(&Incoming) -> String + Send + Sync + 'static,
    ) -> Case {
        case(name, remark, move |incoming, out| {
            events(out)?;
            piece(out, text(incoming))?;
            end(out)
        })
    }
    vec![
        of("all tokens at once", "buffered", |incoming| token("a").repeat(4) + &last(incoming, 4)),
        of("no [DONE]", "no_done", |incoming| token("a").repeat(4) + &last(incoming, 4).replace(DONE, "")),
        of("events after [DONE]", "after_done", |incoming| A.repeat(4) + &last(incoming, 4) + A),
        of("no usage", "no_usage", |_| A.repeat(4) + END + DONE),
        of("no reason for the end", "no_finish_reason", |_| A.repeat(4) + DONE),
        of("a usage below its chunks", "wrong_usage", |incoming| A.repeat(4) + &last(incoming, 1)),
        of("fewer tokens", "fewer_tokens", |incoming| A.to_owned() + &last(incoming, 1)),
        of("more tokens", "more_tokens", |incoming| A.repeat(9) + &last(incoming, 9)),
        of("tokens without text", "empty_tokens", |incoming| token("").repeat(3) + A + &last(incoming, 4)),
        of("two choices", "several_choices", |incoming| {
            A.repeat(4) + &A.replace("\"index\": 0", "\"index\": 1") + &last(incoming, 4)
        }),
        case("several tokens a chunk", "several_tokens", |incoming, out| {
            events(out)?;
            piece(out, A)?;
            sleep(Duration::from_millis(20));
            piece(out, A.repeat(3))?;
            piece(out, last(incoming, 4))?;
            end(out)
        }),
        case("another content type", "content_type", |incoming, out| {
            out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")?;
            piece(out, A.repeat(4) + &last(incoming, 4))?;
            end(out)
        }),
        case("HTTP/1.0", "http_1_0", |incoming, out| {
            out.write_all(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")?;
            out.write_all((A.repeat(4) + &last(incoming, 4)).as_bytes())?;
            Ok(After::Close)
        }),
        case("no end of the body", "open_after_done", |incoming, out| {
            events(out)?;
            piece(out, A.repeat(4) + &last(incoming, 4))?;
            sleep(Duration::from_secs(3));
            Ok(After::Close)
        }),
        case("a cut after [DONE]", "broken_end", |incoming, out| {
            events(out)?;
            piece(out, A.repeat(4) + &last(incoming, 4))?;
            Ok(After::Close)
        }),
        of("lines that end with CR", "ok", |incoming| (A.repeat(4) + &last(incoming, 4)).replace('\n', "\r")),
        case("an event in many pieces", "ok", |incoming, out| {
            events(out)?;
            (A.repeat(4) + &last(incoming, 4)).as_bytes().chunks(7).try_for_each(|part| piece(out, part))?;
            end(out)
        }),
    ]
}

/// Probes one server, with the model named so that nothing else has to work.
fn settings(url: &str, limits: Limits) -> Settings {
    let target = Target::parse(url).unwrap();
    Settings {
        model: Some("m".to_owned()),
        max_tokens: 4,
        num_warm: 1,
        limits,
        max_retry_wait: Duration::from_millis(50),
        ..Settings::new(target)
    }
}

/// Runs a probe; the report must have the outcome or remark, and no other outcome than that and `ok`.
fn check(name: &str, expected: &[&str], settings: &Settings) {
    let begin = Instant::now();
    let report = probe(settings, Arc::new(|| ())).unwrap();
    assert!(begin.elapsed() < BOUND, "{name}: {:?}", begin.elapsed());
    let (outcomes, remarks) = (report.outcomes(), report.remarks());
    let is_found = |of: &&str| outcomes.contains_key(*of) || remarks.contains_key(*of);
    let found = expected.iter().find(|of| is_found(of));
    assert!(found.is_some(), "{name}: {outcomes:?} {remarks:?} {:?}", report.cold);
    assert!(outcomes.keys().all(|of| *of == "ok" || expected.contains(of)), "{name}: {outcomes:?}");
    // Whether any warm request succeeded decides the exit code.
    assert_eq!(report.has_warm(), outcomes.contains_key("ok"), "{name}");
    serde_json::to_string(&report).unwrap();
}

/// Runs jobs, a few at a time.
fn all(jobs: &[(&'static str, Box<dyn Fn() + Send + Sync + '_>)]) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some((name, job)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    println!("{name}");
                    job();
                }
            });
        }
    });
}

#[test]
fn each_misbehaviour_has_a_name() {
    let cases: Vec<Case> = [of_heads(), of_bodies(), of_remarks()].into_iter().flatten().collect();
    assert!(cases.len() >= 60, "{}", cases.len());
    let job = |case: &Case| {
        let plain: Wrap = Arc::new(|stream| Box::new(stream));
        let mock = Mock::with("127.0.0.1:0", plain, Arc::clone(&case.handler)).unwrap();
        check(case.name, &[case.expected], &settings(&mock.url(), case.limits));
    };
    let jobs: Vec<_> =
        cases.iter().map(|case| (case.name, Box::new(move || job(case)) as Box<dyn Fn() + Send + Sync>)).collect();
    all(&jobs);
}

#[test]
fn connections_that_fail_have_a_name() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check("refused", &["connection_refused"], &settings(&format!("http://{}", free()), short()));
    check("no such name", &["dns", "connect_time_out"], &settings("http://no-such-host.invalid", short()));

    // A listener whose queue is full answers no one.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let queued: Vec<_> =
        (0..4).filter_map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect();
    check("a full queue", &["connect_time_out"], &settings(&format!("http://{address}"), short()));
    drop(queued);

    // A connection that is closed before all of the request is read is reset.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(20).flatten() {
            let mut stream: TcpStream = stream;
            let _ = stream.read(&mut [0; 1]);
        }
    });
    check("reset", &["connection_reset", "closed"], &settings(&format!("http://{address}"), short()));
}

#[test]
fn certificates_that_are_wrong_have_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let ok: Handler = Arc::new(|incoming, out| stream(incoming, out, Duration::ZERO, Duration::ZERO));
    let limits = Limits { connect: Duration::from_secs(10), ..Limits::default() };
    for (name, host, last_year, trusts, expected) in [
        ("good", "localhost", 2100, true, "ok"),
        ("self-signed", "localhost", 2100, false, "tls_unknown_issuer"),
        ("expired", "localhost", 2020, true, "tls_expired"),
        ("of another host", "elsewhere.example", 2100, true, "tls_wrong_name"),
    ] {
        let certificate = certificate(host, last_year);
        let mock = Mock::with("127.0.0.1:0", wrap(&certificate), Arc::clone(&ok)).unwrap();
        let path = folder.path().join(format!("{name}.pem"));
        std::fs::write(&path, &certificate.authority_pem).unwrap();
        let url = format!("https://localhost:{}", mock.address.port());
        let trust = if trusts { Trust::File(path) } else { Trust::System };
        check(name, &[expected], &Settings { trust, ..settings(&url, limits) });
        check(name, &["ok"], &Settings { trust: Trust::Anything, ..settings(&url, limits) });
    }

    let certificate = certificate("localhost", 2100);
    let mock = Mock::with("127.0.0.1:0", wrap(&certificate), Arc::clone(&ok)).unwrap();
    check("http to a port of TLS", &["not_http", "closed"], &settings(&format!("http://{}", mock.address), limits));
    let plain = Mock::start(|incoming, out| stream(incoming, out, Duration::ZERO, Duration::ZERO));
    check(
        "TLS to a port of http",
        &["not_tls", "tls_failed"],
        &settings(&format!("https://{}", plain.address), Limits { connect: Duration::from_secs(3), ..limits }),
    );

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    check("a handshake that hangs", &["tls_time_out"], &settings(&url, short()));

    let missing = Settings { trust: Trust::File("no-such.pem".into()), ..settings(&url, short()) };
    assert!(probe(&missing, Arc::new(|| ())).unwrap_err().starts_with("no-such.pem: "));
}

#[test]
fn ipv6_is_spoken() {
    let plain: Wrap = Arc::new(|stream| Box::new(stream));
    let handler: Handler = Arc::new(|incoming, out| stream(incoming, out, Duration::ZERO, Duration::ZERO));
    match Mock::with("[::1]:0", plain, handler) {
        Ok(mock) => check("IPv6", &["ok"], &settings(&mock.url(), Limits::default())),
        Err(error) => println!("skipped: no IPv6 here: {error}"),
    }
}
