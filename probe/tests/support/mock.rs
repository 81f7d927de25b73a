//! A server of OpenAI's API on std threads, whose replies a test writes byte by byte.
#![allow(dead_code, clippy::indexing_slicing)]

use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Both directions of a connection.
pub trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

/// A request that came in.
pub struct Incoming {
    pub method: String,
    pub path: String,
    pub headers: String,
    pub body: String,
    /// Number of the completion, from 0, over all connections.
    pub number: u64,
}

impl Incoming {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    pub fn max_tokens(&self) -> u64 {
        self.json()["max_tokens"].as_u64().unwrap_or(16)
    }

    /// A word of a prompt is a token.
    pub fn prompt_tokens(&self) -> u64 {
        let json = self.json();
        let text = json["prompt"].as_str().or(json["messages"][0]["content"].as_str()).unwrap_or_default();
        text.split_ascii_whitespace().count() as u64
    }
}

/// What comes after a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum After {
    Keep,
    Close,
}

/// Writes the reply of a completion.
pub type Handler = Arc<dyn Fn(&Incoming, &mut dyn Duplex) -> Result<After> + Send + Sync>;
/// Wraps an accepted connection, as TLS does.
pub type Wrap = Arc<dyn Fn(TcpStream) -> Box<dyn Duplex> + Send + Sync>;

/// A running server. It ends when it is dropped.
pub struct Mock {
    pub address: SocketAddr,
    pub completions: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Mock {
    pub fn start(handler: impl Fn(&Incoming, &mut dyn Duplex) -> Result<After> + Send + Sync + 'static) -> Mock {
        Mock::with("127.0.0.1:0", Arc::new(|stream| Box::new(stream)), Arc::new(handler)).unwrap()
    }

    pub fn with(address: &str, wrap: Wrap, handler: Handler) -> Result<Mock> {
        let listener = TcpListener::bind(address)?;
        let mock = Mock {
            address: listener.local_addr()?,
            completions: Arc::new(AtomicU64::new(0)),
            is_over: Arc::new(AtomicBool::new(false)),
        };
        let (is_over, completions) = (Arc::clone(&mock.is_over), Arc::clone(&mock.completions));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let (wrap, handler, completions) = (Arc::clone(&wrap), Arc::clone(&handler), Arc::clone(&completions));
                std::thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
                    let _ = stream.set_write_timeout(Some(Duration::from_secs(20)));
                    let mut connection = BufReader::new(wrap(stream));
                    while let Ok(Some(incoming)) = read_request(&mut connection, &completions) {
                        match answer(&incoming, connection.get_mut().as_mut(), &handler) {
                            Ok(After::Keep) => {}
                            Ok(After::Close) | Err(_) => break,
                        }
                    }
                });
            }
        });
        Ok(mock)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn read_request(connection: &mut BufReader<Box<dyn Duplex>>, completions: &AtomicU64) -> Result<Option<Incoming>> {
    let mut first = String::new();
    if connection.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut words = first.split_ascii_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut headers, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        connection.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        headers += &line;
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    let number = if method == "POST" { completions.fetch_add(1, Ordering::SeqCst) } else { 0 };
    Ok(Some(Incoming { method, path, headers, body: String::from_utf8_lossy(&body).into_owned(), number }))
}

fn answer(incoming: &Incoming, out: &mut dyn Duplex, handler: &Handler) -> Result<After> {
    match (incoming.method.as_str(), incoming.path.as_str()) {
        ("POST", _) => handler(incoming, out),
        ("GET", "/v1/models") => document(
            out,
            200,
            "application/json",
            r#"{"object": "list", "data": [{"id": "planted", "max_model_len": 8192}]}"#,
        ),
        ("GET", "/version") => document(out, 200, "application/json", r#"{"version": "0.32.0"}"#),
        _ => document(out, 404, "application/json", r#"{"detail": "Not Found"}"#),
    }
}

/// Writes a whole document.
pub fn document(out: &mut dyn Duplex, status: u16, content_type: &str, body: &str) -> Result<After> {
    let length = body.len();
    write!(out, "HTTP/1.1 {status} x\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}")?;
    out.flush()?;
    Ok(After::Keep)
}

/// Begins a stream of events in chunked encoding.
pub fn events(out: &mut dyn Duplex) -> Result<()> {
    out.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    out.flush()
}

/// Writes a piece of a chunked body.
pub fn piece(out: &mut dyn Duplex, text: impl AsRef<[u8]>) -> Result<()> {
    let text = text.as_ref();
    let mut all = format!("{:x}\r\n", text.len()).into_bytes();
    all.extend_from_slice(text);
    all.extend_from_slice(b"\r\n");
    out.write_all(&all)?;
    out.flush()
}

/// Ends a chunked body.
pub fn end(out: &mut dyn Duplex) -> Result<After> {
    out.write_all(b"0\r\n\r\n")?;
    out.flush()?;
    Ok(After::Keep)
}

/// An event with a token.
pub fn token(text: &str) -> String {
    format!("data: {{\"choices\": [{{\"index\": 0, \"text\": \"{text}\", \"finish_reason\": null}}]}}\n\n")
}

/// The events after the last token: a reason, a count, `[DONE]`.
pub fn last(incoming: &Incoming, completion_tokens: u64) -> String {
    let prompt_tokens = incoming.prompt_tokens();
    format!(
        "data: {{\"choices\": [{{\"index\": 0, \"text\": \"\", \"finish_reason\": \"length\"}}]}}\n\n\
         data: {{\"choices\": [], \"usage\": {{\"prompt_tokens\": {prompt_tokens}, \"completion_tokens\": {completion_tokens}}}}}\n\n\
         data: [DONE]\n\n"
    )
}

/// A whole reply with these delays before the first token and before each other.
pub fn stream(incoming: &Incoming, out: &mut dyn Duplex, ttft: Duration, gap: Duration) -> Result<After> {
    events(out)?;
    for index in 0..incoming.max_tokens() {
        std::thread::sleep(if index == 0 { ttft } else { gap });
        piece(out, token("a"))?;
    }
    piece(out, last(incoming, incoming.max_tokens()))?;
    end(out)
}
