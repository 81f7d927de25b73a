//! Tokens of a real engine as records: when they came out, and in which step.

use serde::{Deserialize, Serialize};

use super::step::Run;

/// Most tokens that come out at once, in what is read and in what is written.
pub(super) const MAX_CHUNK_TOKENS: u32 = 1 << 16;

/// Tokens of a request that came out at once, with its fields in the order of the token table's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chunk {
    /// When they came out, ns on the clock of the request's times.
    pub time_ns: u64,
    /// Their number, 1 to 65,536.
    pub num_tokens: u32,
    /// Running requests in the step that sampled them.
    pub num_running: Option<u32>,
    /// Prompt tokens of the requests whose prefill ended in that step.
    pub prefill_tokens: Option<u32>,
}

/// The tokens of a request, in the order in which they came out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestTokens {
    /// The request.
    pub request_id: String,
    /// The request's chunks of tokens; each is a row of the token table.
    #[serde(skip)]
    pub chunks: Vec<Chunk>,
}

impl RequestTokens {
    /// Times between chunks, ns.
    pub fn gaps_ns(&self) -> impl Iterator<Item = u64> {
        gaps_ns(&self.chunks).map(|(gap_ns, _)| gap_ns)
    }
}

/// Times between chunks, ns, each with the chunk that ends it.
pub(crate) fn gaps_ns(chunks: &[Chunk]) -> impl Iterator<Item = (u64, &Chunk)> {
    chunks.iter().zip(chunks.iter().skip(1)).map(|(one, next)| (next.time_ns.saturating_sub(one.time_ns), next))
}

/// A run's tokens, request by request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenTrace {
    /// The run.
    pub run: Run,
    /// Its requests.
    pub requests: Vec<RequestTokens>,
}
