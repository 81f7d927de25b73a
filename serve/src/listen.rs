//! Connections: their number, the time that a client may take for headers and for reading, and their graceful end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep, timeout};

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

/// Serves connections until `stop` says so; then answers the requests that run, for at most `grace`.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    app: Arc<App>,
    max_connections: usize,
    mut stop: watch::Receiver<bool>,
    grace: Duration,
) {
    let places = Arc::new(Semaphore::new(max_connections));
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(MAX_HEADER_BYTES);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|is_set| *is_set) => break,
        };
        let Ok((stream, _)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Answers are written whole: waiting to join them with more only delays them.
        let _ = stream.set_nodelay(true);
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tokio::spawn(refuse(stream));
            continue;
        };
        let service = TowerToHyperService::new(routes.clone());
        let connection = graceful.watch(http.serve_connection(TokioIo::new(Patient::new(stream)), service));
        let counted = app.metrics.connection();
        tokio::spawn(async move {
            // A client that sends nonsense, or leaves, ends its own connection alone.
            let _ = connection.await;
            drop((counted, place));
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

/// A connection that fails if its client reads nothing for a while.
struct Patient {
    stream: TcpStream,
    /// Runs while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream) -> Self {
        Patient { stream, deadline: None }
    }

    /// Passes a write's progress on; one that waits for too long fails.
    fn watched<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline = None;
            return polled;
        }
        let deadline =
            self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + WRITE_TIME)));
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watched(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
