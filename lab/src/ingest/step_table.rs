//! The step table: steps of any trace as csv, a row per step with its time; `docs/ingest.md` has the columns. A table that is written
//! and read back is the same.

use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

use ridgepoint::Result;
use ridgepoint::internals::input::{NumberRange, Row};
use ridgepoint::internals::units::NS_PER_US;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as NameError;

use super::batch_summary::Counts;
use super::capture::Capture;
use super::dropped::Reason;
use super::format::Format;
use super::periods::{Interval, Periods};
use super::request_cell::{read_cell, write_cell};
use super::step::{Run, StepRecord, StepTrace};
use super::table::{RUN_COLUMNS, read_rows};

/// A step table.
pub const FORMAT: Format = Format {
    name: "step-table",
    about: "A step table of this command",
    holds_steps: true,
    is_it: |head| head.has("steps_to_next"),
    read,
};

/// The columns behind those of the run.
const STEP_COLUMNS: [&str; 19] = [
    "step_id",
    "start_ns",
    "steps_to_next",
    "period_us",
    "left_out",
    "num_prefill_requests",
    "num_decode_requests",
    "prefill_tokens",
    "decode_tokens",
    "prefill_kv_tokens",
    "decode_kv_tokens",
    "num_running",
    "num_waiting",
    "num_finished",
    "num_preempted",
    "kv_blocks_total",
    "kv_blocks_free",
    "gpu_time_us",
    "requests",
];

/// The columns in the order in which they are written. A table has them all, in any order.
pub static COLUMNS: LazyLock<Vec<&'static str>> = LazyLock::new(|| [&RUN_COLUMNS[..], &STEP_COLUMNS].concat());

/// The time of a step, or why it has none.
type StepTime = std::result::Result<Interval, Reason>;

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
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(out);
    writer.write_record(COLUMNS.iter())?;
    for TableRun { trace, periods } in runs {
        for (step, time) in trace.steps.iter().zip(&periods.times) {
            let interval = time.as_ref().ok();
            let period_us = interval.map(|of| of.period_us().to_string());
            let requests = step.requests.as_deref().map(write_cell);
            writer.serialize((
                &trace.run,
                (step.step_id, step.start_ns, interval.map(|of| of.steps), period_us, time.err()),
                (step.num_prefill_requests, step.num_decode_requests, step.prefill_tokens, step.decode_tokens),
                (step.prefill_kv_tokens, step.decode_kv_tokens),
                (step.num_running, step.num_waiting, step.num_finished, step.num_preempted),
                (step.kv_blocks_total, step.kv_blocks_free, step.gpu_time_us.map(|us| us.to_string()), requests),
            ))?;
        }
    }
    writer.flush()
}

/// Reads a table with the times that it holds.
///
/// # Errors
/// A file that cannot be read or has no rows; a missing or unknown column; the first row that is not as documented.
pub fn read_runs(path: &Path) -> Result<Vec<TableRun>> {
    let runs = read_rows(path, &COLUMNS, |row, run, known: &[(StepRecord, StepTime)]| {
        let step = step(row)?;
        if known.last().is_some_and(|(last, _)| last.step_id >= step.step_id) {
            let expected = format!("a number above that of the step before in '{}'", run.experiment);
            return Err(row.bad("step_id", expected));
        }
        Ok((step, time(row, known.len())?))
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

fn time(row: &Row<'_>, first: usize) -> Result<StepTime> {
    let period_us = positive(row, "period_us")?;
    let steps = row.unsigned("steps_to_next")?;
    match (row.text("left_out").as_deref(), period_us, steps) {
        (None, Some(period_us), Some(steps)) if steps > 0 => {
            Ok(Ok(Interval { first, steps, span_us: span_us(period_us, steps) }))
        }
        (Some(text), None, None) => {
            let reason = Reason::deserialize(IntoDeserializer::<NameError>::into_deserializer(text.trim()));
            reason.map(Err).map_err(|error| row.bad("left_out", format!("a reason: {error}")))
        }
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

fn positive(row: &Row<'_>, column: &str) -> Result<Option<f64>> {
    row.optional(column, |row, column| row.number(column, NumberRange::POSITIVE))
}

fn step(row: &Row<'_>) -> Result<StepRecord> {
    let mut step = StepRecord {
        step_id: row.required("step_id")?,
        start_ns: row.required("start_ns")?,
        num_prefill_requests: row.required("num_prefill_requests")?,
        num_decode_requests: row.required("num_decode_requests")?,
        prefill_tokens: row.required("prefill_tokens")?,
        decode_tokens: row.required("decode_tokens")?,
        prefill_kv_tokens: row.count("prefill_kv_tokens")?,
        decode_kv_tokens: row.count("decode_kv_tokens")?,
        num_running: row.count("num_running")?,
        num_waiting: row.count("num_waiting")?,
        num_finished: row.count("num_finished")?,
        num_preempted: row.count("num_preempted")?,
        kv_blocks_total: row.count("kv_blocks_total")?,
        kv_blocks_free: row.count("kv_blocks_free")?,
        gpu_time_us: positive(row, "gpu_time_us")?,
        requests: None,
    };
    if let Some(text) = row.text("requests") {
        let count = u64::from(step.num_prefill_requests) + u64::from(step.num_decode_requests);
        let tokens = step.prefill_tokens.saturating_add(step.decode_tokens);
        let requests = read_cell(&text, count, tokens).map_err(|expected| row.bad("requests", expected))?;
        step.requests = Some(requests);
    }
    Ok(step)
}
