//! How far a correction is off on windows of sampled steps, fitted ones and held-out ones, and the scatter that follows for its
//! intervals. Uses `steps`, `learn`, `evaluate::steps`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;

use super::fit_rows::{FitResult, Prior};
use super::fit_steps::{Alignment, RunTerms, fit_steps};
use super::report::FitReport;
use crate::evaluate::steps::window::{USUAL_ROWS, mean_step_us, windows};
use crate::ingest::Dropped;
use crate::stats::{ErrorSummary, error_pct};
use ridgepoint::Result;
use ridgepoint::internals::correction::{Correction, Level, Scatter, Source};

/// What windows that were fitted leave is this much less than what others do (assumed).
const IN_SAMPLE_INFLATION: f64 = 1.5;
/// No scatter is smaller: workloads differ in what a window can't show.
const LEAST_SCATTER: f64 = 0.01;

/// A run, and which of its rows are fitted.
#[derive(Debug, Clone)]
pub struct StepRun<'a> {
    /// The run.
    pub terms: RunTerms<'a>,
    /// Rows to fit.
    pub fitted: Range<usize>,
    /// Later rows that are not fitted but may be looked at, for errors and scatter.
    pub held_out: Range<usize>,
}

impl<'a> StepRun<'a> {
    /// A run whose alignment is chosen by the rows to fit.
    pub fn new(mut terms: RunTerms<'a>, fitted: Range<usize>, held_out: Range<usize>, prior: &Prior) -> Self {
        terms.compare(fitted.clone(), prior.means());
        StepRun { terms, fitted, held_out }
    }

    /// All rows that may be looked at.
    fn seen(&self) -> Range<usize> {
        self.fitted.start..self.held_out.end.max(self.fitted.end)
    }
}

/// Report of a fit to sampled steps. Serialised keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepFitReport {
    /// The fit.
    pub fit: FitReport,
    /// The runs.
    pub runs: Vec<StepRunReport>,
    /// Source of the correction.
    pub source: Source,
}

/// Errors of means over windows of 50 sampled steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowErrors {
    /// Sampled steps.
    pub rows: usize,
    /// Windows.
    pub windows: usize,
    /// Median absolute error, percent of the measured time.
    pub median_ape_pct: f64,
    /// Median signed error, percent: above zero where predictions are too long.
    pub bias_pct: f64,
}

/// A run as a fit saw it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRunReport {
    /// Name of the run.
    pub name: String,
    /// The model, by its short name.
    pub model: String,
    /// The GPU, by its short name.
    pub hardware: String,
    /// GPUs that share every layer.
    pub tensor_parallel_size: u32,
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
        let case = run.terms.case;
        StepRunReport {
            name: case.labels.name.clone(),
            model: case.labels.model.clone(),
            hardware: case.labels.hardware.clone(),
            tensor_parallel_size: case.labels.tensor_parallel_size,
            dropped: case.dropped.clone(),
            alignment: run.terms.alignment,
            alignment_slopes: run.terms.slopes,
            fitted: errors(&run.terms, run.fitted.clone(), correction),
            held_out: errors(&run.terms, run.held_out.clone(), correction),
        }
    }
}

/// Windows of a range: measured and predicted mean time of a step, µs. As when steps are judged, the prediction is the mean over the sampled steps.
fn points(run: &RunTerms<'_>, range: Range<usize>, correction: &Correction) -> Vec<(f64, f64)> {
    let (Some(rows), Some(sampled)) = (run.case.rows.get(range.clone()), run.sampled.get(range)) else {
        return Vec::new();
    };
    let point = |window: Range<usize>| {
        let rows = rows.get(window.clone()).unwrap_or_default();
        let sampled = sampled.get(window).unwrap_or_default();
        let predicted_us = sampled.iter().map(|basis| correction.time_us(basis)).sum::<f64>();
        (mean_step_us(rows), predicted_us / sampled.len().max(1) as f64)
    };
    windows(rows.len(), USUAL_ROWS).into_iter().map(point).collect()
}

fn errors(run: &RunTerms<'_>, range: Range<usize>, correction: &Correction) -> Option<WindowErrors> {
    let rows = range.len();
    let points = points(run, range, correction);
    let of = ErrorSummary::of(points.iter().map(|(measured, predicted)| error_pct(*measured, *predicted)).collect())?;
    Some(WindowErrors { rows, windows: of.count, median_ape_pct: of.median_abs_pct, bias_pct: of.bias_pct })
}

/// Mean square of ln(measured / predicted) over windows; `None` without any.
fn mean_square(points: &[(f64, f64)]) -> Option<f64> {
    let squares: Vec<f64> = points.iter().map(|(measured, predicted)| (measured / predicted).ln().powi(2)).collect();
    let mean = squares.iter().sum::<f64>() / squares.len() as f64;
    mean.is_finite().then_some(mean)
}

/// Gives runs of one version of an engine one alignment, by the mean of their slopes: whether scheduling is asynchronous is a matter of
/// the engine, and one run alone may not tell.
pub(super) fn align(runs: &mut [StepRun<'_>]) {
    let versions: BTreeSet<Option<String>> =
        runs.iter().map(|run| run.terms.case.labels.backend_version.clone()).collect();
    for version in &versions {
        let of_version =
            runs.iter_mut().map(|run| &mut run.terms).filter(|run| run.case.labels.backend_version == *version);
        let mut aligned: Vec<&mut RunTerms<'_>> = of_version.filter(|run| run.slopes.is_some()).collect();
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
    align(runs);
    let chosen: Vec<(&RunTerms<'_>, Range<usize>)> = runs.iter().map(|run| (&run.terms, run.fitted.clone())).collect();
    let mut fitted = fit_steps(origin, &chosen, prior)?;
    let (step, from) = scatter(origin, runs, prior, level, &fitted.correction)?;
    fitted.correction.level = level.clone();
    fitted.correction.scatter = Scatter { step, ttft: prior.means().scatter.ttft };
    let note = format!("scatter of a step's time: {:.1} %, {from}; that of TTFT is not in steps", 100.0 * step);
    fitted.report.notes.push(note);
    Ok(fitted)
}

fn scatter(
    origin: &str,
    runs: &[StepRun<'_>],
    prior: &Prior,
    level: &Level,
    correction: &Correction,
) -> Result<(f64, &'static str)> {
    let mut by_model: BTreeMap<&str, Vec<&StepRun<'_>>> = BTreeMap::new();
    for run in runs {
        by_model.entry(&run.terms.case.labels.model).or_default().push(run);
    }
    let expected = prior.means().scatter.step;
    if *level == Level::Global && by_model.len() > 1 {
        let mut squares = Vec::new();
        for (model, out) in &by_model {
            let others = runs.iter().filter(|run| run.terms.case.labels.model != *model);
            let others: Vec<(&RunTerms<'_>, Range<usize>)> =
                others.map(|run| (&run.terms, run.fitted.clone())).collect();
            let fitted = fit_steps(origin, &others, prior)?.correction;
            let of = |run: &&StepRun<'_>| points(&run.terms, run.seen(), &fitted);
            squares.extend(mean_square(&out.iter().flat_map(of).collect::<Vec<_>>()));
        }
        let mean = squares.iter().sum::<f64>() / squares.len().max(1) as f64;
        return Ok((mean.sqrt().max(LEAST_SCATTER), "from windows of each model with what the others say"));
    }
    let held_out: Vec<(f64, f64)> =
        runs.iter().flat_map(|run| points(&run.terms, run.held_out.clone(), correction)).collect();
    let fitted = || runs.iter().flat_map(|run| points(&run.terms, run.fitted.clone(), correction));
    let (step, from) = match mean_square(&held_out) {
        Some(square) => (square.sqrt(), "from windows that were held out"),
        None => (
            IN_SAMPLE_INFLATION * mean_square(&fitted().collect::<Vec<_>>()).unwrap_or(0.0).sqrt(),
            "one and a half times that of the windows fitted, as none was held out",
        ),
    };
    if *level == Level::Global && step < expected {
        return Ok((expected, "what is expected of models that were not seen, as the data have one alone"));
    }
    Ok((step.max(LEAST_SCATTER), from))
}
