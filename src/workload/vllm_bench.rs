//! Results of `vllm bench serve --save-detailed`: the requests of a benchmark as they were sent.
//!
//! # Source
//! vLLM, `vllm/benchmarks/serve.py`: the detailed lists of a result.

use std::io::BufRead;

use serde::Deserialize;

use super::WorkloadRequest;
use super::limits::{MAX_TIME_NS, MAX_TOKENS};
use super::rows::Rows;
use crate::error::{Error, Result};
use crate::input::{check, json_error};
use crate::units::NS_PER_S;

/// The list by which the format is recognised.
pub(super) const MARK: &str = "input_lens";

/// The lists of a result that matter here; it also has its settings and measurements.
#[derive(Deserialize)]
struct Detailed {
    input_lens: Option<Vec<i64>>,
    output_lens: Option<Vec<i64>>,
    start_times: Option<Vec<f64>>,
    errors: Option<Vec<Option<String>>>,
}

/// Reads a result. Times count from the first request. Failed requests are left out and counted.
pub(super) fn read(origin: &str, reader: impl BufRead) -> Result<Rows> {
    let detailed: Detailed = serde_json::from_reader(reader).map_err(|error| json_error(origin, &error))?;
    let num_requests = detailed.input_lens.as_ref().map(Vec::len);
    let lengths = [
        ("input_lens", num_requests),
        ("output_lens", detailed.output_lens.as_ref().map(Vec::len)),
        ("start_times", detailed.start_times.as_ref().map(Vec::len)),
        ("errors", detailed.errors.as_ref().map(Vec::len).or(num_requests).or(Some(0))),
    ];
    let problems = lengths.into_iter().filter_map(|(key, length)| match (length, num_requests) {
        (None, _) => Some(format!(
            "{key} is missing: run `vllm bench serve` with --save-detailed, of a version that writes {key}"
        )),
        (Some(length), Some(expected)) if length != expected => {
            Some(format!("{key} has {length} entries, input_lens has {expected}"))
        }
        _ => None,
    });
    check(origin, problems.collect())?;
    let inputs = detailed.input_lens.unwrap_or_default();
    let outputs = detailed.output_lens.unwrap_or_default();
    let starts = detailed.start_times.unwrap_or_default();
    let errors = detailed.errors.unwrap_or_else(|| vec![None; inputs.len()]);

    let bad = |index: usize, column: &str, found: String, expected: String| {
        Error::bad_row(origin, index + 1, column, found, expected)
    };
    let tokens = |index: usize, column: &str, count: i64| {
        let tokens = u32::try_from(count).ok().filter(|tokens| (1..=MAX_TOKENS).contains(tokens));
        tokens.ok_or_else(|| bad(index, column, count.to_string(), format!("a whole number from 1 to {MAX_TOKENS}")))
    };
    let mut failed = 0usize;
    let mut sent: Vec<(f64, usize, WorkloadRequest)> = Vec::with_capacity(inputs.len());
    for (index, (((input, output), start), error)) in inputs.iter().zip(&outputs).zip(&starts).zip(&errors).enumerate()
    {
        if error.as_deref().is_some_and(|error| !error.is_empty()) {
            failed += 1;
            continue;
        }
        let (input, output) = (tokens(index, "input_lens", *input)?, tokens(index, "output_lens", *output)?);
        sent.push((*start, index, WorkloadRequest::new(0, input, output)));
    }
    sent.sort_by(|one, other| one.0.total_cmp(&other.0));
    let first = sent.first().map_or(0.0, |(start, ..)| *start);
    let mut rows = Rows::default();
    for (start, index, request) in sent {
        let arrival_ns = ((start - first) * NS_PER_S as f64).round();
        if arrival_ns > MAX_TIME_NS as f64 {
            let expected = format!("at most 1000000000 s after the first, {first:?}");
            return Err(bad(index, "start_times", format!("{start:?}"), expected));
        }
        rows.requests.push(WorkloadRequest { arrival_ns: arrival_ns as u64, ..request });
    }
    if failed > 0 {
        rows.notes.push(format!("{failed} of {} requests failed in the benchmark and are left out", inputs.len()));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Rows> {
        read("result.json", text.as_bytes())
    }

    #[test]
    fn requests_are_sorted_by_start_and_failed_ones_left_out() {
        let rows = load(
            "{\"backend\": \"vllm\", \"request_rate\": \"inf\", \"input_lens\": [10, 20, 30], \"output_lens\": [1, 2, 0],\n\
             \"start_times\": [100.5, 100.25, 99.0], \"errors\": [\"\", \"\", \"timeout\"], \"itls\": [[0.1], [], []]}",
        )
        .unwrap();
        assert_eq!(rows.requests, [WorkloadRequest::new(0, 20, 2), WorkloadRequest::new(250_000_000, 10, 1)]);
        assert_eq!(rows.notes, ["1 of 3 requests failed in the benchmark and are left out"]);
    }

    #[test]
    fn results_without_details_and_lists_that_disagree_are_errors() {
        for (text, parts) in [
            ("{\"input_lens\": [1]}", vec!["output_lens is missing", "start_times is missing", "--save-detailed"]),
            (
                "{\"input_lens\": [1], \"output_lens\": [1, 2], \"start_times\": [], \"errors\": [null]}",
                vec!["output_lens has 2 entries, input_lens has 1", "start_times has 0 entries"],
            ),
            (
                "{\"input_lens\": [0], \"output_lens\": [1], \"start_times\": [1]}",
                vec!["row 1: column 'input_lens': found 0"],
            ),
            (
                "{\"input_lens\": [5], \"output_lens\": [0], \"start_times\": [1]}",
                vec!["row 1: column 'output_lens': found 0"],
            ),
            ("{\"input_lens\": [5], \"output_lens\": [-1], \"start_times\": [1]}", vec!["found -1"]),
            (
                "{\"input_lens\": [5,5], \"output_lens\": [1,1], \"start_times\": [1e300,1.5]}",
                vec!["row 1: column 'start_times': found 1e300, expected at most 1000000000 s after the first, 1.5"],
            ),
            ("{\"input_lens\": [5], \"output_lens\": [1], \"start_times\": [NaN]}", vec!["is not well-formed JSON"]),
            ("{\"input_lens\": [], \"input_lens\": []}", vec!["duplicate field `input_lens`"]),
            ("{\"input_lens\": []} {\"input_lens\": []}", vec!["is not well-formed JSON: trailing characters"]),
        ] {
            let error = load(text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("result.json: ") && parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
