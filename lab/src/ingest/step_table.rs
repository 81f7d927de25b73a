//! The step table: steps of any trace as csv, a row per step, with what is known of it and the time it took; `docs/ingest.md`
//! has the columns. Written and read back it is the same. Uses `step`, `periods`, `dropped`, `ingested`, `csv_columns`,
//! `request_cell`, `error`.

use std::io::Write;
use std::path::Path;

use super::csv_columns::{CsvRows, Known, Row};
use super::dropped::Reason;
use super::ingested::Ingested;
use super::periods::{Interval, LeftOut, Periods};
use super::request_cell::{read_cell, write_cell};
use super::step::{Run, StepRecord, StepTrace};
use ridgepoint::internals::units::NS_PER_US;
use ridgepoint::{Error, Result};

/// The columns in the order in which they are written; a table that is read has them all, in any order.
pub const COLUMNS: [&str; 27] = [
    "experiment",
    "model",
    "hardware",
    "tensor_parallel_size",
    "workload",
    "engine_version",
    "max_num_seqs",
    "max_num_batched_tokens",
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

const KNOWN: Known = Known { required: &COLUMNS, optional: &[] };

/// A run in a step table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TableRun {
    /// The run and its steps.
    pub trace: StepTrace,
    /// What became of each of its steps.
    pub periods: Periods,
}

/// Writes runs, one after the other.
///
/// # Errors
/// What `out` says.
pub fn write(out: impl Write, runs: &[TableRun]) -> std::io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS)?;
    for run in runs {
        let mut intervals = run.periods.intervals.iter().peekable();
        let mut left_out = run.periods.left_out.iter().peekable();
        for (index, step) in run.trace.steps.iter().enumerate() {
            let interval = intervals.next_if(|of| of.first == index);
            let reason = left_out.next_if(|of| of.step == index).map(|of| of.reason);
            writer.write_record(cells(&run.trace.run, step, interval, reason))?;
        }
    }
    writer.flush()
}

/// A cell that may be empty.
pub(super) fn or_nothing<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The cells that each row of a run begins with, as [`labels`] reads them.
pub(super) fn label_cells(run: &Run) -> [String; 8] {
    [
        run.experiment.clone(),
        run.model.clone().unwrap_or_default(),
        run.hardware.clone().unwrap_or_default(),
        or_nothing(run.tensor_parallel_size),
        run.workload.clone().unwrap_or_default(),
        run.engine_version.clone().unwrap_or_default(),
        or_nothing(run.max_num_seqs),
        or_nothing(run.max_num_batched_tokens),
    ]
}

fn cells(
    run: &Run,
    step: &StepRecord,
    interval: Option<&Interval>,
    reason: Option<Reason>,
) -> impl Iterator<Item = String> {
    let own = [
        step.step_id.to_string(),
        step.start_ns.to_string(),
        or_nothing(interval.map(|of| of.steps)),
        or_nothing(interval.map(Interval::period_us)),
        or_nothing(reason.map(Reason::name)),
        step.num_prefill_requests.to_string(),
        step.num_decode_requests.to_string(),
        step.prefill_tokens.to_string(),
        step.decode_tokens.to_string(),
        or_nothing(step.prefill_kv_tokens),
        or_nothing(step.decode_kv_tokens),
        or_nothing(step.num_running),
        or_nothing(step.num_waiting),
        or_nothing(step.num_finished),
        or_nothing(step.num_preempted),
        or_nothing(step.kv_blocks_total),
        or_nothing(step.kv_blocks_free),
        or_nothing(step.gpu_time_us),
        step.requests.as_deref().map(write_cell).unwrap_or_default(),
    ];
    label_cells(run).into_iter().chain(own)
}

/// Reads a table with the times that it holds.
///
/// # Errors
/// A file that can't be read or has no row; a missing or unknown column; the first row that is not as documented: none is left
/// out.
pub fn read_runs(path: &Path) -> Result<Vec<TableRun>> {
    let mut rows = CsvRows::open(path, &KNOWN)?;
    let mut runs: Vec<TableRun> = Vec::new();
    let mut record = csv::StringRecord::new();
    let mut current = 0;
    while let Some(row) = rows.next(&mut record)? {
        let labels = labels(&row)?;
        if runs.get(current).is_none_or(|run| run.trace.run != labels) {
            current = runs.iter().position(|run| run.trace.run == labels).unwrap_or_else(|| {
                let trace = StepTrace { run: labels, steps: Vec::new() };
                runs.push(TableRun { trace, periods: Periods::default() });
                runs.len() - 1
            });
        }
        if let Some(run) = runs.get_mut(current) {
            append(run, &row)?;
        }
    }
    if runs.is_empty() {
        let message = "has a header and no rows; it needs a row per step".to_owned();
        return Err(Error::parse(rows.origin().to_owned(), message));
    }
    Ok(runs)
}

/// Reads the steps of a table as a trace, for which [`super::periods()`] can be found anew.
///
/// # Errors
/// As [`read_runs`].
pub fn read(path: &Path) -> Result<Ingested> {
    let steps: Vec<StepTrace> = read_runs(path)?.into_iter().map(|run| run.trace).collect();
    let steps_read = steps.iter().map(|trace| trace.steps.len() as u64).sum();
    Ok(Ingested { steps, steps_read, ..Ingested::default() })
}

fn append(run: &mut TableRun, row: &Row<'_>) -> Result<()> {
    let step = step(row)?;
    if run.trace.steps.last().is_some_and(|last| last.step_id >= step.step_id) {
        return Err(
            row.bad("step_id", format!("a number above that of the step before in '{}'", run.trace.run.experiment))
        );
    }
    let first = run.trace.steps.len();
    let period_us = row.positive("period_us")?;
    let steps = row.whole::<u64>("steps_to_next")?;
    match (row.text("left_out"), period_us, steps) {
        (None, Some(period_us), Some(steps)) if steps > 0 => {
            run.periods.intervals.push(Interval { first, steps, span_us: span_us(period_us, steps) });
        }
        (Some(text), None, None) => {
            let known = Reason::ALL.map(Reason::name).join(", ");
            let reason = Reason::ALL.into_iter().find(|reason| reason.name() == text.trim());
            let reason = reason.ok_or_else(|| row.bad("left_out", format!("one of {known}")))?;
            run.periods.left_out.push(LeftOut { step: first, reason });
        }
        (Some(_), ..) => return Err(row.bad("left_out", "nothing where the step has a period")),
        (None, Some(_), _) => return Err(row.bad("steps_to_next", "a whole number from 1")),
        (None, None, _) => return Err(row.bad("period_us", "a number above 0, or a reason in left_out")),
    }
    run.trace.steps.push(step);
    Ok(())
}

/// The span whose mean is `period_us`: clocks count whole nanoseconds, so the product is exact once rounded to them.
fn span_us(period_us: f64, steps: u64) -> f64 {
    if steps == 1 {
        return period_us;
    }
    let ns_per_us = NS_PER_US as f64;
    (period_us * steps as f64 * ns_per_us).round() / ns_per_us
}

pub(super) fn labels(row: &Row<'_>) -> Result<Run> {
    let text = |column: &str| row.text(column).map(str::to_owned);
    let count = |column: &str| match row.whole::<u32>(column)? {
        Some(0) => Err(row.bad(column, "a whole number from 1, or nothing")),
        value => Ok(value),
    };
    Ok(Run {
        experiment: text("experiment").ok_or_else(|| row.bad("experiment", "the name of the run"))?,
        model: text("model"),
        hardware: text("hardware"),
        tensor_parallel_size: count("tensor_parallel_size")?,
        workload: text("workload"),
        engine_version: text("engine_version"),
        max_num_seqs: count("max_num_seqs")?,
        max_num_batched_tokens: count("max_num_batched_tokens")?,
    })
}

fn step(row: &Row<'_>) -> Result<StepRecord> {
    let mut step = StepRecord {
        step_id: row.required("step_id")?,
        start_ns: row.required("start_ns")?,
        num_prefill_requests: row.required("num_prefill_requests")?,
        num_decode_requests: row.required("num_decode_requests")?,
        prefill_tokens: row.required("prefill_tokens")?,
        decode_tokens: row.required("decode_tokens")?,
        prefill_kv_tokens: row.whole("prefill_kv_tokens")?,
        decode_kv_tokens: row.whole("decode_kv_tokens")?,
        num_running: row.whole("num_running")?,
        num_waiting: row.whole("num_waiting")?,
        num_finished: row.whole("num_finished")?,
        num_preempted: row.whole("num_preempted")?,
        kv_blocks_total: row.whole("kv_blocks_total")?,
        kv_blocks_free: row.whole("kv_blocks_free")?,
        gpu_time_us: row.positive("gpu_time_us")?,
        requests: None,
    };
    if let Some(text) = row.text("requests") {
        let count = u64::from(step.num_prefill_requests) + u64::from(step.num_decode_requests);
        let tokens = step.prefill_tokens.saturating_add(step.decode_tokens);
        let requests = read_cell(text, count, tokens).map_err(|expected| row.bad("requests", expected))?;
        step.requests = Some(requests);
    }
    Ok(step)
}
