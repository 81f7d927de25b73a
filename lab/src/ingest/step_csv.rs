//! Scheduler steps as csv, a column per attribute of vLLM's `step.BATCH_SUMMARY` events.

use std::path::Path;

use ridgepoint::internals::input::{Columns, Row, RowReader};
use ridgepoint::{Error, Result};

use super::batch_summary::{Counts, REQUIRED, START, step_record};
use super::faults::Faults;
use super::file_name;
use super::format::Format;
use super::ingested::Ingested;
use super::step::{Run, StepRecord, StepTrace, run_index};

/// Scheduler steps as csv.
pub(super) const FORMAT: Format = Format {
    name: "step-csv",
    about: "Scheduler steps as csv, a column per attribute of step.BATCH_SUMMARY",
    holds_steps: true,
    is_it: |head| head.names().iter().any(|column| column.starts_with("step.") || column.starts_with("batch.")),
    read,
};

const EXPERIMENT: &str = "experiment_id";
const TENSOR_PARALLEL: &str = "tp";
const COLUMNS: Columns = Columns {
    required: &REQUIRED,
    optional: &[
        "batch.scheduled_tokens",
        "queue.running_depth",
        "queue.waiting_depth",
        "batch.num_finished",
        "batch.num_preempted",
        "kv.blocks_total_gpu",
        "kv.blocks_free_gpu",
        EXPERIMENT,
        "model",
        "workload",
        TENSOR_PARALLEL,
        // Known and not used: the first two span a part of the engine's loop, the third follows from the blocks.
        "step.ts_end_ns",
        "step.duration_us",
        "kv.usage_gpu_ratio",
    ],
    aliases: &[],
};

/// No engine steps faster than this; timestamps in µs that are read as ns do.
const MIN_PERIOD_NS: u64 = 100_000;

/// Reads a file. Columns may be in any order. Rows with different labels are different runs; a file without `experiment_id` is one
/// run with the name of the file. Steps are sorted by number.
///
/// # Errors
/// A file that cannot be read or has no rows; unknown or missing columns; more than one row in a hundred with an impossible value;
/// timestamps that are not in nanoseconds.
pub fn read(path: &Path) -> Result<Ingested> {
    let mut rows = RowReader::open_csv(path, COLUMNS)?;
    let origin = rows.origin().to_owned();
    let name = rows.header().position(EXPERIMENT).is_none().then(|| file_name(path));
    let mut found = Ingested::default();
    let mut faults = Faults::default();
    let mut traces: Vec<StepTrace> = Vec::new();
    while let Some(row) = rows.next_row()? {
        found.steps_read += 1;
        if let Some((run, step)) = faults.sound(labelled(&row, name.as_deref())) {
            let at = run_index(&mut traces, run);
            traces[at].steps.push(step);
        }
    }
    if found.steps_read == 0 {
        return Err(Error::parse(origin, "has a header and no rows; it needs a row per step"));
    }
    faults.settle(&origin, found.steps_read, &mut found.dropped_steps)?;
    for trace in traces {
        check_unit(&origin, found.add_steps(trace))?;
    }
    Ok(found)
}

fn labelled(row: &Row<'_>, name: Option<&str>) -> Result<(Run, StepRecord)> {
    let text = |column: &str| row.text(column).map(|text| text.into_owned());
    let experiment = match name {
        Some(name) => name.to_owned(),
        None => text(EXPERIMENT).ok_or_else(|| row.bad(EXPERIMENT, "the name of the run"))?,
    };
    let run = Run {
        experiment,
        model: text("model"),
        workload: text("workload"),
        tensor_parallel_size: Counts::optional(row, TENSOR_PARALLEL)?,
        ..Run::default()
    };
    if run.tensor_parallel_size == Some(0) {
        return Err(row.bad(TENSOR_PARALLEL, "a whole number from 1"));
    }
    Ok((run, step_record(row)?))
}

fn check_unit(origin: &str, trace: &StepTrace) -> Result<()> {
    let pairs = trace.steps.iter().zip(trace.steps.iter().skip(1));
    let period_ns = |(step, next): (&StepRecord, &StepRecord)| {
        next.start_ns.saturating_sub(step.start_ns) / next.step_id.saturating_sub(step.step_id).max(1)
    };
    let mut periods_ns: Vec<u64> = pairs.map(period_ns).filter(|period_ns| *period_ns > 0).collect();
    periods_ns.sort_unstable();
    match periods_ns.get(periods_ns.len() / 2) {
        Some(median_ns) if *median_ns < MIN_PERIOD_NS => Err(Error::invalid(
            origin,
            vec![format!(
                "column '{START}': the median period of '{}' is {median_ns} ns, shorter than any engine's; is it in nanoseconds?",
                trace.run.experiment
            )],
        )),
        _ => Ok(()),
    }
}
