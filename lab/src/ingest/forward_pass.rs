//! vLLM's forward-pass metrics (`vllm/v1/metrics/forward_pass_metrics.py`, version 1), exported as JSON, a record per line. They
//! time the GPU's work, not the engine's loop.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::capture::Capture;
use super::dropped::Reason;
use super::faults::RowFaults;
use super::file_name;
use super::format::Format;
use super::json_stream::{JsonVisitor, visit_json};
use super::step::{Run, StepRecord, StepTrace};
use crate::stats::median;
use ridgepoint::internals::error::cut;
use ridgepoint::internals::units::US_PER_S;
use ridgepoint::{Error, Result};

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

/// What is read of a record.
#[derive(Deserialize)]
struct Record {
    /// A number or a text.
    worker_id: Value,
    dp_rank: u32,
    counter_id: u64,
    /// Seconds.
    wall_time: f64,
    scheduled_requests: Scheduled,
    queued_requests: Option<Queued>,
}

#[derive(Deserialize)]
struct Scheduled {
    num_prefill_requests: u32,
    sum_prefill_tokens: u64,
    sum_prefill_kv_tokens: Option<u64>,
    num_decode_requests: u32,
    sum_decode_kv_tokens: Option<u64>,
}

/// The waiting requests. Their lengths are not used.
#[derive(Deserialize)]
struct Queued {
    #[serde(default)]
    num_prefill_requests: u32,
    #[serde(default)]
    num_decode_requests: u32,
}

/// The records of a file as they come in.
#[derive(Default)]
struct Records {
    origin: String,
    number: u64,
    faults: RowFaults,
    runs: BTreeMap<(String, u32), Vec<StepRecord>>,
    /// Records without scheduled requests.
    idle: u64,
    /// Why the file is refused.
    refused: Option<Error>,
}

impl JsonVisitor for Records {
    const PATHS: &'static [&'static str] = &[""];

    fn value(&mut self, _: &'static str, value: Value) {
        self.number += 1;
        let wrong = |message: String| Error::parse(&self.origin, format!("record {}: {message}", self.number));
        for (key, supported) in [("version", Value::from(1)), ("timing_scope", Value::from("execute_model_cuda"))] {
            if value[key] != supported {
                let found = cut(&value[key].to_string());
                self.refused.get_or_insert(wrong(format!("`{key}` is {found}; {supported} is supported")));
            }
        }
        let record = serde_json::from_value(value).map_err(|error| error.to_string()).and_then(step);
        match self.faults.sound(record.map_err(wrong)) {
            Some(Some((run, step))) => self.runs.entry(run).or_default().push(step),
            Some(None) => self.idle += 1,
            None => {}
        }
    }
}

/// Reads a file. `wall_time` becomes [`StepRecord::gpu_time_us`]. The records have no timestamps, so every `start_ns` is 0. Each
/// worker and data-parallel rank is a run. Records without scheduled requests, which an idle engine sends, are dropped as empty.
///
/// # Errors
/// A file that cannot be read or has no records; a line that is not JSON; an unknown version or `timing_scope`; more than one record
/// in a hundred with missing keys or impossible values; times that are not in seconds.
pub fn read(path: &Path) -> Result<Capture> {
    let origin = path.display().to_string();
    let mut records = Records { origin: origin.clone(), ..Records::default() };
    visit_json(path, &mut records)?;
    if let Some(error) = records.refused {
        return Err(error);
    }
    let mut found = Capture::default();
    records.faults.settle(&origin, &mut found.dropped_steps)?;
    found.dropped_steps.add_many(Reason::Empty, records.idle);
    let name = file_name(path);
    let is_one = records.runs.len() == 1;
    for ((worker, rank), steps) in records.runs {
        let experiment = if is_one { name.clone() } else { format!("{name} worker {worker} rank {rank}") };
        let median_us = median(steps.iter().filter_map(|step| step.gpu_time_us).collect()).unwrap_or(0.0);
        if median_us > MAX_MEDIAN_US {
            let median_s = median_us / US_PER_S;
            let problem =
                format!("the median `wall_time` is {median_s}, longer than any forward pass; is it in seconds?");
            return Err(Error::invalid(origin, vec![problem]));
        }
        found.add_steps(StepTrace { run: Run { experiment, ..Run::default() }, steps });
    }
    Ok(found)
}

/// A step with its worker and rank.
type WorkerStep = ((String, u32), StepRecord);

/// Converts a record; `None` if it schedules nothing.
fn step(record: Record) -> std::result::Result<Option<WorkerStep>, String> {
    let scheduled = record.scheduled_requests;
    if scheduled.num_prefill_requests == 0 && scheduled.num_decode_requests == 0 {
        return Ok(None);
    }
    if !(record.wall_time.is_finite() && record.wall_time > 0.0) {
        return Err(format!("`wall_time` is {}, must be above 0", record.wall_time));
    }
    if scheduled.sum_prefill_tokens < u64::from(scheduled.num_prefill_requests) {
        let (tokens, requests) = (scheduled.sum_prefill_tokens, scheduled.num_prefill_requests);
        return Err(format!("`sum_prefill_tokens` is {tokens}, must be at least one for each of {requests} chunks"));
    }
    let waiting = |queued: Queued| queued.num_prefill_requests.saturating_add(queued.num_decode_requests);
    let step = StepRecord {
        step_id: record.counter_id,
        num_prefill_requests: scheduled.num_prefill_requests,
        num_decode_requests: scheduled.num_decode_requests,
        prefill_tokens: scheduled.sum_prefill_tokens,
        decode_tokens: u64::from(scheduled.num_decode_requests),
        prefill_kv_tokens: scheduled.sum_prefill_kv_tokens,
        decode_kv_tokens: scheduled.sum_decode_kv_tokens,
        num_waiting: record.queued_requests.map(waiting),
        gpu_time_us: Some(record.wall_time * US_PER_S),
        ..StepRecord::default()
    };
    let worker = record.worker_id.as_str().map_or_else(|| record.worker_id.to_string(), str::to_owned);
    Ok(Some(((worker, record.dp_rank), step)))
}
