//! Collects the requests of a run from a report or a list: each once, in the order of their arrival.

use std::collections::HashSet;

use super::capture::Capture;
use super::dropped::{DropReason, Dropped};
use super::request::RequestRow;
use super::step::Run;
use super::token::{MAX_CHUNK_TOKENS, RequestTokens};

/// A request and the times of its tokens, where they are reported.
pub(super) type RowAndTokens = (RequestRow, Option<RequestTokens>);

/// A request that was found, or why it is left out.
pub(super) type CheckedRow = std::result::Result<RowAndTokens, DropReason>;

/// Requests of one run as they come in.
#[derive(Default)]
pub(super) struct CheckedRows {
    pub(super) requests: Vec<RowAndTokens>,
    ids: HashSet<Box<str>>,
    dropped: Dropped,
}

impl CheckedRows {
    /// Adds a request.
    pub(super) fn add(&mut self, row: CheckedRow) {
        match row.and_then(checked) {
            Err(reason) => self.dropped.add(reason),
            Ok((row, _)) if !self.ids.insert(row.request_id.clone()) => self.dropped.add(DropReason::Duplicate),
            Ok(found) => self.requests.push(found),
        }
    }

    /// The number of requests that were added, those that are left out included.
    pub(super) fn added(&self) -> u64 {
        self.requests.len() as u64 + self.dropped.total()
    }

    /// Puts the rows, in the order of `key`, into what was read.
    pub(super) fn finish<K: Ord>(mut self, run: Run, key: impl Fn(&RequestRow) -> K, capture: &mut Capture) {
        self.requests.sort_by_key(|(row, _)| key(row));
        capture.dropped_requests.merge(&self.dropped);
        capture.add_requests(run, self.requests);
    }
}

/// A client's request has an arrival and an end, its first response in between, and what the tables can hold.
fn checked((row, tokens): RowAndTokens) -> CheckedRow {
    let mut chunks = tokens.iter().flat_map(|tokens| &tokens.chunks);
    if chunks.any(|chunk| !(1..=MAX_CHUNK_TOKENS).contains(&chunk.num_tokens)) || row.out_of_order().is_some() {
        return Err(DropReason::BadValue);
    }
    let (Some(arrived_ns), Some(departed_ns)) = (row.arrived_ns, row.departed_ns) else {
        return Err(DropReason::Incomplete);
    };
    let first_ns = row.first_response_ns.unwrap_or(arrived_ns);
    if (arrived_ns..=departed_ns).contains(&first_ns) { Ok((row, tokens)) } else { Err(DropReason::BadValue) }
}
