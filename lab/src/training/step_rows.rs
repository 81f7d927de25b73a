//! Rows of the table of steps: how long a step took, and what was in it.

use serde::Serialize;

use super::lines::{LineFit, TrainingRow, lines};
use crate::evaluate::steps::case::StepCase;
use crate::fit::Alignment;
use crate::ingest::Interval;
use ridgepoint::latency::BlackBox;

/// A row, with its fields in the order of the table's columns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRow {
    /// From the start of the step to the next one, µs; where steps are sampled, the mean of those in between.
    pub step_duration_us: f64,
    /// Requests with a prefill chunk.
    pub num_prefill: u32,
    /// Requests that decode.
    pub num_decode: u32,
    /// Tokens of prefill chunks.
    pub prefill_tokens: u64,
    /// Tokens of decodes.
    pub decode_tokens: u64,
    /// Share of the KV blocks that is in use.
    pub kv_ratio: Option<f64>,
    /// Tokens that its requests have in the cache.
    pub kv_tokens: Option<u64>,
    /// Predicted time of the step without a correction, µs.
    pub tables_us: f64,
    /// Steps that the duration is a mean of.
    pub steps: u64,
    /// When it began.
    pub start_ns: u64,
    /// What a line is drawn through: [`BlackBox::COLUMNS`].
    #[serde(skip)]
    pub(super) columns: Vec<f64>,
}

impl StepRow {
    /// The rows of a trace. With asynchronous scheduling a duration is that of the step before, if that was traced.
    pub fn of(case: &StepCase, alignment: Alignment) -> Vec<StepRow> {
        let row = |(at, time): (usize, &Interval)| {
            let id = |row: &Interval| case.record(row).map(|step| step.step_id);
            let before = at.checked_sub(1).and_then(|at| case.rows.get(at)).filter(|_| alignment == Alignment::Before);
            let before = before.filter(|before| id(before).and_then(|id| id.checked_add(1)) == id(time));
            let of = before.unwrap_or(time);
            let step = case.record(of)?;
            Some(StepRow {
                step_duration_us: time.period_us(),
                num_prefill: step.num_prefill_requests,
                num_decode: step.num_decode_requests,
                prefill_tokens: step.prefill_tokens,
                decode_tokens: step.decode_tokens,
                kv_ratio: step.kv_ratio(),
                kv_tokens: step.kv_tokens(),
                tables_us: case.calibrated.step_time_us(&case.requests(of)),
                steps: time.steps,
                start_ns: step.start_ns,
                columns: BlackBox::columns(&case.requests(of)).to_vec(),
            })
        };
        case.rows.iter().enumerate().filter_map(row).collect()
    }

    fn columns_and_target(&self) -> TrainingRow {
        TrainingRow { x: self.columns.iter().copied().map(Some).collect(), y: self.step_duration_us }
    }
}

/// Ridge and lasso of steps, in the order of time, judged on other rows. No price is negative: more work never takes less time.
pub(super) fn step_lines(training: &[&StepRow], judged: &[&StepRow]) -> Vec<LineFit> {
    let all = |rows: &[&StepRow]| rows.iter().map(|row| row.columns_and_target()).collect::<Vec<TrainingRow>>();
    lines("step, µs", &BlackBox::COLUMNS, (&all(training), &all(judged)), true)
}
