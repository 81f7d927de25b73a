//! Scheduler steps as csv, a column per attribute of vLLM's `step.BATCH_SUMMARY` events.
use std::path::Path;

use ridgepoint::input::FileKind;
use ridgepoint::{Error, Result};
use ridgepoint_replay::input::{Columns, Row, RowReader};

use super::capture::Capture;
use super::dropped::RowFaults;
use super::file_name;
use super::format::Format;
use super::periods::{Cleaning, periods};
use super::step::{ByRun, Run, StepRecord, StepTrace, attribute_contradiction};
use super::table::run;

/// Scheduler steps as csv.
pub(super) const FORMAT: Format = Format {
    name: "step-csv",
    about: "Scheduler steps as csv, a column per attribute of step.BATCH_SUMMARY",
    holds_steps: true,
    is_it: |head, _| head.names.iter().any(|column| column.starts_with("step.") || column.starts_with("batch.")),
    read,
};

/// The last two are known and not used: they span a part of the engine's loop.
const COLUMNS: Columns = Columns {
    optional: "batch.scheduled_tokens,queue.running_depth,queue.waiting_depth,batch.num_finished,\
        batch.num_preempted,kv.blocks_total_gpu,kv.blocks_free_gpu,experiment,model,workload,\
        tensor_parallel_size,kv.usage_gpu_ratio,step.ts_end_ns,step.duration_us",
    aliases: &[("experiment_id", "experiment"), ("tp", "tensor_parallel_size")],
    ..Columns::exactly(
        "step.id,step.ts_start_ns,batch.num_prefill_reqs,batch.num_decode_reqs,batch.prefill_tokens,\
        batch.decode_tokens",
    )
};

/// No engine steps faster than this; timestamps in µs that are read as ns do.
const MIN_PERIOD_US: f64 = 100.0;

/// Reads a file. Columns may be in any order. Rows with different labels are different runs; a file without `experiment_id` is one
/// run with the name of the file. Steps are sorted by number.
///
/// # Errors
/// A file that cannot be read or has no rows; unknown or missing columns; more than one row in a hundred with an impossible value;
/// timestamps that are not in nanoseconds.
pub fn read(path: &Path) -> Result<Capture> {
    let mut rows = RowReader::csv(ridgepoint_replay::input::open(FileKind::Trace, path)?, COLUMNS)?;
    let origin = rows.origin().to_owned();
    let name = rows.header().position("experiment").is_none().then(|| file_name(path));
    let mut found = Capture::default();
    let mut faults = RowFaults::default();
    let mut runs: ByRun<StepTrace> = ByRun::default();
    while let Some(row) = rows.next_row()? {
        if let Some((run, step)) = faults.sound(record(&row, name.as_deref())) {
            runs.of(run, |run| StepTrace { run, steps: Vec::new() }).steps.push(step);
        }
    }
    faults.settle(&origin, &mut found.dropped_steps)?;
    runs.values.into_iter().for_each(|trace| found.add_steps(trace));
    check_nanoseconds(&found, &origin, "column 'step.ts_start_ns'")?;
    Ok(found)
}

/// Refuses steps that follow each other faster than those of any engine: the times of `what` are in another unit.
pub(super) fn check_nanoseconds(found: &Capture, origin: &str, what: &str) -> Result<()> {
    for trace in &found.steps {
        let all = periods(trace, &Cleaning { warm_up_steps: 0, drop_preemptions: false });
        if let Some(median_us) = all.median_period_us().filter(|median_us| *median_us < MIN_PERIOD_US) {
            let problem = format!(
                "{what}: the median period of '{}' is {median_us} µs, shorter than any engine's; is it in nanoseconds?",
                trace.run.experiment
            );
            return Err(Error::invalid(origin.to_owned(), vec![problem]));
        }
    }
    Ok(())
}

fn record(row: &Row<'_>, name: Option<&str>) -> Result<(Run, StepRecord)> {
    let (run, step) = (run(row, name)?, row.get()?);
    match attribute_contradiction(&step, &row.get()?) {
        Some((column, expected)) => Err(row.bad(column, expected)),
        None => Ok((run, step)),
    }
}
