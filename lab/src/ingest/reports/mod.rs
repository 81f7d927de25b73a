//! Reports of load generators: what clients saw of each request.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

pub mod guidellm;
pub mod inference_perf;
pub mod vllm_bench;

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use super::{Capture, Chunk, Dropped, Reason, RequestRow, RequestTokens, Run, Whole, seconds_to_ns};
use ridgepoint::{Error, Result};

/// Latest time on a client's clock, s: unix times are well below.
const MAX_TIME_S: f64 = 1e10;
/// Largest count of tokens of a request.
const MAX_TOKENS: f64 = 1e9;

/// A request and the times of its tokens, where they are told, or why it is left out.
type Row = std::result::Result<(RequestRow, Option<RequestTokens>), Reason>;

/// Converts a time in seconds to ns; `None` for null.
fn time_ns(value: &Value) -> std::result::Result<Option<Whole>, Reason> {
    within(value, MAX_TIME_S).map(|seconds| seconds.map(|seconds| seconds_to_ns(seconds).into()))
}

/// Converts a number of tokens; `None` for null.
fn tokens(value: &Value) -> std::result::Result<Option<Whole>, Reason> {
    match within(value, MAX_TOKENS)? {
        Some(tokens) if tokens.fract().abs() > 0.0 => Err(Reason::BadValue),
        tokens => Ok(tokens.map(|tokens| (tokens as u64).into())),
    }
}

fn within(value: &Value, max: f64) -> std::result::Result<Option<f64>, Reason> {
    let number = value.as_f64().filter(|number| (0.0..=max).contains(number));
    if number.is_none() && !value.is_null() { Err(Reason::BadValue) } else { Ok(number) }
}

/// Requests of one run as they come in.
#[derive(Default)]
struct Rows {
    requests: Vec<(RequestRow, Option<RequestTokens>)>,
    ids: HashSet<Box<str>>,
    dropped: Dropped,
}

impl Rows {
    fn add(&mut self, row: Row) {
        match row.and_then(checked) {
            Err(reason) => self.dropped.add(reason),
            Ok((row, _)) if !self.ids.insert(row.request_id.clone()) => self.dropped.add(Reason::Duplicate),
            Ok(found) => self.requests.push(found),
        }
    }

    /// Puts the rows, by arrival, into what was read.
    fn finish(mut self, run: Run, capture: &mut Capture) {
        self.requests.sort_by_key(|(row, _)| row.arrived_ns);
        capture.dropped_requests.merge(&self.dropped);
        capture.add_requests(run, self.requests);
    }
}

/// A client's request has an arrival and an end, and its first response in between.
fn checked((row, tokens): (RequestRow, Option<RequestTokens>)) -> Row {
    let (Some(arrived_ns), Some(departed_ns)) = (row.arrived_ns, row.departed_ns) else {
        return Err(Reason::Incomplete);
    };
    let first_ns = row.first_response_ns.unwrap_or(arrived_ns);
    if (arrived_ns..=departed_ns).contains(&first_ns) { Ok((row, tokens)) } else { Err(Reason::BadValue) }
}

/// The tokens of a request that came out at these times, one each; none if there are no times.
fn tokens_at(row: &RequestRow, times_ns: &[u64]) -> std::result::Result<Option<RequestTokens>, Reason> {
    if !times_ns.is_sorted() {
        return Err(Reason::BadValue);
    }
    let chunk = |time_ns: &u64| Chunk { time_ns: *time_ns, num_tokens: 1, ..Chunk::default() };
    let tokens =
        || RequestTokens { request_id: row.request_id.to_string(), chunks: times_ns.iter().map(chunk).collect() };
    Ok((!times_ns.is_empty()).then(tokens))
}

/// Refuses a report without requests; `way_out` says how it gets some.
fn with_requests(path: &Path, capture: Capture, way_out: &str) -> Result<Capture> {
    if capture.requests_read() == 0 {
        return Err(Error::parse(path, format!("has no requests: {way_out}")));
    }
    Ok(capture)
}
