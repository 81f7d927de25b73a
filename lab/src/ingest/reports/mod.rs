//! Reports of load generators: what clients saw of each request.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

pub mod aiperf;
pub mod guidellm;
pub mod inference_perf;
pub mod vllm_bench;

use std::path::Path;

use serde_json::Value;

use super::request_rows::{CheckedRow, CheckedRows};
use super::{Capture, Chunk, DropReason, RequestRow, RequestTokens, Whole, seconds_to_ns};
use ridgepoint::{Error, Result};

/// Latest time on a client's clock, s: unix times are well below.
const MAX_TIME_S: f64 = 1e10;
/// Largest count of tokens of a request.
const MAX_TOKENS: f64 = 1e9;

/// Converts a time in seconds to ns; `None` for null.
fn time_ns(value: &Value) -> std::result::Result<Option<Whole>, DropReason> {
    within(value, MAX_TIME_S).map(|seconds| seconds.map(|seconds| seconds_to_ns(seconds).into()))
}

/// Converts a number of tokens; `None` for null.
fn tokens(value: &Value) -> std::result::Result<Option<Whole>, DropReason> {
    match within(value, MAX_TOKENS)? {
        Some(tokens) if tokens.fract().abs() > 0.0 => Err(DropReason::BadValue),
        tokens => Ok(tokens.map(|tokens| (tokens as u64).into())),
    }
}

fn within(value: &Value, max: f64) -> std::result::Result<Option<f64>, DropReason> {
    let number = value.as_f64().filter(|number| (0.0..=max).contains(number));
    if number.is_none() && !value.is_null() { Err(DropReason::BadValue) } else { Ok(number) }
}

/// The tokens of a request that came out at these times, one each; none if there are no times.
fn tokens_at(row: &RequestRow, times_ns: &[u64]) -> std::result::Result<Option<RequestTokens>, DropReason> {
    if !times_ns.is_sorted() {
        return Err(DropReason::BadValue);
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
