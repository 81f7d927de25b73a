//! vLLM's forward-pass metrics (`vllm/v1/metrics/forward_pass_metrics.py`, version 1), exported as JSON, a record per line. They
//! time the GPU's work, not the engine's loop.

use std::collections::BTreeMap;
use std::path::Path;

use ridgepoint::input::FileKind;
use ridgepoint::units::US_PER_S;
use ridgepoint::{Error, Result};
use ridgepoint_replay::input::{Columns, Row, RowReader};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::capture::Capture;
use super::dropped::{DropReason, RowFaults};
use super::file_name;
use super::format::Format;
use super::step::{Run, StepRecord, StepTrace, contradiction};
use crate::measured_time::SECONDS;
use crate::stats::median;

/// Median forward passes of engines are shorter; milliseconds that are read as seconds are longer.
const MAX_MEDIAN_US: f64 = 1e6;

/// vLLM's forward-pass metrics.
pub(super) const FORMAT: Format = Format {
    name: "forward-pass",
    about: "vLLM's forward-pass metrics, a JSON record per line",
    holds_steps: true,
    is_it: |head, _| head.has("timing_scope") || (head.has("scheduled_requests") && head.has("wall_time")),
    read,
};

const COLUMNS: Columns = Columns {
    optional: "queued_requests",
    aliases: &[],
    ..Columns::exactly("version,worker_id,dp_rank,counter_id,timing_scope,wall_time,scheduled_requests")
};

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

/// Reads a file. `wall_time` (seconds) becomes [`StepRecord::gpu_time_us`]. The records have no timestamps, so every `start_ns` is 0.
/// Each worker and data-parallel rank is a run. Records without scheduled requests, which an idle engine sends, are dropped as empty.
///
/// # Errors
/// A file that cannot be read or has no records; a line that is not JSON or has unknown keys; an unknown version or `timing_scope`;
/// more than one record in a hundred with impossible values; times that are not in seconds.
pub fn read(path: &Path) -> Result<Capture> {
    let mut rows = RowReader::jsonl(ridgepoint_replay::input::open(FileKind::Trace, path)?, COLUMNS);
    let origin = rows.origin().to_owned();
    let mut found = Capture::default();
    let mut faults = RowFaults::default();
    let mut workers: BTreeMap<(String, u32), Vec<StepRecord>> = BTreeMap::new();
    while let Some(row) = rows.next_row()? {
        for (column, supported) in [("version", "1"), ("timing_scope", "execute_model_cuda")] {
            if row.text(column).as_deref() != Some(supported) {
                return Err(row.bad(column, supported));
            }
        }
        match faults.sound(step(&row)) {
            Some(Some((worker, step))) => workers.entry(worker).or_default().push(step),
            Some(None) => found.dropped_steps.add(DropReason::Empty),
            None => {}
        }
    }
    faults.settle(&origin, &mut found.dropped_steps)?;
    let name = file_name(path);
    let is_one = workers.len() == 1;
    for ((worker, rank), steps) in workers {
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
fn step(row: &Row<'_>) -> Result<Option<WorkerStep>> {
    let scheduled: Scheduled = object(row, "scheduled_requests")?;
    if scheduled.num_prefill_requests == 0 && scheduled.num_decode_requests == 0 {
        return Ok(None);
    }
    let queued: Option<Queued> = row.optional("queued_requests", object)?;
    let waiting = |queued: Queued| queued.num_prefill_requests.saturating_add(queued.num_decode_requests);
    let step = StepRecord {
        step_id: row.whole("counter_id", 0..=u64::MAX)?,
        num_prefill_requests: scheduled.num_prefill_requests,
        num_decode_requests: scheduled.num_decode_requests,
        prefill_tokens: scheduled.sum_prefill_tokens,
        decode_tokens: u64::from(scheduled.num_decode_requests),
        prefill_kv_tokens: scheduled.sum_prefill_kv_tokens,
        decode_kv_tokens: scheduled.sum_decode_kv_tokens,
        num_waiting: queued.map(waiting),
        gpu_time_us: Some(row.number("wall_time", SECONDS)? * US_PER_S),
        ..StepRecord::default()
    };
    if let Some((field, expected)) = contradiction(&step) {
        return Err(row.bad("scheduled_requests", format!("for {field} {expected}")));
    }
    let worker = row.text("worker_id").unwrap_or_default().into_owned();
    Ok(Some(((worker, row.whole("dp_rank", 0..=u32::MAX)?), step)))
}

fn object<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> Result<T> {
    row.read(column, "an object with counts of requests and tokens", |text| serde_json::from_str(text).ok())
}
