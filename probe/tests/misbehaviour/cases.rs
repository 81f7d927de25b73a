//! The table of misbehaving servers.

use std::io::Result;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use ridgepoint_probe::Limits;

use crate::support::mock::{After, Duplex, Handler, Incoming, document, end, events, last, piece, stream, token};

/// Limits of servers that never answer.
pub fn short() -> Limits {
    let ms = Duration::from_millis;
    Limits { connect: ms(300), first_token: ms(400), idle: ms(300), total: ms(1200) }
}

/// A server and what its report must say: an outcome, or a remark on requests that are ok.
pub struct Case {
    pub name: &'static str,
    pub expected: &'static str,
    pub limits: Limits,
    pub handler: Handler,
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
pub fn of_heads() -> Vec<Case> {
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
pub fn of_bodies() -> Vec<Case> {
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
pub fn of_remarks() -> Vec<Case> {
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
