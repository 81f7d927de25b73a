//! Results of `vllm bench serve --save-detailed`, and of SGLang's `bench_serving`: when their clients had their tokens.

use std::path::Path;

use ridgepoint::input::check;
use ridgepoint::{Error, Result};
use ridgepoint_replay::vllm_bench::{Measured, MeasuredRequest, is_result, is_sglang};

use super::{CheckedRow, CheckedRows, time_ns, tokens, tokens_at};
use crate::ingest::format::Format;
use crate::ingest::json_stream::for_each_object;
use crate::ingest::{Capture, DropReason, RequestRow, Run, Whole, file_name, named_runs};

/// The result of `vllm bench serve --save-detailed`.
pub(in crate::ingest) const FORMAT: Format = Format {
    name: "vllm-bench",
    about: "The result of vllm bench serve --save-detailed",
    holds_steps: false,
    is_it: |head, _| is_result(head),
    read,
};

/// The result of SGLang's `bench_serving --output-details`, which has the same lists.
pub(in crate::ingest) const SGLANG_FORMAT: Format = Format {
    name: "sglang-bench",
    about: "The result of SGLang's bench_serving --output-details",
    holds_steps: false,
    is_it: |head, _| is_sglang(head),
    read,
};

/// Reads the results of a file, each as a run. `vllm bench serve --append-result` writes several into one file.
///
/// # Errors
/// A file that cannot be read, is not JSON or is cut short, whose lists are missing, empty or of unequal length.
pub fn read(path: &Path) -> Result<Capture> {
    let mut results: Vec<Measured> = Vec::new();
    for_each_object(path, |object| results.push(object))?;
    let mut capture = Capture::default();
    for (experiment, result) in named_runs(&file_name(path), results) {
        add(path, experiment, result, &mut capture)?;
    }
    Ok(capture)
}

fn add(path: &Path, experiment: String, mut result: Measured, capture: &mut Capture) -> Result<()> {
    capture.notes.extend(result.work_out_starts().map_err(|problem| Error::parse(path, problem))?);
    let mut rows = CheckedRows::default();
    match result.requests() {
        Ok(requests) => requests.enumerate().for_each(|(index, request)| rows.add(row(index, request))),
        Err(problems) => check(path, problems)?,
    }
    let Measured { model_id, max_concurrency, .. } = result;
    capture.notes.extend(max_concurrency.map(|most| {
        format!("the client kept at most {most} requests in flight: judge it with a max_concurrency of {most}, not at captured times")
    }));
    rows.finish(Run { experiment, model: model_id, ..Run::default() }, |row| row.arrived_ns, capture);
    Ok(())
}

fn row(index: usize, of: MeasuredRequest<'_>) -> CheckedRow {
    if of.error.as_str().is_some_and(|error| !error.is_empty()) {
        return Err(DropReason::Failed);
    }
    let num_output_tokens = tokens(of.output_len)?;
    if num_output_tokens == Some(Whole::ZERO) {
        return Err(DropReason::BadValue);
    }
    let arrived_ns = time_ns(of.start_time)?.map(Whole::get);
    let first_response_ns = arrived_ns.zip(time_ns(of.ttft)?).map(|(at, ttft_ns)| at.saturating_add(ttft_ns.get()));
    let mut times_ns: Vec<u64> = first_response_ns.into_iter().collect();
    for gap in of.itls.as_array().ok_or(DropReason::BadValue)? {
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
        num_prompt_tokens: tokens(of.input_len)?,
        num_output_tokens,
        ..RequestRow::default()
    };
    let tokens = tokens_at(&row, &times_ns)?;
    Ok((row, tokens))
}
