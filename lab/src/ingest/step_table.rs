//! The step table: steps of any trace as csv, a row per step with its time; `docs/ingest.md` has the columns. A table that is written
//! and read back is the same.

use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

use ridgepoint::Result;
use ridgepoint::units::NS_PER_US;
use ridgepoint_replay::input::{Columns, Row};
use serde::{Deserialize, Serialize};

use super::capture::Capture;
use super::dropped::DropReason;
use super::format::Format;
use super::periods::Periods;
use super::request_cell::{read_cell, write_cell};
use super::step::{Interval, Run, StepRecord, StepTrace, contradiction};
use super::table::{header, read_rows, write_rows};
use crate::measured_time::MICROSECONDS;

/// A step table.
pub const FORMAT: Format = Format {
    name: "step-table",
    about: "A step table of this command",
    holds_steps: true,
    is_it: |head, _| head.has("steps_to_next"),
    read,
};

/// The columns in the order in which they are written. A table has them in any order.
pub static COLUMNS: LazyLock<&'static str> =
    LazyLock::new(|| header((Run::default(), StepRecord::default(), Cells::default())));

/// The column that tables of earlier releases lack.
const OPTIONAL: &str = "kv_usage_ratio";

/// The columns that every table has.
static REQUIRED: LazyLock<String> = LazyLock::new(|| COLUMNS.replace(&format!("{OPTIONAL},"), ""));

fn columns() -> Columns {
    Columns { optional: OPTIONAL, ..Columns::exactly(&REQUIRED) }
}

/// The last columns of a row.
#[derive(Default, Serialize, Deserialize)]
struct Cells {
    steps_to_next: Option<u64>,
    period_us: Option<f64>,
    left_out: Option<DropReason>,
    requests: Option<String>,
}

/// The time of a step, or why it has none.
type StepTime = std::result::Result<Interval, DropReason>;

/// A run in a step table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TableRun {
    /// The run and its steps.
    pub trace: StepTrace,
    /// The time of each step, or why it has none.
    pub periods: Periods,
}

/// Writes runs, one after the other.
///
/// # Errors
/// Those of `out`.
pub fn write(out: impl Write, runs: &[TableRun]) -> std::io::Result<()> {
    let rows = runs.iter().flat_map(|TableRun { trace, periods }| {
        trace.steps.iter().zip(&periods.times).map(move |(step, time)| {
            let interval = time.ok();
            let cells = Cells {
                steps_to_next: interval.map(|of| of.steps),
                period_us: interval.map(|of| of.period_us()),
                left_out: time.err(),
                requests: step.requests.as_deref().map(write_cell),
            };
            (&trace.run, step, cells)
        })
    });
    write_rows(out, rows)
}

/// Reads a table with the times that it holds.
///
/// # Errors
/// A file that cannot be read or has no rows; a missing or unknown column; the first row that is not as documented.
pub fn read_runs(path: &Path) -> Result<Vec<TableRun>> {
    let mut repeats = 0;
    let runs = read_rows(path, columns(), |row, run, known: &[(StepRecord, StepTime)]| {
        let (mut step, cells): (StepRecord, Cells) = (row.get()?, row.get()?);
        if known.last().is_some_and(|(last, _)| last.step_id >= step.step_id) {
            let expected = format!("a number above that of the step before in '{}'", run.experiment);
            return Err(row.bad("step_id", expected));
        }
        for (column, time_us) in [("gpu_time_us", step.gpu_time_us), ("period_us", cells.period_us)] {
            if time_us.is_some_and(|time_us| !MICROSECONDS.contains(time_us)) {
                return Err(row.bad(column, MICROSECONDS));
            }
        }
        if let Some((column, expected)) = contradiction(&step) {
            return Err(row.bad(column, expected));
        }
        if let Some(text) = &cells.requests {
            let count = u64::from(step.num_prefill_requests) + u64::from(step.num_decode_requests);
            let tokens = step.prefill_tokens.saturating_add(step.decode_tokens);
            let requests = read_cell(text, count, tokens, &mut repeats);
            let requests = requests.map_err(|expected| row.bad("requests", expected))?;
            step.requests = Some(requests);
        }
        Ok((step, time(row, &cells, known.len())?))
    })?;
    let table = |(run, rows): (Run, Vec<_>)| {
        let (steps, times) = rows.into_iter().unzip();
        TableRun { trace: StepTrace { run, steps }, periods: Periods { times } }
    };
    Ok(runs.into_iter().map(table).collect())
}

/// Reads the steps of a table as a trace, for which [`super::periods()`] can be found anew.
///
/// # Errors
/// As [`read_runs`].
pub fn read(path: &Path) -> Result<Capture> {
    let steps = read_runs(path)?.into_iter().map(|run| run.trace).collect();
    Ok(Capture { steps, ..Capture::default() })
}

fn time(row: &Row<'_>, cells: &Cells, first: usize) -> Result<StepTime> {
    match (cells.left_out, cells.period_us, cells.steps_to_next) {
        (None, Some(period_us), Some(steps)) if steps > 0 => {
            Ok(Ok(Interval { first, steps, span_us: span_us(period_us, steps) }))
        }
        (Some(reason), None, None) => Ok(Err(reason)),
        (Some(_), ..) => Err(row.bad("left_out", "nothing where the step has a period")),
        (None, Some(_), _) => Err(row.bad("steps_to_next", "a whole number from 1")),
        (None, None, _) => Err(row.bad("period_us", "a number above 0, or a reason in left_out")),
    }
}

/// The span whose mean is `period_us`: clocks count whole nanoseconds, so the product is exact once rounded to them.
fn span_us(period_us: f64, steps: u64) -> f64 {
    if steps == 1 {
        return period_us;
    }
    let ns_per_us = NS_PER_US as f64;
    (period_us * steps as f64 * ns_per_us).round() / ns_per_us
}
