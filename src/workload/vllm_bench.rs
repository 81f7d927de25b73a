//! Results of `vllm bench serve --save-detailed`: the requests of a benchmark as they were sent. Uses `rows`, `limits`,
//! `units`.
//!
//! # Source
//! vLLM, `vllm/benchmarks/serve.py`: the detailed lists of a result.

use std::io::BufRead;

use serde::Deserialize;

use super::WorkloadRequest;
use super::limits;
use super::rows::{Row, Rows};
use crate::error::{Error, Result};
use crate::units::NS_PER_S;

/// The list that gives the format away.
pub(super) const MARK: &str = "input_lens";

/// What is read of a result; it holds its settings and what was measured besides.
#[derive(Deserialize)]
struct Detailed {
    input_lens: Option<Vec<i64>>,
    output_lens: Option<Vec<i64>>,
    start_times: Option<Vec<f64>>,
    errors: Option<Vec<Option<String>>>,
}

/// Reads a result; times count from the first request, failed requests are left out and counted.
pub(super) fn read(origin: &str, reader: impl BufRead) -> Result<Rows> {
    let detailed: Detailed = serde_json::from_reader(reader)
        .map_err(|error| Error::parse(origin, format!("is not the JSON of one benchmark: {error}")))?;
    let lists = (detailed.input_lens, detailed.output_lens, detailed.start_times);
    let (Some(inputs), Some(outputs), Some(starts)) = &lists else {
        let missing =
            [("input_lens", lists.0.is_none()), ("output_lens", lists.1.is_none()), ("start_times", lists.2.is_none())];
        let missing = missing.iter().filter(|(_, absent)| *absent).map(|(key, _)| {
            format!("{key} is missing: run `vllm bench serve` with --save-detailed, of a version that writes {key}")
        });
        return Err(Error::invalid(origin, missing.collect()));
    };
    let errors = detailed.errors.unwrap_or_else(|| vec![None; inputs.len()]);
    let lengths = [("output_lens", outputs.len()), ("start_times", starts.len()), ("errors", errors.len())];
    let unequal = lengths.iter().filter(|(_, length)| *length != inputs.len());
    let unequal =
        unequal.map(|(key, length)| format!("{key} has {length} entries, input_lens has {}", inputs.len())).collect();
    limits::check(origin, unequal)?;

    let mut failed = 0usize;
    let mut sent: Vec<(f64, usize, WorkloadRequest)> = Vec::with_capacity(inputs.len());
    for (index, (((input, output), start), error)) in inputs.iter().zip(outputs).zip(starts).zip(&errors).enumerate() {
        if error.as_deref().is_some_and(|error| !error.is_empty()) {
            failed += 1;
            continue;
        }
        let row = Row { origin, number: index + 1 };
        let num_prompt_tokens = row.tokens("input_lens", &input.to_string(), 1)?;
        let num_output_tokens = row.tokens("output_lens", &output.to_string(), 1)?;
        if !start.is_finite() {
            return Err(row.bad("start_times", &start.to_string(), "a number of seconds"));
        }
        sent.push((*start, row.number, WorkloadRequest::new(0, num_prompt_tokens, num_output_tokens)));
    }
    sent.sort_by(|one, other| one.0.total_cmp(&other.0));
    let first = sent.first().map_or(0.0, |(start, ..)| *start);
    let mut rows = Rows::default();
    for (start, number, request) in sent {
        let row = Row { origin, number };
        let since_first = format!("{:?}", start - first);
        let arrival_ns = row.time_ns("start_times", &since_first, NS_PER_S).map_err(|_| {
            let expected = format!("at most 1000000000 s after the first, {first:?}");
            row.bad("start_times", &format!("{start:?}"), expected)
        })?;
        rows.requests.push(WorkloadRequest { arrival_ns, ..request });
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
            (
                "{\"input_lens\": [5], \"output_lens\": [1], \"start_times\": [NaN]}",
                vec!["is not the JSON of one benchmark"],
            ),
            ("{\"input_lens\": [], \"input_lens\": []}", vec!["duplicate field `input_lens`"]),
            (
                "{\"input_lens\": []} {\"input_lens\": []}",
                vec!["is not the JSON of one benchmark: trailing characters"],
            ),
        ] {
            let error = load(text).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("result.json: ") && parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
