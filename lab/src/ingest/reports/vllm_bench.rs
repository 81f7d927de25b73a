//! Results of `vllm bench serve --save-detailed`. Uses `reports`.
//!
//! # Source
//! vLLM, `vllm/benchmarks/serve.py`: `start_times`, `ttfts` and `itls` in seconds of the client's clock; the last gap of a request
//! ends where its response does.

use std::path::Path;

use serde::Deserialize;

use super::{Number, Rows, no_rows, open, parse};
use crate::ingest::format::Format;
use crate::ingest::{Ingested, Reason, RequestRow, Run, file_name};
use ridgepoint::{Error, Result};

/// The result of `vllm bench serve --save-detailed`.
pub(in crate::ingest) const FORMAT: Format = Format {
    name: "vllm-bench",
    about: "The result of vllm bench serve --save-detailed",
    holds_steps: false,
    is_it: |head| head.has("input_lens") || (head.has("num_prompts") && head.has("backend")),
    read,
};

/// Reads a result.
///
/// # Errors
/// `ErrorKind::Io`; `ErrorKind::Parse` where the file is cut short, is no such result, or has no requests; `ErrorKind::Invalid` where
/// lists are missing or of unequal length.
pub fn read(path: &Path) -> Result<Ingested> {
    let origin = path.display().to_string();
    let detailed: Detailed = parse(&origin, open(path)?)?;
    let Detailed { model_id, input_lens, output_lens, start_times, ttfts, itls, errors } = detailed;
    let lists = [
        ("input_lens", input_lens.as_ref().map(Vec::len)),
        ("output_lens", output_lens.as_ref().map(Vec::len)),
        ("start_times", start_times.as_ref().map(Vec::len)),
        ("ttfts", ttfts.as_ref().map(Vec::len)),
        ("itls", itls.as_ref().map(Vec::len)),
        ("errors", errors.as_ref().map(Vec::len)),
    ];
    let problems = problems(&lists);
    if !problems.is_empty() {
        return Err(Error::invalid(origin, problems));
    }
    let requests = input_lens.unwrap_or_default().into_iter().zip(output_lens.unwrap_or_default());
    let times = start_times.unwrap_or_default().into_iter().zip(ttfts.unwrap_or_default());
    let ends = itls.unwrap_or_default().into_iter().zip(errors.unwrap_or_default());
    let mut rows = Rows::default();
    for (index, (((input, output), (start, ttft)), (gaps, error))) in requests.zip(times).zip(ends).enumerate() {
        let failed = error.as_deref().is_some_and(|error| !error.is_empty());
        rows.add(if failed { Err(Reason::Failed) } else { row(index, [input, output, start, ttft], &gaps) });
    }
    if rows.read == 0 {
        return Err(no_rows(&origin, "its lists are empty"));
    }
    let mut ingested = Ingested::default();
    rows.finish(Run { experiment: file_name(path), model: model_id, ..Run::default() }, &mut ingested);
    Ok(ingested)
}

/// What is read of a result; it holds its settings and summaries besides.
#[derive(Deserialize)]
struct Detailed {
    model_id: Option<String>,
    input_lens: Option<Vec<Number>>,
    output_lens: Option<Vec<Number>>,
    start_times: Option<Vec<Number>>,
    ttfts: Option<Vec<Number>>,
    itls: Option<Vec<Vec<Number>>>,
    errors: Option<Vec<Option<String>>>,
}

fn problems(lists: &[(&str, Option<usize>)]) -> Vec<String> {
    let length = lists.first().and_then(|(_, length)| *length);
    let mut problems = Vec::new();
    for (key, found) in lists {
        match (found, length) {
            (None, _) => problems.push(format!(
                "{key} is missing: run `vllm bench serve` with --save-detailed, of a version that writes {key}"
            )),
            (Some(found), Some(length)) if *found != length => {
                problems.push(format!("{key} has {found} entries, input_lens has {length}"));
            }
            _ => {}
        }
    }
    problems
}

fn row(index: usize, numbers: [Number; 4], gaps: &[Number]) -> std::result::Result<RequestRow, Reason> {
    let [input, output, start, ttft] = numbers;
    let (arrived_ns, ttft_ns) = (start.time_ns()?, ttft.time_ns()?);
    let output = output.tokens()?;
    if output == Some(0) {
        return Err(Reason::BadValue);
    }
    let first_response_ns = arrived_ns.zip(ttft_ns).map(|(arrived_ns, ttft_ns)| arrived_ns.saturating_add(ttft_ns));
    let mut departed_ns = first_response_ns;
    for gap in gaps {
        let gap_ns = gap.time_ns()?.ok_or(Reason::BadValue)?;
        departed_ns = departed_ns.map(|at| at.saturating_add(gap_ns));
    }
    Ok(RequestRow {
        request_id: index.to_string(),
        arrived_ns,
        first_response_ns,
        departed_ns,
        num_prompt_tokens: input.tokens()?,
        num_output_tokens: output,
        ..RequestRow::default()
    })
}
