//! What a fit leaves unexplained: columns of a trace that the errors rise or fall with, and a tail of slow steps.

use super::batch_kind::BatchKind;
use super::fit_steps::StepRun;
use crate::ingest::{Interval, StepRecord};
use crate::stats::{rank_correlation, robust_sd};
use ridgepoint::Correction;

/// Smallest correlation of ranks that is reported (assumed).
const LEAST_CORRELATION: f64 = 0.3;
/// Smallest scatter of the times around their predictions for which a correlation is reported: below it little is left to explain.
const LEAST_SCATTER: f64 = 0.02;
/// Smallest number of rows for which a correlation is reported.
const LEAST_ROWS: usize = 100;

type Column = fn(&StepRecord) -> Option<f64>;

/// The columns that are looked at.
const COLUMNS: [(&str, Column); 6] = [
    ("prompt tokens", |step| Some(step.prefill_tokens as f64)),
    ("tokens in the cache", |step| Some((step.decode_kv_tokens? + step.prefill_kv_tokens.unwrap_or(0)) as f64)),
    ("running requests", |step| step.num_running.map(f64::from)),
    ("waiting requests", |step| step.num_waiting.map(f64::from)),
    ("finished requests", |step| step.num_finished.map(f64::from)),
    ("KV blocks in use", |step| step.kv_blocks_used().map(|blocks| blocks as f64)),
];

/// Share by which the sum of measured times may exceed that of predicted ones. A fit meets the median step.
pub(super) const MAX_TAIL: f64 = 0.05;

/// A sentence for each column of a run that the errors of its fitted rows rise or fall with, and one for a tail of slow steps.
pub(super) fn unexplained(runs: &[StepRun<'_>], correction: &Correction) -> Vec<String> {
    runs.iter().flat_map(|run| of_run(run, correction)).collect()
}

/// The share by which the sum of the measured times of rows, each with its time over the predicted one, exceeds that of the predicted times.
fn tail(rows: &[(&Interval, BatchKind, f64)]) -> f64 {
    let (measured_us, predicted_us) = rows.iter().fold((0.0, 0.0), |(measured_us, predicted_us), (row, _, ratio)| {
        (measured_us + row.period_us(), predicted_us + row.period_us() / ratio)
    });
    measured_us / predicted_us - 1.0
}

fn of_run(run: &StepRun<'_>, correction: &Correction) -> Vec<String> {
    let rows = run.fitted_rows(correction);
    if rows.len() < LEAST_ROWS {
        return Vec::new();
    }
    let correlation = |column: Column| {
        let pairs: Vec<(f64, f64)> =
            rows.iter().filter_map(|(row, _, ratio)| Some((column(run.case.record(row)?)?, ratio.ln()))).collect();
        rank_correlation(&pairs).filter(|_| pairs.len() >= LEAST_ROWS)
    };
    let scatter = robust_sd(rows.iter().map(|(.., ratio)| ratio.ln()).collect());
    let report = |(name, column): (&str, Column)| {
        let r = correlation(column).filter(|r| r.abs() > LEAST_CORRELATION && scatter > LEAST_SCATTER)?;
        let verb = if r > 0.0 { "rises" } else { "falls" };
        let run = &run.case.labels.name;
        Some(format!(
            "what is left of the times of '{run}' {verb} with {name} (rank correlation {r:+.2}), which the fitted terms do not explain"
        ))
    };
    let tail = tail(&rows);
    let tail = (tail > MAX_TAIL).then(|| {
        format!(
            "the steps of '{}' take {:.0} % longer in sum than predicted: a tail of slow ones, which a fit of the median leaves out of means",
            run.case.labels.name,
            100.0 * tail
        )
    });
    COLUMNS.into_iter().filter_map(report).chain(tail).collect()
}
