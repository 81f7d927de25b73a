//! Fits a correction to traces and judges it by rows that were held out. Uses `fit_steps`, `step_scatter`, `host_from_traces`, `clients`,
//! `verdict`.

use super::clients::Clients;
use super::fit_rows::{FitResult, Prior};
use super::fit_steps::StepRun;
use super::host_from_traces::{Delays, DelaysOfRuns, LEAST_REQUESTS};
use super::mean_step::lift;
use super::report::{HostFit, ParameterReport};
use super::step_scatter::{StepFitReport, StepRunReport, fit_level, scatter};
use super::verdict::Verdict;
use crate::evaluate::steps::case::StepCase;
use crate::evaluate::steps::split::{FIRST, StepSplit, folds};
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

/// What a correction is fitted to and judged by.
#[derive(Debug, Clone, Copy)]
pub struct Captured<'a> {
    /// Runs of steps.
    pub cases: &'a [StepCase],
    /// Delays of their requests.
    pub delays: &'a DelaysOfRuns,
    /// The requests of a single run, or of the runs of its token times, for what clients see.
    pub clients: Option<&'a Clients>,
}

/// Fits a correction of `level` to the steps of traces, and host overheads to the delays of their requests. `origin` names the data;
/// `done` is called after each trace.
///
/// # Errors
/// As [`fit_with_scatter`](super::fit_with_scatter).
pub fn fit_cases(
    origin: &str,
    captured: Captured<'_>,
    prior: &Prior,
    level: &Level,
    rows: FittedRows,
    done: &dyn Fn(),
) -> Result<(Correction, StepFitReport)> {
    let Captured { cases, delays, clients } = captured;
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
    let first = if rows == FittedRows::All { &delays.all } else { &delays.first };
    let mut host = host_of((first, clients), &step_runs, &fitted.correction);
    let judged = Correction { host: host.times, ..fitted.correction.clone() };
    let mut verdict = Verdict::of(&step_runs, &judged, &fitted.report.parameters, clients);
    let runs = step_runs.iter().map(|run| StepRunReport::of(run, &fitted.correction)).collect();
    if rows == FittedRows::Judged && verdict.held_out.is_some() {
        step_runs.iter_mut().for_each(StepRun::fit_all);
        fitted = fit_level(origin, &mut step_runs, prior, level)?;
        fitted.correction.scatter = scatter;
        host = host_of((&delays.all, clients), &step_runs, &fitted.correction);
    }
    fitted.report.notes.push(scatter_note);
    let FitResult { mut correction, mut report } = fitted;
    verdict.remarks.extend(remark);
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

/// Fits the host's delays to the times of requests. Where these lack the time in the queue, the part of TTFT that the replay does not explain
/// takes its place.
fn host_of((delays, clients): (&Delays, Option<&Clients>), runs: &[StepRun<'_>], correction: &Correction) -> HostFit {
    let few = delays.host.arrival_to_queued_us.len() < LEAST_REQUESTS || runs.iter().any(|run| run.case.is_of_tokens);
    let Some(clients) = clients.filter(|_| few) else { return delays.host(&correction.host) };
    let mut delays = delays.clone();
    let (mut note, mut left_us) = (None, 0.0);
    match clients.delays(runs, correction) {
        Ok((found, ttft_us)) if found.len() >= LEAST_REQUESTS => {
            note = Some(format!(
                "queueing_us is what the TTFT of {} requests leaves over the replay, as the capture does not say when they were queued: \
                 it holds what output_token_us lacks, and is not separable from it",
                found.len()
            ));
            delays.host.arrival_to_queued_us = found;
            delays.host.token_to_client_us.clear();
            delays.front_end = None;
            left_us = correction.scatter.step * ttft_us;
        }
        Ok(_) => {}
        Err(error) => note = Some(format!("TTFT tells nothing of delays before the queue: {error}")),
    }
    let mut host = delays.host(&correction.host);
    host.notes.extend(note);
    for of in host.parameters.iter_mut().filter(|of| of.parameter.name == "queueing_us" && of.identified) {
        *of = ParameterReport::of_host(of.parameter, of.value, Some(of.sd.hypot(left_us)));
    }
    host
}
