//! One connection to the server: name look-up, TCP and TLS, each timed and each within a limit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::fault::{Fault, FaultKind};
use crate::target::Target;
use crate::tls::handshake_fault;

/// Most bytes of a reply's headers.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// Most headers of a reply.
const MAX_HEADERS: usize = 100;

/// How long a connection took, ms.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ConnectTimes {
    /// To look up the name.
    pub dns_ms: f64,
    /// To connect to the address.
    pub tcp_ms: f64,
    /// To end the TLS handshake; `None` without TLS.
    pub tls_ms: Option<f64>,
}

impl ConnectTimes {
    /// All of it, ms.
    pub fn total_ms(&self) -> f64 {
        self.dns_ms + self.tcp_ms + self.tls_ms.unwrap_or(0.0)
    }
}

/// A connection over which requests can be sent, one at a time.
pub(crate) type Connection = SendRequest<Full<Bytes>>;

/// Makes connections.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) target: Target,
    pub(crate) tls: Arc<ClientConfig>,
    /// Limit of all that comes before a request can be sent.
    pub(crate) limit: Duration,
}

impl Connector {
    /// Connects.
    ///
    /// # Errors
    /// A fault on the way to the server, or the limit.
    pub(crate) async fn connect(&self) -> Result<(Connection, ConnectTimes), Fault> {
        let Target { host, port, is_tls, .. } = &self.target;
        let begin = Instant::now();
        let deadline = begin + self.limit;
        let late = |kind, what: &str| Fault::new(kind, format!("{what}: more than {} s", self.limit.as_secs_f64()));
        let found = timeout_at(deadline.into(), lookup_host((host.as_str(), *port))).await;
        let found = found.map_err(|_| late(FaultKind::ConnectTimeOut, "name look-up"))?;
        let addresses: Vec<SocketAddr> = found.map_err(|error| Fault::new(FaultKind::Dns, error))?.collect();
        let mut times = ConnectTimes { dns_ms: ms(begin.elapsed()), ..ConnectTimes::default() };

        let begin = Instant::now();
        let mut failed = Fault::new(FaultKind::Dns, format!("{host} has no address"));
        let mut tcp = None;
        for address in addresses {
            match timeout_at(deadline.into(), TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    tcp = Some(stream);
                    break;
                }
                Ok(Err(error)) => failed = connect_fault(address, &error),
                Err(_) => return Err(late(FaultKind::ConnectTimeOut, &address.to_string())),
            }
        }
        let tcp = tcp.ok_or(failed)?;
        // Small writes leave at once. A socket that cannot do so is a little slower.
        let _ = tcp.set_nodelay(true);
        times.tcp_ms = ms(begin.elapsed());
        if !is_tls {
            return Ok((speak(tcp).await?, times));
        }
        let begin = Instant::now();
        let name = ServerName::try_from(host.clone()).map_err(|error| Fault::new(FaultKind::TlsFailed, error))?;
        let handshake = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp);
        let stream = match timeout_at(deadline.into(), handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(handshake_fault(&error)),
            Err(_) => return Err(late(FaultKind::TlsTimeOut, "TLS handshake")),
        };
        times.tls_ms = Some(ms(begin.elapsed()));
        Ok((speak(stream).await?, times))
    }
}

/// Begins to speak HTTP/1.1.
async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> Result<Connection, Fault> {
    let mut builder = Builder::new();
    builder.max_buf_size(MAX_HEADER_BYTES).max_headers(MAX_HEADERS);
    let spoken = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = spoken.map_err(|error| Fault::new(FaultKind::NotHttp, error))?;
    // The sender sees its errors too.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn connect_fault(address: SocketAddr, error: &io::Error) -> Fault {
    let kind = match error.kind() {
        io::ErrorKind::ConnectionRefused => FaultKind::ConnectionRefused,
        io::ErrorKind::ConnectionReset => FaultKind::ConnectionReset,
        io::ErrorKind::TimedOut => FaultKind::ConnectTimeOut,
        _ => FaultKind::Unreachable,
    };
    Fault::new(kind, format!("{address}: {error}"))
}

/// A duration in milliseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
