//! Servers that misbehave: each ends with a named result in bounded time, and nothing hangs or panics.
#![expect(clippy::unwrap_used, clippy::print_stdout)]

#[path = "misbehaviour/cases.rs"]
mod cases;
#[path = "support/mod.rs"]
mod support;

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cases::{Case, of_bodies, of_heads, of_remarks, short};
use ridgepoint_probe::{Limits, Settings, Target, Trust, probe};
use support::mock::{Handler, Mock, Wrap, stream};
use support::tls::{authority, certificate, wrap};

/// Time in which every case must have ended, on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

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

/// A case to run.
type Job<'a> = Box<dyn Fn() + Send + Sync + 'a>;

/// Runs jobs, a few at a time.
fn all(jobs: &[(&'static str, Job<'_>)]) {
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
    let jobs: Vec<_> = cases.iter().map(|case| (case.name, Box::new(move || job(case)) as Job<'_>)).collect();
    all(&jobs);
}

/// A socket with a port of its own that does not listen yet.
fn bound() -> (socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

#[test]
fn connections_that_fail_have_a_name() {
    // A socket that does not listen refuses connections, and no other test can take its port.
    let (silent, address) = bound();
    check("refused", &["connection_refused"], &settings(&format!("http://{address}"), short()));
    drop(silent);
    check("no such name", &["dns", "connect_time_out"], &settings("http://no-such-host.invalid", short()));

    // A listener whose queue is full answers no one.
    let (full, address) = bound();
    full.listen(0).unwrap();
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
        ("an authority's own", "localhost", 2100, true, "tls_authority"),
    ] {
        let certificate = if expected == "tls_authority" { authority(host) } else { certificate(host, last_year) };
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
