//! What a fit leaves unexplained: columns of a trace that it rises or falls with, although no term has them, and a tail of slow steps.

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

/// The columns without a term. Depths of queues have one where periods hold the host's share.
const COLUMNS: [(&str, Column); 4] = [
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
pub(super) fn tail(rows: &[(&Interval, f64)]) -> f64 {
    let (measured_us, predicted_us) = rows.iter().fold((0.0, 0.0), |(measured_us, predicted_us), (row, ratio)| {
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
            rows.iter().filter_map(|(row, ratio)| Some((column(run.case.record(row)?)?, ratio.ln()))).collect();
        rank_correlation(&pairs).filter(|_| pairs.len() >= LEAST_ROWS)
    };
    let scatter = robust_sd(rows.iter().map(|(_, ratio)| ratio.ln()).collect());
    let report = |(name, column): (&str, Column)| {
        let r = correlation(column).filter(|r| r.abs() > LEAST_CORRELATION && scatter > LEAST_SCATTER)?;
        let verb = if r > 0.0 { "rises" } else { "falls" };
        let run = &run.case.labels.name;
        Some(format!(
            "what is left of the times of '{run}' {verb} with {name} (rank correlation {r:+.2}), which no term explains"
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
