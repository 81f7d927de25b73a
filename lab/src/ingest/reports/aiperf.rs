//! AIPerf's record of every request.
//!
//! # Source
//! AIPerf 0.13, `profile_export.jsonl`: `metadata` with times of the client's wall clock in ns, and `metrics` with a value and a unit each.
#![expect(clippy::indexing_slicing, reason = "a missing key of a JSON value is null")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; the range is checked")]

use std::path::Path;

use ridgepoint::Result;
use ridgepoint::input::Distinct;
use ridgepoint::units::{NS_PER_MS, NS_PER_S, NS_PER_US};
use serde_json::Value;

use super::{CheckedRow, CheckedRows, MAX_TIME_S, tokens, tokens_at, with_requests};
use crate::ingest::format::Format;
use crate::ingest::json_stream::for_each_object;
use crate::ingest::{Capture, DropReason, RequestRow, Run, Whole, file_name};

/// AIPerf's records.
pub(in crate::ingest) const FORMAT: Format = Format {
    name: "aiperf",
    about: "AIPerf's profile_export.jsonl",
    holds_steps: false,
    is_it: |head, _| head.is_json() && head.has("metadata") && head.has("metrics") && !head.has("args"),
    read,
};

/// Reads the records. Requests of the warm-up are left out.
///
/// # Errors
/// A file that cannot be read, is not JSON or is cut short, or has no requests.
pub fn read(path: &Path) -> Result<Capture> {
    let (mut rows, mut read) = (CheckedRows::default(), 0);
    for_each_object(path, |Distinct(record)| {
        rows.add(row(read, &record));
        read += 1;
    })?;
    let mut capture = Capture::default();
    rows.finish(Run { experiment: file_name(path), ..Run::default() }, |row| row.arrived_ns, &mut capture);
    with_requests(path, capture, "give the profile_export.jsonl that AIPerf writes beside its summary")
}

fn row(index: usize, record: &Value) -> CheckedRow {
    let (metadata, metrics) = (&record["metadata"], &record["metrics"]);
    if !record["error"].is_null() || metadata["was_cancelled"] == Value::Bool(true) {
        return Err(DropReason::Failed);
    }
    if metadata["benchmark_phase"] == "warmup" {
        return Err(DropReason::WarmUp);
    }
    let arrived_ns = metadata["request_start_ns"].as_u64().ok_or(DropReason::Incomplete)?;
    let latency = &metrics["request_latency"];
    let departed_ns = match durations_ns(latency)?.first() {
        Some(latency_ns) => Some(arrived_ns.saturating_add(*latency_ns)),
        None => metadata["request_end_ns"].as_u64(),
    };
    let first_ns =
        durations_ns(&metrics["time_to_first_token"])?.first().map(|ttft_ns| arrived_ns.saturating_add(*ttft_ns));
    let mut times_ns: Vec<u64> = first_ns.into_iter().collect();
    for gap_ns in durations_ns(&metrics["inter_chunk_latency"])? {
        times_ns.extend(times_ns.last().map(|at| at.saturating_add(gap_ns)));
    }
    let output = ["output_sequence_length", "output_token_count"].map(|key| &metrics[key]["value"]);
    let num_output_tokens = tokens(output.into_iter().find(|value| !value.is_null()).unwrap_or(&Value::Null))?;
    if num_output_tokens == Some(Whole::ZERO) {
        return Err(DropReason::BadValue);
    }
    let id = metadata["x_request_id"].as_str().filter(|id| !id.is_empty());
    let row = RequestRow {
        request_id: id.map_or_else(|| index.to_string(), str::to_owned).into(),
        arrived_ns: Some(arrived_ns.into()),
        first_response_ns: first_ns.map(Whole::from),
        departed_ns: departed_ns.map(Whole::from),
        num_prompt_tokens: tokens(&metrics["input_sequence_length"]["value"])?,
        num_output_tokens,
        ..RequestRow::default()
    };
    // A chunk may have several tokens, and the record does not say how many.
    let is_one_each = num_output_tokens.is_some_and(|tokens| tokens.get() == times_ns.len() as u64);
    let chunks = if is_one_each { tokens_at(&row, &times_ns)? } else { None };
    Ok((row, chunks))
}

/// The durations of a metric: one, a list of them, or none if the record lacks it.
fn durations_ns(metric: &Value) -> std::result::Result<Vec<u64>, DropReason> {
    let value = &metric["value"];
    if value.is_null() {
        return Ok(Vec::new());
    }
    let ns_per_unit = match metric["unit"].as_str() {
        Some("ns") => 1,
        Some("us") => NS_PER_US,
        None | Some("ms") => NS_PER_MS,
        Some("s" | "sec") => NS_PER_S,
        Some(_) => return Err(DropReason::BadValue),
    };
    let one = std::slice::from_ref(value);
    let values = value.as_array().map_or(one, Vec::as_slice);
    let to_ns = |value: &Value| {
        let duration_ns = value.as_f64()? * ns_per_unit as f64;
        let max_ns = MAX_TIME_S * NS_PER_S as f64;
        (0.0..=max_ns).contains(&duration_ns).then_some(duration_ns.round() as u64)
    };
    values.iter().map(to_ns).collect::<Option<Vec<u64>>>().ok_or(DropReason::BadValue)
}
