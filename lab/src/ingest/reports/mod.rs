//! Reports of load generators: what clients saw of each request. Uses `error`, the records of `ingest`.

pub mod guidellm;
pub mod inference_perf;
pub mod vllm_bench;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use super::{Dropped, Ingested, Reason, RequestRow, RequestTrace, Run, seconds_to_ns};
use ridgepoint::{Error, Result};

/// Latest time on a client's clock, s: unix times are well below.
const MAX_TIME_S: f64 = 1e10;
/// Largest count of tokens of a request.
const MAX_TOKENS: f64 = 1e9;

fn open(path: &Path) -> Result<BufReader<File>> {
    File::open(path).map(BufReader::new).map_err(|error| Error::io(path, error))
}

fn parse<T: for<'de> Deserialize<'de>>(origin: &str, reader: impl Read) -> Result<T> {
    let mut parser = serde_json::Deserializer::from_reader(reader);
    let value = T::deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    value.map_err(|error| fault(origin, &error))
}

fn fault(origin: &str, error: &serde_json::Error) -> Error {
    let cause = if error.is_eof() {
        format!("is cut short: {error}")
    } else {
        format!("is not the JSON of such a report (times that are NaN or infinite are none): {error}")
    };
    Error::parse(origin, cause)
}

/// A time or a number of tokens; a text or list in its place is a value that can't be, not an unreadable file.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(untagged)]
enum Number {
    Value(f64),
    Other(serde::de::IgnoredAny),
    #[default]
    Nothing,
}

impl Number {
    fn time_ns(self) -> std::result::Result<Option<u64>, Reason> {
        self.within(MAX_TIME_S).map(|seconds| seconds.map(seconds_to_ns))
    }

    fn tokens(self) -> std::result::Result<Option<u64>, Reason> {
        match self.within(MAX_TOKENS)? {
            Some(tokens) if tokens.fract().abs() > 0.0 => Err(Reason::BadValue),
            tokens => Ok(tokens.map(|tokens| tokens as u64)),
        }
    }

    fn within(self, max: f64) -> std::result::Result<Option<f64>, Reason> {
        match self {
            Number::Nothing => Ok(None),
            Number::Value(value) if (0.0..=max).contains(&value) => Ok(Some(value)),
            Number::Value(_) | Number::Other(_) => Err(Reason::BadValue),
        }
    }
}

/// Requests of one run as they come in.
#[derive(Default)]
struct Rows {
    requests: Vec<RequestRow>,
    ids: HashSet<String>,
    dropped: Dropped,
    read: u64,
}

impl Rows {
    fn add(&mut self, row: std::result::Result<RequestRow, Reason>) {
        self.read += 1;
        match row.and_then(checked) {
            Err(reason) => self.dropped.add(reason),
            Ok(row) if !self.ids.insert(row.request_id.clone()) => self.dropped.add(Reason::Duplicate),
            Ok(row) => self.requests.push(row),
        }
    }

    fn leave_out(&mut self, reason: Reason, count: usize) {
        self.read += count as u64;
        self.dropped.add_many(reason, count as u64);
    }

    /// Puts the rows, by arrival, into what was read.
    fn finish(mut self, run: Run, into: &mut Ingested) {
        self.requests.sort_by_key(|row| row.arrived_ns);
        into.requests_read += self.read;
        into.dropped_requests.merge(&self.dropped);
        if !self.requests.is_empty() {
            into.requests.push(RequestTrace { run, requests: self.requests });
        }
    }
}

/// A client's request has an arrival and an end, and its first response in between.
fn checked(row: RequestRow) -> std::result::Result<RequestRow, Reason> {
    let (Some(arrived_ns), Some(departed_ns)) = (row.arrived_ns, row.departed_ns) else {
        return Err(Reason::Incomplete);
    };
    let first_ns = row.first_response_ns.unwrap_or(arrived_ns);
    if (arrived_ns..=departed_ns).contains(&first_ns) { Ok(row) } else { Err(Reason::BadValue) }
}

fn no_rows(origin: &str, what: &str) -> Error {
    Error::parse(origin, format!("has no requests: {what}"))
}
