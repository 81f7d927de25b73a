//! Loads a running `ridgepoint serve`: requests as fast as they are answered or at a rate, while other clients are idle or slow.
//! `benches/serve.sh` runs it: `serve_load ADDRESS SECONDS CONNECTIONS RATE IDLE`. At a rate, a request counts from the time at which it
//! was due, so that a slow answer delays none of the others unseen.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const BODY: &str = r#"{"model": "llama-3.1-8b", "hardware": "h100", "decode": ["64x2048"], "prefill": ["512@1024"]}"#;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, seconds, connections, rate, idle] = args.as_slice() else {
        println!("serve_load ADDRESS SECONDS CONNECTIONS RATE IDLE");
        return;
    };
    let (seconds, rate): (f64, f64) = (seconds.parse().unwrap(), rate.parse().unwrap());
    let (connections, idle): (usize, usize) = (connections.parse().unwrap(), idle.parse().unwrap());
    let held = hold(address, idle);
    let start = Instant::now() + Duration::from_millis(100);
    let clients: Vec<_> = (0..connections)
        .map(|of| {
            let (address, gap_s) = (address.clone(), connections as f64 / rate);
            let first = if rate > 0.0 { of as f64 / rate } else { 0.0 };
            thread::spawn(move || client(&address, start, first, gap_s, seconds))
        })
        .collect();
    let mut took_s: Vec<f64> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    took_s.sort_by(f64::total_cmp);
    let at = |share: f64| took_s[((took_s.len() - 1) as f64 * share) as usize] * 1e3;
    println!(
        "{:.0} requests/s, p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, most {:.1} ms",
        took_s.len() as f64 / seconds,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    drop(held);
}

/// Clients of which a third sends nothing, a third part of a head, and a third part of a body.
fn hold(address: &str, number: usize) -> Vec<TcpStream> {
    let starts = [
        "",
        "GET /healthz HTTP/1.1\r\nhos",
        "POST /v1/simulate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{",
    ];
    (0..number)
        .map(|index| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(starts[index % 3].as_bytes()).unwrap();
            stream
        })
        .collect()
}

/// Sends requests one after another; returns how long each took, s.
fn client(address: &str, start: Instant, first_s: f64, gap_s: f64, seconds: f64) -> Vec<f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut answers = BufReader::with_capacity(1 << 16, stream.try_clone().unwrap());
    let request = format!(
        "POST /v1/predict-step HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let (end, is_paced) = (start + Duration::from_secs_f64(seconds), gap_s.is_finite());
    let mut due = start + Duration::from_secs_f64(first_s);
    let (mut took_s, mut body) = (Vec::new(), Vec::new());
    while due < end {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(request.as_bytes()).unwrap();
        let (mut length, mut line) = (0, String::new());
        while line != "\r\n" {
            line.clear();
            answers.read_line(&mut line).unwrap();
            assert!(!line.starts_with("HTTP/1.1 ") || line.starts_with("HTTP/1.1 200"), "{line}");
            length = line.strip_prefix("content-length: ").map_or(length, |number| number.trim().parse().unwrap());
        }
        body.resize(length, 0);
        answers.read_exact(&mut body).unwrap();
        took_s.push(due.elapsed().as_secs_f64());
        due = if is_paced { due + Duration::from_secs_f64(gap_s) } else { Instant::now() };
    }
    took_s
}
