//! Scheduler steps as csv, a column per attribute of vLLM's `step.BATCH_SUMMARY` events.

use std::path::Path;

use ridgepoint::internals::input::{Columns, RowReader};
use ridgepoint::{Error, Result};

use super::batch_summary::{REQUIRED, START, step_record};
use super::capture::Capture;
use super::faults::RowFaults;
use super::file_name;
use super::format::Format;
use super::step::{Run, StepRecord, StepTrace, run_index};
use super::table::run;
use crate::stats::median;

/// Scheduler steps as csv.
pub(super) const FORMAT: Format = Format {
    name: "step-csv",
    about: "Scheduler steps as csv, a column per attribute of step.BATCH_SUMMARY",
    holds_steps: true,
    is_it: |head| head.names().iter().any(|column| column.starts_with("step.") || column.starts_with("batch.")),
    read,
};

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
        "experiment",
        "model",
        "workload",
        "tensor_parallel_size",
        // Known and not used: the first two span a part of the engine's loop, the third follows from the blocks.
        "step.ts_end_ns",
        "step.duration_us",
        "kv.usage_gpu_ratio",
    ],
    aliases: &[("experiment_id", "experiment"), ("tp", "tensor_parallel_size")],
};

/// No engine steps faster than this; timestamps in µs that are read as ns do.
const MIN_PERIOD_NS: f64 = 1e5;

/// Reads a file. Columns may be in any order. Rows with different labels are different runs; a file without `experiment_id` is one
/// run with the name of the file. Steps are sorted by number.
///
/// # Errors
/// A file that cannot be read or has no rows; unknown or missing columns; more than one row in a hundred with an impossible value;
/// timestamps that are not in nanoseconds.
pub fn read(path: &Path) -> Result<Capture> {
    let mut rows = RowReader::open_csv(path, COLUMNS)?;
    let origin = rows.origin().to_owned();
    let name = rows.header().position("experiment").is_none().then(|| file_name(path));
    let mut found = Capture::default();
    let mut faults = RowFaults::default();
    let mut runs: Vec<(Run, Vec<StepRecord>)> = Vec::new();
    while let Some(row) = rows.next_row()? {
        let record = run(&row, name.as_deref()).and_then(|run| Ok((run, step_record(&row)?)));
        if let Some((run, step)) = faults.sound(record) {
            let at = run_index(&mut runs, run);
            runs[at].1.push(step);
        }
    }
    faults.settle(&origin, &mut found.dropped_steps)?;
    for (run, steps) in runs {
        found.add_steps(StepTrace { run, steps });
    }
    for trace in &found.steps {
        let median_ns = median(periods_ns(&trace.steps)).unwrap_or(f64::INFINITY);
        if median_ns < MIN_PERIOD_NS {
            let problem = format!(
                "column '{START}': the median period of '{}' is {median_ns} ns, shorter than any engine's; is it in nanoseconds?",
                trace.run.experiment
            );
            return Err(Error::invalid(origin, vec![problem]));
        }
    }
    Ok(found)
}

/// The periods that are above 0.
fn periods_ns(steps: &[StepRecord]) -> Vec<f64> {
    let pairs = steps.iter().zip(steps.iter().skip(1));
    let period_ns = |(step, next): (&StepRecord, &StepRecord)| {
        next.start_ns.saturating_sub(step.start_ns) as f64 / (next.step_id - step.step_id) as f64
    };
    pairs.map(period_ns).filter(|period_ns| *period_ns > 0.0).collect()
}
