//! `ridgepoint serve`: a server that is started for a test, and a client that speaks to it over plain sockets.

mod answers;
mod bodies;
mod clients;
mod hostile;
mod limits;
mod page;
mod stopping;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli_support::binary;

/// Longer than any answer takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A server on a free port, which ends with the test.
pub struct Server {
    pub child: Child,
    pub address: String,
    _stdout: BufReader<ChildStdout>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Server {
    pub fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, &[])
    }

    pub fn start_with(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = binary();
        command.args(["serve", "--port", "0"]).args(flags).env_remove("RIDGEPOINT_TOKEN");
        command.envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().rsplit("http://").next().unwrap().trim_end_matches(['"', '}']).to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{line}");
        Server { child, address, _stdout: stdout }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends the bytes of a request on a connection of its own and reads the answer.
    pub fn send(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server may answer and close before it has read everything.
        let _ = stream.write_all(request);
        read_answer(stream)
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.send(&request(method, path, headers, body))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, JSON, body.to_string().as_bytes())
    }

    /// A figure of /metrics; 0 if it is not there yet.
    pub fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.get("/metrics").body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until a figure of /metrics has this value.
    pub fn wait_for(&self, name: &str, value: f64) {
        let end = Instant::now() + PATIENCE;
        while (self.metric(name) - value).abs() > 0.0 {
            assert!(Instant::now() < end, "{name} never became {value}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// A request that ends its connection.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        head += &format!("content-length: {}\r\n", body.len());
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

pub fn read_answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A server that refused a body resets the connection behind its answer.
    let _ = stream.read_to_end(&mut bytes);
    let head_end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let head_end = head_end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<String, String> =
        headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let body = &bytes[head_end + 4..];
    let is_chunked = headers.get("transfer-encoding").is_some_and(|encoding| encoding == "chunked");
    Answer { status, body: if is_chunked { joined(body) } else { body.to_vec() }, headers }
}

/// The chunks of a body in one.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|two| two == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return body;
        }
        body.extend_from_slice(&chunks[end + 2..end + 2 + length]);
        chunks = &chunks[end + 2 + length + 2..];
    }
}

impl Answer {
    /// The JSON of a success.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Asserts an error of this status and kind; returns its message.
    #[track_caller]
    pub fn fails(&self, status: u16, kind: &str) -> String {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        assert_eq!(self.status, status, "{text}");
        assert_eq!(self.headers["content-type"], "application/json");
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(body["error"]["kind"], kind, "{text}");
        assert!(body["error"]["problems"].as_array().is_some_and(|problems| !problems.is_empty()), "{text}");
        body["error"]["message"].as_str().unwrap().to_owned()
    }
}

/// A server of the textbook roofline, which needs no tables, with other keys over it.
pub fn ideal(over: Value) -> Value {
    let mut body = json!({"model": "llama-3.1-8b", "hardware": "h100", "efficiency": "ideal"});
    let Value::Object(over) = over else { panic!("{over}") };
    body.as_object_mut().unwrap().extend(over);
    body
}

/// A replay of minutes.
pub fn long_replay() -> Value {
    let load = json!({"concurrency": 4, "input_len": 100, "output_len": 400, "num_requests": 2_000_000});
    let Value::Object(mut load) = load else { panic!() };
    load.insert("max_model_len".to_owned(), 4096.into());
    ideal(Value::Object(load))
}
