//! Scheduler steps as csv, a column per attribute of vLLM's `step.BATCH_SUMMARY` events. Uses `step`, `ingested`, `dropped`,
//! `csv_columns`, `faults`, `order`, `error`.

use std::path::Path;

use super::csv_columns::{CsvRows, Known, Row};
use super::dropped::Reason;
use super::faults::Faults;
use super::ingested::Ingested;
use super::order::put_in_order;
use super::step::{Run, StepRecord, StepTrace};
use ridgepoint::{Error, Result};

const ID: &str = "step.id";
const START: &str = "step.ts_start_ns";
const PREFILLS: &str = "batch.num_prefill_reqs";
const DECODES: &str = "batch.num_decode_reqs";
const PREFILL_TOKENS: &str = "batch.prefill_tokens";
const DECODE_TOKENS: &str = "batch.decode_tokens";
const SCHEDULED_TOKENS: &str = "batch.scheduled_tokens";
const BLOCKS_TOTAL: &str = "kv.blocks_total_gpu";
const BLOCKS_FREE: &str = "kv.blocks_free_gpu";
const TENSOR_PARALLEL: &str = "tp";

const COLUMNS: Known = Known {
    required: &[ID, START, PREFILLS, DECODES, PREFILL_TOKENS, DECODE_TOKENS],
    optional: &[
        SCHEDULED_TOKENS,
        "queue.running_depth",
        "queue.waiting_depth",
        "batch.num_finished",
        "batch.num_preempted",
        BLOCKS_TOTAL,
        BLOCKS_FREE,
        "experiment_id",
        "model",
        "workload",
        TENSOR_PARALLEL,
        // Known and not used: the first two span a part of the engine's loop, the third follows from the blocks.
        "step.ts_end_ns",
        "step.duration_us",
        "kv.usage_gpu_ratio",
    ],
};

/// Reads a file. Columns may stand in any order; rows of different `experiment_id`, `model`, `workload` or `tp` are different
/// runs, and a file without `experiment_id` is one, named as the file is. Steps are put in the order of their numbers.
///
/// # Errors
/// A file that can't be read, has no row, unknown columns or not the ones it needs; more than one in a hundred rows with a value
/// that can't be; timestamps that are not in nanoseconds.
pub fn read(path: &Path) -> Result<Ingested> {
    let mut rows = CsvRows::open(path, &COLUMNS)?;
    let origin = rows.origin().to_owned();
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let is_named = rows.has("experiment_id");
    let mut found = Ingested::default();
    let mut faults = Faults::default();
    let mut record = csv::StringRecord::new();
    let mut current = 0;
    while let Some(row) = rows.next(&mut record)? {
        found.steps_read += 1;
        let Some((run, step)) = faults.sound(labelled(&row, if is_named { None } else { Some(&stem) })) else {
            continue;
        };
        if found.steps.get(current).is_none_or(|trace| trace.run != run) {
            current = found.steps.iter().position(|trace| trace.run == run).unwrap_or_else(|| {
                found.steps.push(StepTrace { run, steps: Vec::new() });
                found.steps.len() - 1
            });
        }
        if let Some(trace) = found.steps.get_mut(current) {
            trace.steps.push(step);
        }
    }
    if found.steps_read == 0 {
        return Err(Error::parse(origin, "has a header and no rows; it needs a row per step"));
    }
    faults.settle(&origin, found.steps_read, &mut found.dropped_steps)?;
    for trace in &mut found.steps {
        let order = put_in_order(trace);
        found.dropped_steps.add_many(Reason::Duplicate, order.duplicates);
        found.notes.extend(order.notes);
        check_unit(&origin, trace)?;
    }
    Ok(found)
}

fn labelled(row: &Row<'_>, name: Option<&str>) -> Result<(Run, StepRecord)> {
    let text = |column: &str| row.text(column).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let experiment = match name {
        Some(name) => name.to_owned(),
        None => text("experiment_id").ok_or_else(|| row.bad("experiment_id", "the name of the run"))?,
    };
    let run = Run {
        experiment,
        model: text("model"),
        workload: text("workload"),
        tensor_parallel_size: row.whole(TENSOR_PARALLEL)?,
        ..Run::default()
    };
    if run.tensor_parallel_size == Some(0) {
        return Err(row.bad(TENSOR_PARALLEL, "a whole number from 1"));
    }
    Ok((run, step(row)?))
}

fn step(row: &Row<'_>) -> Result<StepRecord> {
    let step = StepRecord {
        step_id: row.required(ID)?,
        start_ns: row.required(START)?,
        num_prefill_requests: row.required(PREFILLS)?,
        num_decode_requests: row.required(DECODES)?,
        prefill_tokens: row.required(PREFILL_TOKENS)?,
        decode_tokens: row.required(DECODE_TOKENS)?,
        num_running: row.whole("queue.running_depth")?,
        num_waiting: row.whole("queue.waiting_depth")?,
        num_finished: row.whole("batch.num_finished")?,
        num_preempted: row.whole("batch.num_preempted")?,
        kv_blocks_total: row.whole(BLOCKS_TOTAL)?,
        kv_blocks_free: row.whole(BLOCKS_FREE)?,
        ..StepRecord::default()
    };
    if step.prefill_tokens < u64::from(step.num_prefill_requests) {
        return Err(
            row.bad(PREFILL_TOKENS, format!("a token at least for each of {} chunks", step.num_prefill_requests))
        );
    }
    if step.decode_tokens < u64::from(step.num_decode_requests) {
        return Err(
            row.bad(DECODE_TOKENS, format!("a token at least for each of {} decodes", step.num_decode_requests))
        );
    }
    let sum = step.prefill_tokens.checked_add(step.decode_tokens);
    if row.whole::<u64>(SCHEDULED_TOKENS)?.is_some_and(|scheduled| Some(scheduled) != sum) {
        let expected = format!("{} prompt and {} decode tokens together", step.prefill_tokens, step.decode_tokens);
        return Err(row.bad(SCHEDULED_TOKENS, expected));
    }
    if let (Some(free), Some(total)) = (step.kv_blocks_free, step.kv_blocks_total)
        && free > total
    {
        return Err(row.bad(BLOCKS_FREE, format!("at most the {total} blocks there are")));
    }
    Ok(step)
}

/// No engine's loop is this fast; a clock in µs read as ns makes it look so.
const MIN_PERIOD_NS: u64 = 100_000;

fn check_unit(origin: &str, trace: &StepTrace) -> Result<()> {
    let steps = trace.steps.as_slice();
    let mut periods_ns: Vec<u64> = steps
        .iter()
        .zip(steps.iter().skip(1))
        .map(|(step, next)| {
            next.start_ns.saturating_sub(step.start_ns) / next.step_id.saturating_sub(step.step_id).max(1)
        })
        .filter(|period_ns| *period_ns > 0)
        .collect();
    let middle = periods_ns.len() / 2;
    if periods_ns.is_empty() {
        return Ok(());
    }
    let (_, median_ns, _) = periods_ns.select_nth_unstable(middle);
    if *median_ns >= MIN_PERIOD_NS {
        return Ok(());
    }
    let problem = format!(
        "column '{START}': steps of '{}' start {median_ns} ns apart in the median, faster than any engine; are these \
         nanoseconds?",
        trace.run.experiment
    );
    Err(Error::invalid(origin, vec![problem]))
}
