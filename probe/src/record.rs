//! The record of one request.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use crate::connection::{ConnectTimes, ms};
use crate::exchange::Exchange;
use crate::fault::{Fault, Remark};
use crate::stats::Spread;
use crate::stream::TokenChunk;

/// One request. Times are from when it was sent over a connection that was ready, so that connecting is not part of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RequestRecord {
    /// Its name, such as `cold_1`.
    pub name: String,
    /// `ok`, or the name of a fault.
    pub outcome: &'static str,
    /// The detail of the fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How long the connection took; `None` where one was there.
    pub connect: Option<ConnectTimes>,
    /// To the reply's headers, ms.
    pub headers_ms: Option<f64>,
    /// To the first chunk with a token, ms.
    pub ttft_ms: Option<f64>,
    /// Times between tokens, ms. Of a chunk of n tokens each is an n-th of the gap before it.
    pub itl_ms: Option<Spread>,
    /// To the end of the reply, ms.
    pub wall_ms: Option<f64>,
    /// Prompt tokens, by the server.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens out of the prefix cache, by the server.
    pub cached_tokens: Option<u64>,
    /// Output tokens.
    pub completion_tokens: Option<u64>,
    /// Why the output ended.
    pub finish_reason: Option<String>,
    /// How often it was sent again after 429 or 503.
    pub retries: u32,
    /// Oddities of the reply.
    pub remarks: BTreeSet<Remark>,
    /// The output's first characters.
    pub preview: String,
    /// The fault, if it failed.
    #[serde(skip)]
    pub(crate) fault: Option<Fault>,
    /// When it was sent, since the run began.
    #[serde(skip)]
    pub(crate) started: Duration,
    /// Requests in flight when it was sent, itself included.
    #[serde(skip)]
    pub(crate) in_flight: u32,
    #[serde(skip)]
    pub(crate) chunks: Vec<TokenChunk>,
}

impl RequestRecord {
    pub(crate) fn new(name: &str, started: Duration, in_flight: u32) -> Self {
        RequestRecord { name: name.to_owned(), outcome: "ok", started, in_flight, ..RequestRecord::default() }
    }

    /// Whether the reply was read to its end.
    pub fn is_ok(&self) -> bool {
        self.fault.is_none()
    }

    /// The fault, if it failed.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    pub(crate) fn fail(&mut self, fault: Fault) {
        self.outcome = fault.kind.name();
        self.detail = Some(fault.detail.clone());
        self.fault = Some(fault);
    }

    /// Takes over what came back.
    pub(crate) fn end(&mut self, exchange: Exchange) {
        self.headers_ms = exchange.headers.map(ms);
        self.wall_ms = Some(ms(exchange.wall));
        let reply = match exchange.reply {
            Ok(reply) => reply,
            Err(fault) => return self.fail(fault),
        };
        self.ttft_ms = reply.chunks.first().map(|first| ms(first.at));
        self.prompt_tokens = reply.prompt_tokens;
        self.cached_tokens = reply.cached_tokens;
        self.completion_tokens = Some(reply.completion_tokens);
        self.finish_reason = reply.finish_reason;
        self.preview = reply.preview;
        self.remarks = reply.remarks;
        self.chunks = reply.chunks;
        self.itl_ms = Spread::of(self.token_gaps_ms());
    }

    /// Times between tokens, ms; none of a reply that came all at once.
    pub fn token_gaps_ms(&self) -> Vec<f64> {
        if self.remarks.contains(&Remark::Buffered) {
            return Vec::new();
        }
        let gaps = self.chunk_gaps_ms().flat_map(|(gap_ms, tokens)| {
            let count = usize::try_from(tokens).unwrap_or(usize::MAX);
            std::iter::repeat_n(gap_ms / tokens as f64, count)
        });
        gaps.collect()
    }

    /// Times between chunks, ms, with the tokens of the chunk that closes each.
    pub(crate) fn chunk_gaps_ms(&self) -> impl Iterator<Item = (f64, u64)> {
        let later = self.chunks.iter().skip(1);
        self.chunks.iter().zip(later).map(|(one, next)| (ms(next.at.saturating_sub(one.at)), next.tokens))
    }
}
