//! vLLM's forward-pass metrics (`vllm/v1/metrics/forward_pass_metrics.py`, version 1), exported as JSON, a record per line. They
//! time the GPU's work, not the engine's loop.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::dropped::Reason;
use super::faults::Faults;
use super::file_name;
use super::format::Format;
use super::ingested::Ingested;
use super::step::{Run, StepRecord, StepTrace};
use crate::stats::median;
use ridgepoint::internals::error::cut;
use ridgepoint::internals::units::US_PER_S;
use ridgepoint::{Error, Result};

const VERSION: u64 = 1;
const TIMING_SCOPE: &str = "execute_model_cuda";
/// Longest line. A record has about 500 bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Median forward passes of engines are shorter; milliseconds that are read as seconds are longer.
const MAX_MEDIAN_US: f64 = 1e6;

/// vLLM's forward-pass metrics.
pub(super) const FORMAT: Format = Format {
    name: "forward-pass",
    about: "vLLM's forward-pass metrics, a JSON record per line",
    holds_steps: true,
    is_it: |head| head.has("timing_scope") || (head.has("scheduled_requests") && head.has("wall_time")),
    read,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    #[serde(rename = "version")]
    _version: u64,
    worker_id: WorkerId,
    dp_rank: u32,
    counter_id: u64,
    #[serde(rename = "timing_scope")]
    _timing_scope: String,
    /// Seconds.
    wall_time: f64,
    scheduled_requests: Scheduled,
    queued_requests: Option<Queued>,
}

#[derive(Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[serde(untagged)]
enum WorkerId {
    Number(u64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scheduled {
    num_prefill_requests: u32,
    sum_prefill_tokens: u64,
    #[serde(rename = "var_prefill_length", default)]
    _var_prefill_length: f64,
    sum_prefill_kv_tokens: Option<u64>,
    num_decode_requests: u32,
    sum_decode_kv_tokens: Option<u64>,
    #[serde(rename = "var_decode_kv_tokens", default)]
    _var_decode_kv_tokens: f64,
}

/// The waiting requests. Their lengths are not used.
#[derive(Deserialize)]
struct Queued {
    #[serde(default)]
    num_prefill_requests: u32,
    #[serde(default)]
    num_decode_requests: u32,
}

/// Reads a file. `wall_time` becomes [`StepRecord::gpu_time_us`]. The records have no timestamps, so every `start_ns` is 0. Each
/// worker and data-parallel rank is a run. Records without scheduled requests, which an idle engine sends, are dropped as empty.
///
/// # Errors
/// A file that cannot be read or has no records; a line that is not JSON; an unknown version or `timing_scope`; more than one record
/// in a hundred with unknown keys or impossible values; times that are not in seconds.
pub fn read(path: &Path) -> Result<Ingested> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let origin = path.display().to_string();
    let mut lines = BufReader::with_capacity(1 << 16, file);
    let mut found = Ingested::default();
    let mut faults = Faults::default();
    let mut runs: BTreeMap<(WorkerId, u32), Vec<StepRecord>> = BTreeMap::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let length = lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        if length.map_err(|error| Error::io(path, error))? == 0 {
            break;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        found.steps_read += 1;
        let Some(record) = faults.sound(record(&origin, number, &line)?) else { continue };
        match step(&origin, number, &record) {
            Ok(None) => found.dropped_steps.add(Reason::Empty),
            Ok(Some(step)) => runs.entry((record.worker_id, record.dp_rank)).or_default().push(step),
            Err(error) => faults.broken(error),
        }
    }
    if found.steps_read == 0 {
        let message = "has no lines; it needs a JSON record per step";
        return Err(Error::parse(origin, message));
    }
    faults.settle(&origin, found.steps_read, &mut found.dropped_steps)?;
    let name = file_name(path);
    let is_one = runs.len() == 1;
    for ((worker, rank), steps) in runs {
        let experiment = if is_one { name.clone() } else { format!("{name} worker {worker} rank {rank}") };
        let run = Run { experiment, ..Run::default() };
        check_unit(&origin, found.add_steps(StepTrace { run, steps }))?;
    }
    Ok(found)
}

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WorkerId::Number(number) => number.fmt(f),
            WorkerId::Text(text) => text.fmt(f),
        }
    }
}

/// Parses a line. The outer error refuses the file, the inner one the record.
fn record(origin: &str, number: u64, line: &[u8]) -> Result<Result<Record>> {
    let wrong = |message: String| Error::parse(origin, format!("line {number}: {message}"));
    let described = |error: serde_json::Error| {
        let text = error.to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
        wrong(format!("column {}: {}", error.column(), text))
    };
    if line.len() as u64 == MAX_LINE_BYTES {
        return Err(wrong(format!("is longer than {MAX_LINE_BYTES} bytes: write one record per line")));
    }
    let value: Value = serde_json::from_slice(line).map_err(described)?;
    let Value::Object(keys) = &value else { return Err(wrong("is not a JSON object".to_owned())) };
    let shown = |key: &str| {
        keys.get(key).map_or_else(|| "is missing".to_owned(), |value| format!("is {}", cut(&value.to_string())))
    };
    if keys.get("version").and_then(Value::as_u64) != Some(VERSION) {
        return Err(wrong(format!(
            "`version` {}; forward-pass metrics of version {VERSION} are supported",
            shown("version")
        )));
    }
    if keys.get("timing_scope").and_then(Value::as_str) != Some(TIMING_SCOPE) {
        let shown = shown("timing_scope");
        return Err(wrong(format!(
            "`timing_scope` {shown}; \"{TIMING_SCOPE}\" is supported, whose wall_time is the GPU's time"
        )));
    }
    Ok(serde_json::from_value(value).map_err(|error| wrong(error.to_string())))
}

/// The step of a record; `None` if it schedules nothing.
fn step(origin: &str, number: u64, record: &Record) -> Result<Option<StepRecord>> {
    let scheduled = &record.scheduled_requests;
    let wrong = |message: String| Err(Error::parse(origin, format!("line {number}: {message}")));
    if scheduled.num_prefill_requests == 0 && scheduled.num_decode_requests == 0 {
        return Ok(None);
    }
    if !(record.wall_time.is_finite() && record.wall_time > 0.0) {
        return wrong(format!("`wall_time` is {}, must be above 0", record.wall_time));
    }
    if scheduled.sum_prefill_tokens < u64::from(scheduled.num_prefill_requests) {
        let (tokens, requests) = (scheduled.sum_prefill_tokens, scheduled.num_prefill_requests);
        return wrong(format!("`sum_prefill_tokens` is {tokens}, must be at least one for each of {requests} chunks"));
    }
    Ok(Some(StepRecord {
        step_id: record.counter_id,
        num_prefill_requests: scheduled.num_prefill_requests,
        num_decode_requests: scheduled.num_decode_requests,
        prefill_tokens: scheduled.sum_prefill_tokens,
        decode_tokens: u64::from(scheduled.num_decode_requests),
        prefill_kv_tokens: scheduled.sum_prefill_kv_tokens,
        decode_kv_tokens: scheduled.sum_decode_kv_tokens,
        num_waiting: record
            .queued_requests
            .as_ref()
            .map(|queued| queued.num_prefill_requests.saturating_add(queued.num_decode_requests)),
        gpu_time_us: Some(record.wall_time * US_PER_S),
        ..StepRecord::default()
    }))
}

fn check_unit(origin: &str, trace: &StepTrace) -> Result<()> {
    let times_us = trace.steps.iter().filter_map(|step| step.gpu_time_us).collect();
    match median(times_us) {
        Some(median_us) if median_us > MAX_MEDIAN_US => {
            let median_s = median_us / US_PER_S;
            let problem =
                format!("the median `wall_time` is {median_s}, longer than any forward pass; is it in seconds?");
            Err(Error::invalid(origin, vec![problem]))
        }
        _ => Ok(()),
    }
}
