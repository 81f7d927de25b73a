//! `ridgepoint fit --steps`: sampled steps, and requests' times beside them, become a correction. Uses `fit_files`, `report` and the
//! library's `fit`.

use std::path::PathBuf;

use indicatif::ProgressBar;
use ridgepoint::internals::correction::{Correction, Level, NUM_TERMS, Source};
use ridgepoint_lab::evaluate::report::Skipped;
use ridgepoint_lab::evaluate::steps::case::{CaseOptions, StepCase, step_cases};
use ridgepoint_lab::evaluate::steps::split::{StepFold, StepSplit, folds};
use ridgepoint_lab::fit::{
    FitReport, FitResult, HostFit, ParameterReport, Prior, RunTerms, StepRun, StepRunReport, align, fit_with_scatter,
    host_from_traces, pooled,
};
use ridgepoint_lab::ingest::{HostDelays, RequestTrace, join};
use serde::Serialize;

use super::files::{StepData, read};
use super::job::{FitJob, FitSplit, Fitted};
use super::{steps_table, table};
use crate::hint;
use crate::outcome::Failure;

/// Share of a run's time that `--split first60` fits.
const FIRST: f64 = 0.6;

/// What is said of a fit as JSON.
#[derive(Serialize)]
struct Report<'a> {
    fit: &'a FitReport,
    runs: &'a [StepRunReport],
    source: &'a Source,
}

/// Reads steps and fits a correction to them.
///
/// # Errors
/// Files that can't be read or are at fault; labels that contradict the files; no run that can be used; rows that nothing can be fitted to.
pub fn fitted(job: &FitJob<'_>, bar: &ProgressBar) -> Result<Fitted, Failure> {
    let StepData { runs, requests, mut notes, files } = read(job)?;
    let mut traces: Vec<RequestTrace> = runs.iter().filter_map(|read| read.requests.clone()).collect();
    traces.extend(requests);
    let options = CaseOptions { data_dir: job.data_dir.map(PathBuf::from), correction: "none".to_owned() };
    let (cases, refused) = step_cases(runs, &options);
    let skipped = hint::skipped(refused);
    check(&cases, &skipped, &job.level)?;
    notes.extend(skipped.iter().map(|one| format!("{}: left out: {}", one.id, one.reason)));

    let prior = job.prior.as_ref().map_or_else(Prior::of_any_model, Prior::around);
    bar.set_length(cases.len() as u64);
    bar.set_message("runs");
    let held = match job.split {
        FitSplit::All => StepSplit::All,
        FitSplit::First60 => StepSplit::Temporal { judge_from: FIRST },
    };
    let mut step_runs = Vec::with_capacity(cases.len());
    for fold in folds(&cases, held)? {
        let (rows, all) = (fold.judged.rows, fold.judged.case.rows.len());
        let (fitted, held_out) = match job.split {
            FitSplit::All => (rows, all..all),
            FitSplit::First60 => (0..rows.start, rows),
        };
        let mut terms = RunTerms::of(fold.judged.case);
        terms.compare(fitted.clone(), prior.means());
        step_runs.push(StepRun { terms, fitted, held_out });
        bar.inc(1);
    }
    align(&mut step_runs.iter_mut().map(|run| &mut run.terms).collect::<Vec<_>>());
    let (mut fit_result, scatter) = fit_with_scatter(&files.join(", "), &step_runs, &prior, &job.level)?;
    let delays: Vec<HostDelays> = join(&[], &traces).into_iter().map(|run| run.host).collect();
    let host = host_from_traces(&pooled(&delays), &prior.means().host);
    fit_result.correction.host = host.times;
    let source = &mut fit_result.correction.source;
    source.data = job.data.map_or_else(|| files.join(", "), str::to_owned);
    if source.engine_versions.is_empty() {
        source.engine_versions = job.engine_version.map(str::to_owned).into_iter().collect();
    }
    source.split = match job.split {
        FitSplit::All => "all".to_owned(),
        FitSplit::First60 => "first 60 % of each run".to_owned(),
    };

    let runs: Vec<StepRunReport> = step_runs.iter().map(|run| StepRunReport::of(run, &fit_result.correction)).collect();
    let report = report(&fit_result, host, scatter, &cases);
    let source = &fit_result.correction.source;
    let json = serde_json::to_value(Report { fit: &report, runs: &runs, source })
        .map_err(|error| Failure::input(format!("the result can't be written as JSON: {error}")))?;
    let table = steps_table::render(&runs) + &table::render(&report);
    if !report.converged {
        notes.push(format!("the fit has not converged: {}", report.why_stopped));
    }
    Ok(Fitted { correction: fit_result.correction, table, json, notes })
}

fn check(cases: &[StepCase], skipped: &[Skipped], level: &Level) -> Result<(), Failure> {
    let of_others = |model: &str| -> Vec<String> {
        let other = cases.iter().filter(|case| case.labels.model != *model);
        other
            .map(|case| {
                format!(
                    "{}: is of {}, and --level model fits {model} alone; leave it out, or take --level global",
                    case.labels.name, case.labels.model
                )
            })
            .collect()
    };
    let problems = match level {
        _ if cases.is_empty() => skipped.iter().map(|one| format!("{}: {}", one.id, one.reason)).collect(),
        Level::Model { model } => of_others(model),
        Level::Global => Vec::new(),
    };
    if problems.is_empty() { Ok(()) } else { Err(Failure::Input(problems)) }
}

/// The solver's report with the host's times, which are fitted apart, in place of what it was given for them.
fn report(fit_result: &FitResult, host: HostFit, scatter: String, cases: &[StepCase]) -> FitReport {
    let FitResult { problem, solution, posterior, .. } = fit_result;
    let mut report = FitReport::new(problem, solution, posterior);
    report.parameters.truncate(NUM_TERMS);
    report.parameters.extend(host.parameters);
    let names = |report: &[ParameterReport]| report.iter().map(|of| of.name.clone()).collect::<Vec<String>>();
    let of_host = names(report.parameters.get(NUM_TERMS..).unwrap_or_default());
    report.notes.retain(|note| !of_host.iter().any(|name| note.contains(&format!("'{name}'"))));
    report.notes.push(scatter);
    report.notes.extend(host.notes);
    for case in cases {
        for note in &case.notes {
            if !report.notes.contains(note) {
                report.notes.push(note.clone());
            }
        }
    }
    report
}

/// Fits a correction on the training rows of a fold, for `evaluate steps --refit`.
pub struct Refit<'a> {
    terms: Vec<RunTerms<'a>>,
    level: RefitLevel,
    prior: Prior,
}

/// For which models a correction is fitted anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RefitLevel {
    /// Any model, from the operators alone
    Global,
    /// The judged model, from its own rows, shrunk towards the global one
    Model,
}

impl<'a> Refit<'a> {
    /// Of cases whose folds will be fitted; `global` is what a model's own is shrunk towards.
    pub fn new(cases: &'a [StepCase], level: RefitLevel, global: Option<&Correction>) -> Self {
        let prior = match (level, global) {
            (RefitLevel::Model, Some(global)) => Prior::around(global),
            _ => Prior::of_any_model(),
        };
        Refit { terms: cases.iter().map(RunTerms::of).collect(), level, prior }
    }

    /// The correction of a fold.
    ///
    /// # Errors
    /// Where it has no rows to learn from; those of the fit.
    pub fn fit(&self, fold: &StepFold<'_>) -> ridgepoint::Result<Correction> {
        let judged = &fold.judged.case.labels;
        let is_used = |of: &StepCase| self.level == RefitLevel::Global || of.labels.model == judged.model;
        let mut runs: Vec<StepRun<'_>> = fold
            .training
            .iter()
            .filter(|training| is_used(training.case))
            .filter_map(|training| {
                let mut terms = self.terms.iter().find(|terms| std::ptr::eq(terms.case, training.case))?.clone();
                // The rows after it are judged.
                let (fitted, end) = (training.rows.clone(), training.rows.end);
                terms.compare(fitted.clone(), self.prior.means());
                Some(StepRun { terms, fitted, held_out: end..end })
            })
            .filter(|run| !run.fitted.is_empty())
            .collect();
        align(&mut runs.iter_mut().map(|run| &mut run.terms).collect::<Vec<_>>());
        let level = match self.level {
            RefitLevel::Global => Level::Global,
            RefitLevel::Model => Level::Model { model: judged.model.clone() },
        };
        if runs.is_empty() {
            return Err(ridgepoint::Error::invalid(
                format!("--refit for {}", judged.name),
                vec![format!(
                    "the split leaves no rows of {} to learn from; --split temporal has them",
                    if self.level == RefitLevel::Model { judged.model.as_str() } else { "any run" }
                )],
            ));
        }
        let (fit_result, _) = fit_with_scatter("training rows", &runs, &self.prior, &level)?;
        let name = match self.level {
            RefitLevel::Global => "refit on the training rows".to_owned(),
            RefitLevel::Model => format!("refit on the training rows of {}", judged.model),
        };
        Ok(Correction { name, ..fit_result.correction })
    }
}
