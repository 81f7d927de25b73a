//! Fits a correction to traces and judges it by rows that were held out. Uses `fit_steps`, `step_scatter`, `host_from_traces`,
//! `verdict`.

use super::fit_rows::{FitResult, Prior};
use super::fit_steps::StepRun;
use super::host_from_traces::host_from_delays;
use super::mean_step::lift;
use super::step_scatter::{StepFitReport, StepRunReport, fit_level, scatter};
use super::verdict::Verdict;
use crate::evaluate::steps::case::StepCase;
use crate::evaluate::steps::split::{FIRST, StepSplit, folds};
use crate::ingest::HostDelays;
use ridgepoint::correction::Level;
use ridgepoint::{Correction, Result};

/// The rows that a fit takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FittedRows {
    /// All, once a fit of the first 60 % of each run was judged on the rest.
    Judged,
    /// All, without a judgement.
    All,
    /// The first 60 % of each run; the rest judges.
    First60,
}

impl FittedRows {
    fn in_words(self) -> &'static str {
        match self {
            FittedRows::Judged => "all, after a fit of the first 60 % of each run was judged on the rest",
            FittedRows::All => "all",
            FittedRows::First60 => "first 60 % of each run",
        }
    }
}

/// Fits a correction of `level` to the steps of traces, and host overheads to the delays of their requests. `origin` names the data;
/// `done` is called after each trace.
///
/// # Errors
/// As [`fit_with_scatter`](super::fit_with_scatter).
pub fn fit_cases(
    origin: &str,
    (cases, delays): (&[StepCase], &HostDelays),
    prior: &Prior,
    level: &Level,
    rows: FittedRows,
    done: &dyn Fn(),
) -> Result<(Correction, StepFitReport)> {
    let mut step_runs = Vec::with_capacity(cases.len());
    for fold in folds(cases, StepSplit::Temporal { judge_from: FIRST })? {
        let end = fold.judged.case.rows.len();
        let cut = if rows == FittedRows::All { end } else { fold.judged.rows.start };
        step_runs.push(StepRun::new(fold.judged.case, 0..cut, cut..end, prior));
        done();
    }
    let mut fitted = fit_level(origin, &mut step_runs, prior, level)?;
    let remark = lift(origin, &mut step_runs, prior, level, &mut fitted)?;
    let (scatter, scatter_note) = scatter(origin, &step_runs, prior, &fitted.correction)?;
    fitted.correction.scatter = scatter;
    let mut verdict = Verdict::of(&step_runs, &fitted.correction, &fitted.report.parameters);
    let runs = step_runs.iter().map(|run| StepRunReport::of(run, &fitted.correction)).collect();
    if rows == FittedRows::Judged && verdict.held_out.is_some() {
        step_runs.iter_mut().for_each(StepRun::fit_all);
        fitted = fit_level(origin, &mut step_runs, prior, level)?;
        fitted.correction.scatter = scatter;
    }
    fitted.report.notes.push(scatter_note);
    let FitResult { mut correction, mut report } = fitted;
    verdict.remarks.extend(remark);
    let host = host_from_delays(delays, &correction.host);
    correction.host = host.times;
    report.replace_host(host);
    for note in cases.iter().flat_map(|case| &case.notes) {
        if !report.notes.contains(note) {
            report.notes.push(note.clone());
        }
    }
    correction.source.data = origin.to_owned();
    rows.in_words().clone_into(&mut correction.source.split);
    let report = StepFitReport { verdict, fit: report, runs, source: correction.source.clone() };
    Ok((correction, report))
}
