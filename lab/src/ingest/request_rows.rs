//! Collects the requests of a run from a report or a list: each once, in the order of their arrival.

use std::collections::HashSet;

use super::capture::Capture;
use super::dropped::{Dropped, Reason};
use super::request::RequestRow;
use super::step::Run;
use super::token::RequestTokens;

/// A request and the times of its tokens, where they are told.
pub(super) type Found = (RequestRow, Option<RequestTokens>);

/// A request that was found, or why it is left out.
pub(super) type Row = std::result::Result<Found, Reason>;

/// Requests of one run as they come in.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) requests: Vec<Found>,
    ids: HashSet<Box<str>>,
    dropped: Dropped,
}

impl Rows {
    /// Adds a request.
    pub(super) fn add(&mut self, row: Row) {
        match row.and_then(checked) {
            Err(reason) => self.dropped.add(reason),
            Ok((row, _)) if !self.ids.insert(row.request_id.clone()) => self.dropped.add(Reason::Duplicate),
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

/// A client's request has an arrival and an end, and its first response in between.
fn checked((row, tokens): Found) -> Row {
    let (Some(arrived_ns), Some(departed_ns)) = (row.arrived_ns, row.departed_ns) else {
        return Err(Reason::Incomplete);
    };
    let first_ns = row.first_response_ns.unwrap_or(arrived_ns);
    if (arrived_ns..=departed_ns).contains(&first_ns) { Ok((row, tokens)) } else { Err(Reason::BadValue) }
}
