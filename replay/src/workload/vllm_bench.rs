//! Results of `vllm bench serve --save-detailed`: the requests of a benchmark as they were sent.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use ridgepoint::input::Input;
use ridgepoint::units::NS_PER_S;
use ridgepoint::{Error, Result};

use super::WorkloadRequest;
use super::limits::{MAX_TIME_NS, MAX_TOKENS};
use super::rows::Rows;
use crate::vllm_bench::{SentRequest, read_sent};

/// A note on the sampling parameters of the requests, which results leave out.
///
/// # Source
/// `vllm/benchmarks/serve.py` of vLLM 0.14.0 and 0.15.1.
const UNKNOWN_SAMPLING_NOTE: &str = "the result omits the requests' sampling parameters: they are assumed to be the server's. `vllm bench serve` \
     up to 0.14 sends temperature 0 by default; override_generation_config {\"temperature\": 0} predicts that";

/// Reads a result. Times count from the first request. Failed requests are left out and counted.
pub(super) fn read(input: Input<'_>) -> Result<Rows> {
    let origin = input.origin().to_owned();
    let mut sent = read_sent(input)?;
    let num_requests = sent.len();
    sent.retain(|request| !request.has_failed);
    let lacks_arrivals = sent.iter().all(|request| request.start_time.is_none());
    let start_of = |request: &SentRequest| request.start_time.unwrap_or(0.0);
    sent.sort_by(|one, other| start_of(one).total_cmp(&start_of(other)));
    let failed = num_requests - sent.len();
    let bad = |row: usize, column: &str, found: String, expected: String| {
        Error::bad_row(&origin, row, column, found, expected)
    };
    let tokens = |row: usize, column: &str, count: i64| {
        let tokens = u32::try_from(count).ok().filter(|tokens| (1..=MAX_TOKENS).contains(tokens));
        tokens.ok_or_else(|| bad(row, column, count.to_string(), format!("a whole number from 1 to {MAX_TOKENS}")))
    };
    let first = sent.first().map_or(0.0, start_of);
    let mut rows = Rows { lacks_arrivals, ..Rows::default() };
    for SentRequest { row, input_len, output_len, start_time, .. } in sent {
        let start_time = start_time.unwrap_or(0.0);
        let arrival_ns = ((start_time - first) * NS_PER_S as f64).round();
        if arrival_ns > MAX_TIME_NS as f64 {
            let expected = format!("at most 1000000000 s after the first, {first:?}");
            return Err(bad(row, "start_times", format!("{start_time:?}"), expected));
        }
        let input = tokens(row, "input_lens", input_len)?;
        let output = tokens(row, "output_lens", output_len)?;
        rows.requests.push(WorkloadRequest::new(arrival_ns as u64, input, output));
    }
    if failed > 0 {
        rows.notes.push(format!("{failed} of {num_requests} requests failed in the benchmark and are left out"));
    }
    rows.notes.push(UNKNOWN_SAMPLING_NOTE.to_owned());
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use ridgepoint::input::FileKind;

    use super::*;

    fn load(text: &str) -> Result<Rows> {
        read(Input::new(FileKind::Requests, "result.json", text.as_bytes())?)
    }

    #[test]
    fn requests_are_sorted_by_start_and_failed_ones_left_out() {
        let rows = load(
            "{\"backend\": \"vllm\", \"request_rate\": \"inf\", \"input_lens\": [10, 20, 30], \"output_lens\": [1, 2, 0],\n\
             \"start_times\": [100.5, 100.25, 99.0], \"errors\": [\"\", \"\", \"timeout\"], \"itls\": [[0.1], [], []]}",
        )
        .unwrap();
        assert_eq!(rows.requests, [WorkloadRequest::new(0, 20, 2), WorkloadRequest::new(250_000_000, 10, 1)]);
        assert_eq!(rows.notes, ["1 of 3 requests failed in the benchmark and are left out", UNKNOWN_SAMPLING_NOTE]);
    }

    #[test]
    fn results_without_details_and_lists_that_disagree_are_errors() {
        for (text, parts) in [
            ("{\"input_lens\": [1]}", vec!["output_lens is missing", "an entry for each request"]),
            ("{\"total_input_tokens\": 1}", vec!["is the summary of a benchmark", "--save-detailed"]),
            (
                "{\"input_lens\": [1], \"output_lens\": [1, 2], \"start_times\": [], \"errors\": [null]}",
                vec!["output_lens has 2 entries, input_lens has 1"],
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
