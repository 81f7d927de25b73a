//! inference-perf's report of every request.
//!
//! # Source
//! inference-perf, `docs/reports.md`: `per_request_lifecycle_metrics.json`. Times are seconds on the client's monotonic clock.
//! `info` holds `input_tokens`, `output_tokens` and `output_token_times`, in newer versions under `request_metrics.text` and
//! `response_metrics`.
#![expect(clippy::indexing_slicing, reason = "a missing key of a JSON value is null")]

use std::path::Path;

use ridgepoint::input::Distinct;
use ridgepoint_replay::input::HeadKind;
use serde_json::Value;

use super::{CheckedRow, CheckedRows, time_ns, tokens, tokens_at, with_requests};
use crate::ingest::format::Format;
use crate::ingest::json_stream::for_each_object;
use crate::ingest::{Capture, DropReason, RequestRow, Run, Whole, file_name};
use ridgepoint::Result;

/// inference-perf's report of every request.
pub(in crate::ingest) const FORMAT: Format = Format {
    name: "inference-perf",
    about: "inference-perf's report of every request",
    holds_steps: false,
    is_it: |head, _| {
        let has_times = head.has("start_time") && ["info", "request", "end_time"].into_iter().any(|key| head.has(key));
        head.has("load_summary") || (head.kind == HeadKind::JsonList && has_times)
    },
    read,
};

/// Reads a report. Its token times count each streamed event, so the number of output tokens is taken from its own field.
///
/// # Errors
/// A file that cannot be read, is not JSON or is cut short, is one of inference-perf's summaries, or has no requests.
pub fn read(path: &Path) -> Result<Capture> {
    let (mut rows, mut read) = (CheckedRows::default(), 0);
    for_each_object(path, |Distinct(request)| {
        if request["load_summary"].is_null() {
            rows.add(row(read, &request));
            read += 1;
        }
    })?;
    let mut capture = Capture::default();
    rows.finish(Run { experiment: file_name(path), ..Run::default() }, |row| row.arrived_ns, &mut capture);
    let way_out = "set report.request_lifecycle.per_request in inference-perf's configuration and give its \
                   per_request_lifecycle_metrics.json, as summaries have none";
    with_requests(path, capture, way_out)
}

fn row(index: usize, request: &Value) -> CheckedRow {
    if !request["error"].is_null() {
        return Err(DropReason::Failed);
    }
    let info = &request["info"];
    // Since 0.6.0, of 0.5.0, and before.
    let response =
        [&info["response_metrics"], &info["response_info"]].into_iter().find(|of| !of.is_null()).unwrap_or(info);
    let either = |new: &Value, old: &str| Ok(tokens(new)?.or(tokens(&info[old])?));
    let times = [&response["output_token_times"], &info["output_token_times"]].into_iter().find(|of| !of.is_null());
    let times = times.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let times_ns: Vec<u64> = times
        .iter()
        .map(|time| time_ns(time)?.map(Whole::get).ok_or(DropReason::BadValue))
        .collect::<std::result::Result<_, DropReason>>()?;
    let row = RequestRow {
        request_id: index.to_string().into(),
        arrived_ns: time_ns(&request["start_time"])?,
        first_response_ns: times_ns.first().copied().map(Whole::from),
        departed_ns: time_ns(&request["end_time"])?,
        num_prompt_tokens: either(&info["request_metrics"]["text"]["input_tokens"], "input_tokens")?,
        num_output_tokens: either(&response["output_tokens"], "output_tokens")?,
        ..RequestRow::default()
    };
    let tokens = tokens_at(&row, &times_ns)?;
    Ok((row, tokens))
}
