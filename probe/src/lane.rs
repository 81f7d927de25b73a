//! A lane sends one request after the other, over one connection while the server keeps it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::HeaderMap;

use crate::connection::{ConnectTimes, Connection, Connector};
use crate::exchange::{CompletionRequest, Exchange, Limits, get};
use crate::fault::{Fault, FaultKind, Remark};
use crate::openai::{Api, Completion};
use crate::record::RequestRecord;

/// Most times that a request is sent again after 429 or 503.
const MAX_RETRIES: u32 = 3;
/// First wait before a request is sent again, where the server does not say; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The state that all lanes share.
pub(crate) struct Client {
    pub(crate) connector: Connector,
    pub(crate) headers: HeaderMap,
    pub(crate) limits: Limits,
    /// Longest wait before a request is sent again.
    pub(crate) max_retry_wait: Duration,
    pub(crate) api: Api,
    pub(crate) ignore_eos: bool,
    /// When the run began.
    pub(crate) begin: Instant,
    /// The server has refused `stream_options`.
    pub(crate) is_plain: AtomicBool,
    pub(crate) in_flight: AtomicU32,
}

/// A prompt to send.
#[derive(Debug, Clone)]
pub(crate) struct Prompt {
    /// Name of the request in the report.
    pub(crate) name: String,
    pub(crate) model: Arc<str>,
    pub(crate) text: String,
    pub(crate) max_tokens: u32,
}

/// A lane.
pub(crate) struct Lane {
    client: Arc<Client>,
    connection: Option<Connection>,
}

impl Lane {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Lane { client, connection: None }
    }

    /// Closes the connection, so that the next request makes a new one.
    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends a request, again where the server asks for it, and records how it went.
    pub(crate) async fn complete(&mut self, prompt: &Prompt) -> RequestRecord {
        let client = Arc::clone(&self.client);
        let in_flight = client.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        let record = self.complete_in_flight(&client, prompt, in_flight).await;
        client.in_flight.fetch_sub(1, Ordering::Relaxed);
        record
    }

    async fn complete_in_flight(&mut self, client: &Client, prompt: &Prompt, in_flight: u32) -> RequestRecord {
        let mut record = RequestRecord::new(&prompt.name, client.begin.elapsed(), in_flight);
        let (mut remarks, mut wait) = (BTreeSet::new(), FIRST_WAIT);
        loop {
            let is_plain = client.is_plain.load(Ordering::Relaxed);
            let was_connected = self.connection.is_some();
            let (mut exchange, times) = match self.connected().await {
                Ok(times) => {
                    // Connecting is not part of the time to the first token.
                    record.started = client.begin.elapsed();
                    (self.exchange(client, prompt, is_plain).await, times)
                }
                Err(fault) => {
                    record.fail(fault);
                    break;
                }
            };
            if was_connected && times.is_some() {
                remarks.insert(Remark::Reconnected);
            }
            record.connect = times.or(record.connect);
            let kind = exchange.reply.as_ref().err().map(|fault| fault.kind);
            match kind {
                Some(FaultKind::Closed | FaultKind::ConnectionReset)
                    if exchange.headers.is_none() && times.is_none() && remarks.insert(Remark::Reconnected) =>
                {
                    continue;
                }
                Some(FaultKind::BadRequest) if !is_plain && !remarks.contains(&Remark::PlainOptions) => {
                    remarks.insert(Remark::PlainOptions);
                    client.is_plain.store(true, Ordering::Relaxed);
                    continue;
                }
                Some(FaultKind::RateLimited | FaultKind::Unavailable) if record.retries < MAX_RETRIES => {
                    record.retries += 1;
                    remarks.insert(Remark::Retried);
                    tokio::time::sleep(exchange.retry_after.take().unwrap_or(wait).min(client.max_retry_wait)).await;
                    wait *= 2;
                    continue;
                }
                _ => {}
            }
            if is_plain {
                remarks.insert(Remark::PlainOptions);
            }
            record.end(exchange);
            break;
        }
        // Requests that fail with and without options are not at odds with the options.
        if record.fault.is_some() && remarks.contains(&Remark::PlainOptions) {
            client.is_plain.store(false, Ordering::Relaxed);
        }
        record.remarks.extend(remarks);
        record
    }

    async fn exchange(&mut self, client: &Client, prompt: &Prompt, is_plain: bool) -> Exchange {
        let completion = Completion {
            api: client.api,
            model: &prompt.model,
            prompt: &prompt.text,
            max_tokens: prompt.max_tokens,
            ignore_eos: client.ignore_eos,
            with_usage: !is_plain,
        };
        let target = &client.connector.target;
        let ask = CompletionRequest {
            target,
            headers: &client.headers,
            path: target.path(&format!("/v1/{}", client.api.path())),
            body: completion.body(),
            max_tokens: prompt.max_tokens,
            limits: client.limits,
        };
        let Some(mut connection) = self.connection.take() else {
            return Exchange::failed(Fault::new(FaultKind::Closed, "no connection"));
        };
        let exchange = ask.send(&mut connection).await;
        if exchange.is_reusable {
            self.connection = Some(connection);
        }
        exchange
    }

    /// Gets a document.
    pub(crate) async fn get(&mut self, endpoint: &str, limit: Duration) -> Result<Bytes, Fault> {
        let client = Arc::clone(&self.client);
        let target = &client.connector.target;
        let mut result = Err(Fault::new(FaultKind::Closed, ""));
        // A server may have closed the idle connection.
        for _ in 0..2 {
            let is_fresh = self.connected().await?.is_some();
            let Some(mut connection) = self.connection.take() else { break };
            result = get(&mut connection, (target, &target.path(endpoint), &client.headers), limit).await;
            match &result {
                Ok(_) => self.connection = Some(connection),
                Err(fault) if !is_fresh && matches!(fault.kind, FaultKind::Closed | FaultKind::ConnectionReset) => {
                    continue;
                }
                Err(_) => {}
            }
            break;
        }
        result
    }

    /// Connects where there is no connection. Returns the times of a new one.
    async fn connected(&mut self) -> Result<Option<ConnectTimes>, Fault> {
        if let Some(connection) = &mut self.connection
            && connection.ready().await.is_ok()
        {
            return Ok(None);
        }
        let (connection, times) = self.client.connector.connect().await?;
        self.connection = Some(connection);
        Ok(Some(times))
    }
}
