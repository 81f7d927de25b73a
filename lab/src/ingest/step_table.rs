//! The step table: steps of any trace as csv, a row per step with its time; `docs/ingest.md` has the columns. A table that is written
//! and read back is the same.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

use ridgepoint::internals::input::{Columns, NumberRange, Row, RowReader};
use ridgepoint::internals::units::NS_PER_US;
use ridgepoint::{Error, Result};

use super::batch_summary::Counts;
use super::dropped::Reason;
use super::format::Format;
use super::ingested::Ingested;
use super::interval::{Interval, LeftOut, Periods};
use super::request_cell::{read_cell, write_cell};
use super::step::{OfRun, Run, StepRecord, StepTrace, run_index};

/// A step table.
pub const FORMAT: Format = Format {
    name: "step-table",
    about: "A step table of this command",
    holds_steps: true,
    is_it: |head| head.has("steps_to_next"),
    read,
};

/// The columns in the order in which they are written. A table has them all, in any order.
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

/// A cell, empty for `None`.
pub(super) fn or_nothing<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The first cells of each row of a run; [`labels`] reads them.
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

impl OfRun for TableRun {
    fn new(run: Run) -> Self {
        TableRun { trace: StepTrace::new(run), periods: Periods::default() }
    }

    fn run(&self) -> &Run {
        &self.trace.run
    }
}

/// Reads a table with the times that it holds.
///
/// # Errors
/// A file that cannot be read or has no rows; a missing or unknown column; the first row that is not as documented.
pub fn read_runs(path: &Path) -> Result<Vec<TableRun>> {
    let mut rows = open(path, &COLUMNS)?;
    let mut runs: Vec<TableRun> = Vec::new();
    while let Some(row) = rows.next_row()? {
        let at = run_index(&mut runs, labels(&row)?);
        append(&mut runs[at], &row)?;
    }
    if runs.is_empty() {
        return Err(Error::parse(rows.origin(), "has a header and no rows; it needs a row per step"));
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
    let period_us = positive(row, "period_us")?;
    let steps = Counts::optional::<u64>(row, "steps_to_next")?;
    match (row.text("left_out").as_deref(), period_us, steps) {
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

/// Opens a table that has exactly these columns. Its cells are read as they are.
pub(super) fn open(path: &Path, columns: &'static [&'static str]) -> Result<RowReader<BufReader<File>>> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let reader = BufReader::with_capacity(1 << 16, file);
    RowReader::verbatim_csv(&path.display().to_string(), reader, Columns::exactly(columns))
}

fn positive(row: &Row<'_>, column: &str) -> Result<Option<f64>> {
    row.optional(column, |row, column| row.number(column, NumberRange::POSITIVE))
}

pub(super) fn labels(row: &Row<'_>) -> Result<Run> {
    let text = |column: &str| row.text(column).map(Cow::into_owned);
    let count = |column: &str| match Counts::optional::<u32>(row, column)? {
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
        step_id: Counts::required(row, "step_id")?,
        start_ns: Counts::required(row, "start_ns")?,
        num_prefill_requests: Counts::required(row, "num_prefill_requests")?,
        num_decode_requests: Counts::required(row, "num_decode_requests")?,
        prefill_tokens: Counts::required(row, "prefill_tokens")?,
        decode_tokens: Counts::required(row, "decode_tokens")?,
        prefill_kv_tokens: Counts::optional(row, "prefill_kv_tokens")?,
        decode_kv_tokens: Counts::optional(row, "decode_kv_tokens")?,
        num_running: Counts::optional(row, "num_running")?,
        num_waiting: Counts::optional(row, "num_waiting")?,
        num_finished: Counts::optional(row, "num_finished")?,
        num_preempted: Counts::optional(row, "num_preempted")?,
        kv_blocks_total: Counts::optional(row, "kv_blocks_total")?,
        kv_blocks_free: Counts::optional(row, "kv_blocks_free")?,
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
