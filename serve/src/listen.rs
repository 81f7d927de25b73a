//! Connections: their number, the time that a client may take for headers and for reading, and their graceful end.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tower_http::add_extension::AddExtension;

use crate::app::App;

/// Longest wait for the headers of a request, and so the longest time that a connection is idle.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Longest time in which a client reads nothing of an answer.
const WRITE_TIME: Duration = Duration::from_secs(20);
/// Most bytes of the headers of a request, and of what is read ahead.
const MAX_HEADER_BYTES: usize = 32 * 1024;
/// Wait after a connection could not be accepted, for instance as there are too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The body of what a connection beyond the limit gets.
const TOO_MANY: &str = r#"{"error":{"kind":"busy","message":"too many connections are open","problems":["too many connections are open"]}}"#;

/// The address of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// Serves connections until `stop` says so; then answers the requests that run, for at most `grace`.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    app: Arc<App>,
    max_connections: usize,
    mut stop: watch::Receiver<bool>,
    grace: Duration,
) {
    let open = Arc::new(Semaphore::new(max_connections));
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(MAX_HEADER_BYTES);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|is_set| *is_set) => break,
        };
        let Ok((stream, address)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Answers are written whole: waiting to join them with more only delays them.
        let _ = stream.set_nodelay(true);
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else {
            tokio::spawn(refuse(stream));
            continue;
        };
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_TIME));
        let service = AddExtension::new(routes.clone(), Peer(address.ip().to_canonical()));
        let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(service));
        let connection = graceful.watch(connection);
        let counted = app.metrics.connection();
        tokio::spawn(async move {
            // A client that sends nonsense, or leaves, ends its own connection alone.
            let _ = connection.await;
            drop((counted, permit));
        });
    }
    drop(listener);
    let _ = timeout(grace, graceful.shutdown()).await;
}

async fn refuse(mut stream: TcpStream) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{TOO_MANY}",
        TOO_MANY.len()
    );
    let _ = timeout(HEADER_TIME, stream.write_all(answer.as_bytes())).await;
}
