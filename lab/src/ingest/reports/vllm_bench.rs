//! Results of `vllm bench serve --save-detailed`.
//!
//! # Source
//! vLLM, `vllm/benchmarks/serve.py`: `start_times`, `ttfts` and `itls` in seconds of the client's clock; the last gap of a request
//! ends where its response does.
#![expect(clippy::indexing_slicing, reason = "the lists were found to be equally long")]

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::{CheckedRow, CheckedRows, time_ns, tokens, tokens_at};
use crate::ingest::format::Format;
use crate::ingest::json_stream::for_each_object;
use crate::ingest::{Capture, DropReason, RequestRow, Run, Whole, file_name, named_runs};
use ridgepoint::Result;
use ridgepoint::input::check;

/// The result of `vllm bench serve --save-detailed`.
pub(in crate::ingest) const FORMAT: Format = Format {
    name: "vllm-bench",
    about: "The result of vllm bench serve --save-detailed",
    holds_steps: false,
    is_it: |head, _| head.has("input_lens") || (head.has("num_prompts") && head.has("backend")),
    read,
};

/// Reads the results of a file, each as a run. `vllm bench serve --append-result` writes several into one file.
///
/// # Errors
/// A file that cannot be read, is not JSON or is cut short, whose lists are missing, empty or of unequal length.
pub fn read(path: &Path) -> Result<Capture> {
    let mut results: Vec<Detailed> = Vec::new();
    for_each_object(path, |object| results.push(object))?;
    let mut capture = Capture::default();
    for (experiment, result) in named_runs(&file_name(path), results) {
        add(path, experiment, result, &mut capture)?;
    }
    Ok(capture)
}

fn add(path: &Path, experiment: String, result: Detailed, capture: &mut Capture) -> Result<()> {
    let Detailed { model_id, max_concurrency, input_lens, output_lens, start_times, ttfts, itls, errors } = result;
    let num_requests = input_lens.len();
    let lists = [
        ("input_lens", input_lens),
        ("output_lens", output_lens),
        ("start_times", start_times),
        ("ttfts", ttfts),
        ("itls", itls),
        ("errors", errors),
    ];
    let problem = |(key, list): &(&str, Vec<Value>)| {
        let length = list.len();
        (length == 0 || length != num_requests).then(|| {
            format!(
                "{key} has {length} entries, input_lens has {num_requests}: run `vllm bench serve` with --save-detailed, of a \
                 version that writes {key}"
            )
        })
    };
    check(path, lists.iter().filter_map(problem).collect())?;
    let mut rows = CheckedRows::default();
    for index in 0..num_requests {
        rows.add(row(index, lists.each_ref().map(|(_, list)| &list[index])));
    }
    capture.notes.extend(max_concurrency.map(|most| {
        format!("the client kept at most {most} requests in flight: judge it with a max_concurrency of {most}, not at captured times")
    }));
    rows.finish(Run { experiment, model: model_id, ..Run::default() }, |row| row.arrived_ns, capture);
    Ok(())
}

/// What is read of a result: a list per column of the requests.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Detailed {
    model_id: Option<String>,
    max_concurrency: Option<u32>,
    input_lens: Vec<Value>,
    output_lens: Vec<Value>,
    start_times: Vec<Value>,
    ttfts: Vec<Value>,
    itls: Vec<Value>,
    errors: Vec<Value>,
}

fn row(index: usize, [input, output, start, ttft, gaps, error]: [&Value; 6]) -> CheckedRow {
    if error.as_str().is_some_and(|error| !error.is_empty()) {
        return Err(DropReason::Failed);
    }
    let num_output_tokens = tokens(output)?;
    if num_output_tokens == Some(Whole::ZERO) {
        return Err(DropReason::BadValue);
    }
    let arrived_ns = time_ns(start)?.map(Whole::get);
    let first_response_ns = arrived_ns.zip(time_ns(ttft)?).map(|(at, ttft_ns)| at.saturating_add(ttft_ns.get()));
    let mut times_ns: Vec<u64> = first_response_ns.into_iter().collect();
    for gap in gaps.as_array().ok_or(DropReason::BadValue)? {
        let gap_ns = time_ns(gap)?.ok_or(DropReason::BadValue)?.get();
        times_ns.extend(times_ns.last().map(|at| at.saturating_add(gap_ns)));
    }
    // A chat begins with an event that has a role and no token, which the client takes for the first one.
    if num_output_tokens.is_some_and(|tokens| tokens.get() > 1 && times_ns.len() as u64 == tokens.get() + 1) {
        times_ns.remove(0);
    }
    let row = RequestRow {
        request_id: index.to_string().into(),
        arrived_ns: arrived_ns.map(Whole::from),
        first_response_ns: first_response_ns.map(Whole::from),
        departed_ns: times_ns.last().copied().map(Whole::from),
        num_prompt_tokens: tokens(input)?,
        num_output_tokens,
        ..RequestRow::default()
    };
    let tokens = tokens_at(&row, &times_ns)?;
    Ok((row, tokens))
}
