//! Per-token JSONL, plain or gzip: a line per request with the gaps between its tokens. A file that is still being written may end
//! within a line, or before its gzip trailer: its complete lines count.
//!
//! # Source
//! vllm-vcr 0.x. An optional first line holds the `meta` object.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked in the same expression"
)]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, ErrorKind as IoErrorKind};
use std::path::Path;

use ridgepoint::input::{FileKind, Record, read_error};
use ridgepoint::units::NS_PER_MS;
use ridgepoint::{Error, Location, Result};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::capture::Capture;
use super::dropped::DropReason;
use super::file_name;
use super::format::Format;
use super::json_stream::{Passed, for_each_element};
use super::request::RequestRow;
use super::request_rows::{CheckedRow, CheckedRows};
use super::step::Run;
use super::token::{Chunk, RequestTokens};
use super::unknown_names::UnknownNames;

/// Per-token JSONL.
pub(super) const FORMAT: Format = Format {
    name: "token-jsonl",
    about: "Per-token JSONL of vllm-vcr or `simulate --output-tokens`, plain or gzip",
    holds_steps: false,
    is_it: |head, _| head.has("meta") || (head.has("ttft_ms") && head.has("output_tokens")),
    read,
};

/// Latest time, ms: 30 years.
const MAX_MS: f64 = 1e12;

/// Reads a file.
///
/// # Errors
/// A file that cannot be read; a line that is not a JSON object of this kind, unless it is the last one and cut short; no requests.
pub fn read(path: &Path) -> Result<Capture> {
    let (mut reader, count) = ridgepoint_replay::input::open(FileKind::Trace, path)?.records(Record::Line);
    let mut capture = Capture::default();
    let (mut meta, mut requests, mut unknown) = (Meta::default(), Requests::default(), UnknownNames::default());
    let (mut line, mut number, mut has_meta) = (Vec::new(), 0, false);
    loop {
        count.begin();
        line.clear();
        let is_cut = match reader.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => !line.ends_with(b"\n"),
            Err(error) if error.kind() == IoErrorKind::UnexpectedEof => {
                capture.notes.push("the gzip stream ends early: its complete lines are read".to_owned());
                if line.is_empty() {
                    break;
                }
                true
            }
            Err(error) => return Err(read_error(&path.display().to_string(), error)),
        };
        number += 1;
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let parser = &mut serde_json::Deserializer::from_slice(text);
        let mut names = UnknownNames::default();
        match serde_ignored::deserialize::<_, _, TokenLine>(parser, |name| names.add(&name.to_string())) {
            Ok(mut of) => {
                if let Some(found) = of.meta.take() {
                    if has_meta {
                        let place = Location::of(path.display().to_string()).line(number);
                        return Err(Error::parse(place, "a second meta: give each run a file of its own"));
                    }
                    (meta, has_meta) = (found, true);
                    if of.prompt_tokens.is_none() && of.ttft_ms.is_none() {
                        continue;
                    }
                }
                requests.add(of);
                unknown.merge(names);
            }
            Err(_) if is_cut => {
                capture.notes.push(format!("line {number} is the last one and cut short: left out"));
                break;
            }
            Err(error) => {
                let place = Location::of(path.display().to_string()).line(number).column(error.column());
                return Err(Error::parse(place, format!("is not a request of per-token JSONL: {error}")));
            }
        }
    }
    capture.notes.extend(unknown.note("keys of requests"));
    capture.notes.extend(requests.by_summary_note());
    requests.finish(meta, &file_name(path), &mut capture);
    if capture.requests_read() == 0 {
        return Err(Error::parse(path, "has no requests: it needs a line per request with prompt_tokens and ttft_ms"));
    }
    Ok(capture)
}

/// What the first line may report of the run.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    model: Option<String>,
    gpu: Option<String>,
    tp: Option<u32>,
    max_num_seqs: Option<u32>,
    block_size: Option<u32>,
    vllm_version: Option<String>,
    #[serde(flatten)]
    _others: BTreeMap<String, Value>,
}

/// A line: a request, or `meta`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenLine {
    meta: Option<Meta>,
    request_id: Option<Value>,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    output_tokens: Option<u64>,
    ttft_ms: Option<f64>,
    itl_ms: Option<Vec<f64>>,
    itl_tokens: Option<Vec<u32>>,
    itl_summary: Option<GapSummary>,
    itl_ctx: Option<Context>,
    #[serde(rename = "concurrency")]
    _concurrency: Option<u32>,
    arrival_ms: Option<f64>,
    #[serde(deserialize_with = "hashes")]
    block_hashes: Vec<u64>,
    #[serde(rename = "mm_hashes")]
    _mm_hashes: Passed,
    #[serde(rename = "output_token_ids")]
    _output_token_ids: Passed,
    finish_reason: Option<String>,
    temperature: Option<f64>,
    top_p: Option<f64>,
}

/// Reads hashes one by one, in a quarter of the memory that a list of JSON values takes.
fn hashes<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<u64>, D::Error> {
    let mut found = Vec::new();
    for_each_element(deserializer, |value| {
        found.push(hash(&value));
        Ok(())
    })?;
    Ok(found)
}

#[derive(Deserialize)]
struct GapSummary {
    mean_ms: f64,
    count: u64,
}

/// The steps that closed the gaps.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    num_running: Vec<u32>,
    prefill_tokens: Vec<u32>,
}

/// Requests as they come in.
#[derive(Default)]
struct Requests {
    rows: CheckedRows,
    by_summary: u64,
}

impl Requests {
    fn add(&mut self, line: TokenLine) {
        let is_summary = line.itl_ms.is_none() && line.itl_summary.is_some();
        let kept = self.rows.requests.len();
        self.rows.add(request(line, self.rows.added()));
        self.by_summary += u64::from(is_summary && self.rows.requests.len() > kept);
    }

    fn by_summary_note(&self) -> Option<String> {
        let count = self.by_summary;
        (count > 0).then(|| format!("{count} requests have the mean of their gaps alone: their tokens have no times"))
    }

    /// Puts the requests by arrival into what was read. Those that arrive together come by number, or by first token.
    fn finish(mut self, meta: Meta, experiment: &str, capture: &mut Capture) {
        let run = Run {
            experiment: experiment.to_owned(),
            model: meta.model,
            hardware: meta.gpu,
            tensor_parallel_size: meta.tp.filter(|size| *size > 0),
            engine_version: meta.vllm_version,
            max_num_seqs: meta.max_num_seqs.filter(|size| *size > 0),
            ..Run::default()
        };
        for (row, _) in &mut self.rows.requests {
            row.block_size = meta.block_size.filter(|_| !row.block_hashes.is_empty());
        }
        self.rows.finish(run, |row| (row.arrived_ns, row.number(), row.first_response_ns), capture);
    }
}

/// A request and, where its gaps are reported, its tokens.
fn request(line: TokenLine, position: u64) -> CheckedRow {
    let request_id = match line.request_id {
        None | Some(Value::Null) => format!("line-{position}"),
        Some(Value::String(text)) if !text.is_empty() => text,
        Some(other) => other.to_string(),
    };
    if matches!(line.finish_reason.as_deref(), Some("error")) {
        return Err(DropReason::Failed);
    }
    let (Some(arrival_ms), Some(ttft_ms)) = (line.arrival_ms, line.ttft_ms) else { return Err(DropReason::Incomplete) };
    let (Some(prompt), Some(output)) = (line.prompt_tokens, line.output_tokens) else {
        return Err(DropReason::Incomplete);
    };
    let (arrived_ns, ttft_ns) = (nanoseconds(arrival_ms)?, nanoseconds(ttft_ms)?);
    if prompt == 0 || output == 0 || line.cached_tokens.is_some_and(|cached| cached > prompt) {
        return Err(DropReason::BadValue);
    }
    let first_ns = arrived_ns.saturating_add(ttft_ns);
    let (departed_ns, chunks) = match (line.itl_ms, line.itl_summary) {
        (Some(gaps), None) => {
            let chunks = chunks(first_ns, output, &gaps, line.itl_tokens.as_deref(), line.itl_ctx.as_ref())?;
            (chunks.last().map_or(first_ns, |last| last.time_ns), Some(chunks))
        }
        (None, Some(of)) => {
            let total_ns = nanoseconds(of.mean_ms * of.count as f64)?;
            (first_ns.saturating_add(total_ns), None)
        }
        (None, None) if output == 1 => (first_ns, Some(chunks(first_ns, 1, &[], None, None)?)),
        (None, None) => return Err(DropReason::Incomplete),
        (Some(_), Some(_)) => return Err(DropReason::BadValue),
    };
    let row = RequestRow {
        request_id: request_id.as_str().into(),
        arrived_ns: Some(arrived_ns.into()),
        first_response_ns: Some(first_ns.into()),
        departed_ns: Some(departed_ns.into()),
        num_prompt_tokens: Some(prompt.into()),
        num_cached_tokens: line.cached_tokens.map(Into::into),
        num_output_tokens: Some(output.into()),
        finish_status: line.finish_reason.map(finish_status),
        block_hashes: line.block_hashes.into_iter().collect(),
        temperature: line.temperature.filter(|temperature| *temperature >= 0.0),
        top_p: line.top_p.filter(|top_p| (0.0..=1.0).contains(top_p)),
        ..RequestRow::default()
    };
    Ok((row, chunks.map(|chunks| RequestTokens { request_id, chunks })))
}

/// The chunks of a request. The first holds the tokens that the gaps do not close.
fn chunks(
    first_ns: u64,
    output_tokens: u64,
    gaps_ms: &[f64],
    tokens: Option<&[u32]>,
    context: Option<&Context>,
) -> std::result::Result<Vec<Chunk>, DropReason> {
    let is_wrong = |length: usize| length != gaps_ms.len();
    if tokens.is_some_and(|tokens| is_wrong(tokens.len()))
        || context.is_some_and(|of| is_wrong(of.num_running.len()) || is_wrong(of.prefill_tokens.len()))
    {
        return Err(DropReason::BadValue);
    }
    let of_gap = |at: usize| tokens.map_or(Some(1), |tokens| tokens.get(at).copied());
    let later: u64 = (0..gaps_ms.len()).filter_map(of_gap).map(u64::from).sum();
    let first = output_tokens.checked_sub(later).and_then(|first| u32::try_from(first).ok()).filter(|first| *first > 0);
    let mut time_ns = first_ns;
    let mut chunks = Vec::with_capacity(gaps_ms.len() + 1);
    chunks.push(Chunk { time_ns, num_tokens: first.ok_or(DropReason::BadValue)?, ..Chunk::default() });
    for (at, gap_ms) in gaps_ms.iter().enumerate() {
        time_ns = time_ns.saturating_add(nanoseconds(*gap_ms)?);
        chunks.push(Chunk {
            time_ns,
            num_tokens: of_gap(at).filter(|tokens| *tokens > 0).ok_or(DropReason::BadValue)?,
            num_running: context.and_then(|of| of.num_running.get(at).copied()),
            prefill_tokens: context.and_then(|of| of.prefill_tokens.get(at).copied()),
        });
    }
    Ok(chunks)
}

fn nanoseconds(ms: f64) -> std::result::Result<u64, DropReason> {
    let is_time = (0.0..=MAX_MS).contains(&ms);
    is_time.then(|| (ms * NS_PER_MS as f64).round() as u64).ok_or(DropReason::BadValue)
}

/// OpenAI's reasons under the names of the request table.
fn finish_status(reason: String) -> Box<str> {
    match reason.as_str() {
        "stop" => "stopped".into(),
        "abort" => "aborted".into(),
        _ => reason.into(),
    }
}

/// A hash as a number. Hashes only have to be equal or not.
pub(super) fn hash(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| {
        let mut hasher = DefaultHasher::new();
        value.to_string().hash(&mut hasher);
        hasher.finish()
    })
}
