//! `ridgepoint fit --steps`: sampled steps, and requests' times beside them, become a correction. Uses `files` and the library's
//! `fit`.

use std::path::PathBuf;

use ridgepoint::internals::correction::{Correction, Level};
use ridgepoint_lab::evaluate::report::Skipped;
use ridgepoint_lab::evaluate::steps::case::{CaseOptions, StepCase, step_cases};
use ridgepoint_lab::evaluate::steps::split::{StepFold, StepSplit, folds};
use ridgepoint_lab::fit::{
    FitResult, Prior, RunTerms, StepFitReport, StepRun, StepRunReport, fit_with_scatter, host_from_traces,
};
use ridgepoint_lab::ingest::RequestTrace;

use super::args::FitSplit;
use super::files::{StepData, read};
use super::{Fitted, Job};
use crate::hint;
use crate::outcome::{Failure, Outcome};

/// Share of a run's time that `--split first60` fits.
const FIRST: f64 = 0.6;

/// Reads steps and fits a correction to them.
///
/// # Errors
/// Files that can't be read or are at fault; labels that contradict the files; no run that can be used; rows that nothing can be fitted to.
pub fn fitted(job: &Job<'_>) -> Result<(Correction, Outcome<Fitted>), Failure> {
    let Job { args, bar, level, .. } = job;
    let StepData { runs, requests, mut notes, files } = read(args, job.data_dir)?;
    let mut traces: Vec<RequestTrace> = runs.iter().filter_map(|read| read.requests.clone()).collect();
    traces.extend(requests);
    let options = CaseOptions { data_dir: job.data_dir.map(PathBuf::from), correction: "none".to_owned() };
    let (cases, refused) = step_cases(runs, &options);
    let skipped = hint::skipped(refused);
    check(&cases, &skipped, level)?;
    notes.extend(skipped.iter().map(|one| format!("{}: left out: {}", one.id, one.reason)));

    let prior = job.prior.as_ref().map_or_else(Prior::of_any_model, Prior::around);
    bar.set_length(cases.len() as u64);
    bar.set_message("runs");
    let (split, in_words) = match args.split {
        FitSplit::All => (StepSplit::All, "all"),
        FitSplit::First60 => (StepSplit::Temporal { judge_from: FIRST }, "first 60 % of each run"),
    };
    let mut step_runs = Vec::with_capacity(cases.len());
    for fold in folds(&cases, split)? {
        let (rows, all) = (fold.judged.rows, fold.judged.case.rows.len());
        let (fitted, held_out) = match args.split {
            FitSplit::All => (rows, all..all),
            FitSplit::First60 => (0..rows.start, rows),
        };
        step_runs.push(StepRun::new(RunTerms::of(fold.judged.case), fitted, held_out, &prior));
        bar.inc(1);
    }
    let FitResult { mut correction, mut report } = fit_with_scatter(&files.join(", "), &mut step_runs, &prior, level)?;
    let host = host_from_traces(&traces, &prior.means().host);
    correction.host = host.times;
    report.replace_host(host);
    for note in cases.iter().flat_map(|case| &case.notes) {
        if !report.notes.contains(note) {
            report.notes.push(note.clone());
        }
    }
    if !report.converged {
        notes.push(format!("the fit has not converged: {}", report.why_stopped));
    }
    let source = &mut correction.source;
    source.data = args.data.clone().unwrap_or_else(|| files.join(", "));
    in_words.clone_into(&mut source.split);
    if source.engine_versions.is_empty() {
        source.engine_versions.extend(args.engine_version.clone());
    }
    let runs = step_runs.iter().map(|run| StepRunReport::of(run, &correction)).collect();
    let result = Fitted::Steps(StepFitReport { fit: report, runs, source: correction.source.clone() });
    Ok((correction, Outcome { notes, ..Outcome::of(result) }))
}

fn check(cases: &[StepCase], skipped: &[Skipped], level: &Level) -> Result<(), Failure> {
    let problems: Vec<String> = match level {
        _ if cases.is_empty() => skipped.iter().map(|one| format!("{}: {}", one.id, one.reason)).collect(),
        Level::Model { model } => cases
            .iter()
            .filter(|case| case.labels.model != *model)
            .map(|case| {
                format!(
                    "{}: is of {}, and --level model fits {model} alone; leave it out, or take --level global",
                    case.labels.name, case.labels.model
                )
            })
            .collect(),
        Level::Global => return Ok(()),
    };
    if problems.is_empty() { Ok(()) } else { Err(Failure::Input(problems)) }
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
                let terms = self.terms.iter().find(|terms| std::ptr::eq(terms.case, training.case))?.clone();
                // The rows after it are judged.
                let (fitted, end) = (training.rows.clone(), training.rows.end);
                Some(StepRun::new(terms, fitted, end..end, &self.prior))
            })
            .filter(|run| !run.fitted.is_empty())
            .collect();
        let (level, whose) = match self.level {
            RefitLevel::Global => (Level::Global, None),
            RefitLevel::Model => (Level::Model { model: judged.model.clone() }, Some(&judged.model)),
        };
        if runs.is_empty() {
            return Err(ridgepoint::Error::invalid(
                format!("--refit for {}", judged.name),
                vec![format!(
                    "the split leaves no rows of {} to learn from; --split temporal has them",
                    whose.map_or("any run", String::as_str)
                )],
            ));
        }
        let mut name = "refit on the training rows".to_owned();
        if let Some(model) = whose {
            name.push_str(&format!(" of {model}"));
        }
        let fitted = fit_with_scatter("training rows", &mut runs, &self.prior, &level)?;
        Ok(Correction { name, ..fitted.correction })
    }
}
