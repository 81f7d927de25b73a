//! Fits corrections to runs of sampled steps and measures how far they are off on windows of steps, which gives the scatter of
//! their intervals.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Serialize;

use super::fit_rows::{FitResult, Prior};
use super::fit_steps::{Alignment, StepRun, fit_steps};
use super::report::FitReport;
use super::verdict::Verdict;
use super::window_errors::{WindowErrors, points};
use crate::evaluate::fold::{Labels, Part};
use crate::evaluate::steps::case::StepCase;
use crate::evaluate::steps::split::StepFold;
use crate::ingest::Dropped;
use crate::stats::mean;
use ridgepoint::correction::{Level, Scatter, Source};
use ridgepoint::{Correction, Error, Result};

/// What windows that were fitted leave is this much less than what others do (assumed).
const IN_SAMPLE_INFLATION: f64 = 1.5;
/// No scatter is smaller: workloads differ in what a window can't show.
const LEAST_SCATTER: f64 = 0.01;

/// Report of a fit to sampled steps. Serialised keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepFitReport {
    /// Whether the correction is worth using.
    pub verdict: Verdict,
    /// The fit.
    pub fit: FitReport,
    /// The runs.
    pub runs: Vec<StepRunReport>,
    /// Source of the correction.
    pub source: Source,
}

/// A run as a fit saw it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRunReport {
    /// What was run.
    #[serde(flatten)]
    pub labels: Labels,
    /// Rows without a time or requests, by reason.
    pub dropped: Dropped,
    /// Which step's work the time from start to start holds.
    pub alignment: Alignment,
    /// By how much of what is predicted times of a single step rise with the step itself and with the one before.
    pub alignment_slopes: Option<(f64, f64)>,
    /// Windows that were fitted.
    pub fitted: Option<WindowErrors>,
    /// Windows that were not.
    pub held_out: Option<WindowErrors>,
}

impl StepRunReport {
    /// Of a run with a correction.
    pub fn of(run: &StepRun<'_>, correction: &Correction) -> Self {
        StepRunReport {
            labels: run.case.labels.clone(),
            dropped: run.case.dropped.clone(),
            alignment: run.alignment,
            alignment_slopes: run.slopes,
            fitted: errors(run, &run.fitted, correction),
            held_out: errors(run, &run.held_out, correction),
        }
    }
}

fn errors(run: &StepRun<'_>, range: &Range<usize>, correction: &Correction) -> Option<WindowErrors> {
    WindowErrors::of(&points(run, range, correction), range.len())
}

/// Mean square of ln(measured / predicted) over windows; `None` without any.
fn mean_square(points: &[(f64, f64)]) -> Option<f64> {
    let squares: Vec<f64> = points.iter().map(|(measured, predicted)| (measured / predicted).ln().powi(2)).collect();
    mean(&squares).filter(|mean| mean.is_finite())
}

/// Gives runs of one version of an engine one alignment, by the mean of their slopes: whether scheduling is asynchronous is a matter of
/// the engine, and one run alone may not show it.
pub(super) fn align(runs: &mut [StepRun<'_>]) {
    let versions: BTreeSet<Option<String>> = runs.iter().map(|run| run.case.labels.backend_version.clone()).collect();
    for version in &versions {
        let is_of_it = |run: &&mut StepRun<'_>| run.case.labels.backend_version == *version && run.slopes.is_some();
        let mut aligned: Vec<&mut StepRun<'_>> = runs.iter_mut().filter(is_of_it).collect();
        let mut lead = 0.0;
        for run in &aligned {
            let single = run.case.rows.iter().filter(|row| row.steps == 1).count();
            let (own, before) = run.slopes.unwrap_or_default();
            lead += single as f64 * (before - own);
        }
        let alignment = if lead > 0.0 { Alignment::Before } else { Alignment::Own };
        aligned.iter_mut().for_each(|run| run.alignment = alignment);
    }
}

/// A correction of `level` fitted on the runs' rows, its scatter from windows of 50 sampled steps. Runs of one version of an
/// engine get one alignment.
///
/// The scatter is that of models that a global correction has not seen, each left out in turn, where there are two; else
/// that of rows that were held out; else one and a half times that of the fitted rows.
///
/// # Errors
/// As `fit_steps`.
pub fn fit_with_scatter(origin: &str, runs: &mut [StepRun<'_>], prior: &Prior, level: &Level) -> Result<FitResult> {
    let mut fitted = fit_level(origin, runs, prior, level)?;
    let (scatter, note) = scatter(origin, runs, prior, &fitted.correction)?;
    fitted.correction.scatter = scatter;
    fitted.report.notes.push(note);
    Ok(fitted)
}

/// [`fit_with_scatter`] with the scatter of the prior.
pub(super) fn fit_level(origin: &str, runs: &mut [StepRun<'_>], prior: &Prior, level: &Level) -> Result<FitResult> {
    align(runs);
    let mut fitted = fit_steps(origin, &runs.iter().collect::<Vec<_>>(), prior)?;
    fitted.correction.level = level.clone();
    Ok(fitted)
}

/// The scatter of a correction that was fitted on the runs, with a note on what it is from.
pub(super) fn scatter(
    origin: &str,
    runs: &[StepRun<'_>],
    prior: &Prior,
    correction: &Correction,
) -> Result<(Scatter, String)> {
    let (step, from) = step_scatter(origin, runs, prior, correction)?;
    let note = format!("scatter of a step's time: {:.1} %, {from}; that of TTFT is not in steps", 100.0 * step);
    Ok((Scatter { step, ttft: prior.means.scatter.ttft }, note))
}

fn step_scatter(
    origin: &str,
    runs: &[StepRun<'_>],
    prior: &Prior,
    correction: &Correction,
) -> Result<(f64, &'static str)> {
    let is_global = correction.level == Level::Global;
    let models: BTreeSet<&str> = runs.iter().map(|run| run.case.labels.model.as_str()).collect();
    if is_global && models.len() > 1 {
        let mut squares = Vec::new();
        for model in models {
            let (out, others): (Vec<&StepRun<'_>>, Vec<_>) =
                runs.iter().partition(|run| run.case.labels.model == model);
            let fitted = fit_steps(origin, &others, prior)?.correction;
            let seen = |run: &StepRun<'_>| run.fitted.start..run.held_out.end.max(run.fitted.end);
            let of = |run: &&StepRun<'_>| points(run, &seen(run), &fitted);
            squares.extend(mean_square(&out.iter().flat_map(of).collect::<Vec<_>>()));
        }
        let mean = mean(&squares).unwrap_or(0.0);
        return Ok((mean.sqrt().max(LEAST_SCATTER), "from windows of each model with what the others say"));
    }
    let of = |range: fn(&StepRun<'_>) -> Range<usize>| {
        mean_square(&runs.iter().flat_map(|run| points(run, &range(run), correction)).collect::<Vec<_>>())
    };
    let (step, from) = match of(|run| run.held_out.clone()) {
        Some(square) => (square.sqrt(), "from windows that were held out"),
        None => (
            IN_SAMPLE_INFLATION * of(|run| run.fitted.clone()).unwrap_or(0.0).sqrt(),
            "one and a half times that of the windows fitted, as none was held out",
        ),
    };
    let expected = prior.means.scatter.step;
    if is_global && step < expected {
        return Ok((expected, "what is expected of models that were not seen, as the data have one alone"));
    }
    Ok((step.max(LEAST_SCATTER), from))
}

/// Fits a correction to a fold's training rows, or to those of the judged model alone, shrunk towards `prior`.
///
/// # Errors
/// `ErrorKind::Invalid` if the fold has no such rows; as `fit_steps`.
pub fn fit_fold<'a>(fold: &StepFold<'a>, of_judged_model: bool, prior: &Prior) -> Result<Correction> {
    let Labels { name, model, .. } = &fold.judged.case.labels;
    let is_used =
        |part: &&Part<'a, StepCase>| !part.rows.is_empty() && (!of_judged_model || part.case.labels.model == *model);
    // The rows after the training rows are judged.
    let run =
        |part: &Part<'a, StepCase>| StepRun::new(part.case, part.rows.clone(), part.rows.end..part.rows.end, prior);
    let mut runs: Vec<StepRun<'_>> = fold.training.iter().filter(is_used).map(run).collect();
    let (level, whose, origin) = if of_judged_model {
        let origin = format!("refit on the training rows of {model}");
        (Level::Model { model: model.clone() }, model.as_str(), origin)
    } else {
        (Level::Global, "any run", "refit on the training rows".to_owned())
    };
    if runs.is_empty() {
        let problem = format!("the split leaves no rows of {whose} to learn from; a split by time has them");
        return Err(Error::invalid(format!("refit for {name}"), vec![problem]));
    }
    Ok(fit_with_scatter(&origin, &mut runs, prior, &level)?.correction)
}
