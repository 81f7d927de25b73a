//! Measured and predicted times of windows of sampled steps, and their errors.
#![expect(clippy::indexing_slicing, reason = "windows are cut from as many rows as are there")]

use std::ops::Range;

use serde::Serialize;

use super::fit_steps::StepRun;
use crate::evaluate::steps::window::{USUAL_ROWS, mean_step_us, windows};
use crate::stats::{ErrorSummary, mean};
use ridgepoint::Correction;

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

/// Windows of a range: measured and predicted mean time of a step, µs. The prediction is the mean over the sampled steps, none of them
/// below the roofline, as when steps are judged; over all steps where all are known.
pub(super) fn points(run: &StepRun<'_>, range: &Range<usize>, correction: &Correction) -> Vec<(f64, f64)> {
    let (rows, terms) = (run.part(range).0, run.known_terms(range));
    let bounds_us = run.bounds_us.get(range.clone()).unwrap_or_default();
    let predicted_us = |at: usize| {
        let bound_us = if run.case.rebuilt(&rows[at]).is_some() { 0.0 } else { bounds_us[at] };
        correction.time_us(&terms[at]).max(bound_us) + run.case.queues_us(correction, &rows[at])
    };
    points_of(run, range, &predicted_us)
}

/// Windows of a range: measured mean time of a step and the mean of what is predicted of rows by their position in it, µs. A row counts
/// with its steps where steps between sampled ones are known, else once.
pub(super) fn points_of(
    run: &StepRun<'_>,
    range: &Range<usize>,
    predicted_us: &dyn Fn(usize) -> f64,
) -> Vec<(f64, f64)> {
    let rows = run.part(range).0;
    let point = |window: Range<usize>| {
        let weight = |at: usize| if run.case.has_rebuilt() { rows[at].steps as f64 } else { 1.0 };
        let sum_us = window.clone().map(|at| weight(at) * predicted_us(at)).sum::<f64>();
        let weights = window.clone().map(weight).sum::<f64>();
        (mean_step_us(&rows[window]), if weights > 0.0 { sum_us / weights } else { 0.0 })
    };
    windows(rows.len(), USUAL_ROWS).into_iter().map(point).collect()
}

/// Windows of all rows: measured mean time of a step and mean roofline bound, µs.
pub(super) fn bounds_us(run: &StepRun<'_>) -> Vec<(f64, f64)> {
    let rows = &run.case.rows;
    let point =
        |window: Range<usize>| (mean_step_us(&rows[window.clone()]), mean(&run.bounds_us[window]).unwrap_or_default());
    windows(rows.len(), USUAL_ROWS).into_iter().map(point).collect()
}

impl WindowErrors {
    /// Of windows with so many sampled steps, as pairs of measured and predicted times; `None` without any.
    pub(super) fn of(windows: &[(f64, f64)], rows: usize) -> Option<Self> {
        let of = ErrorSummary::of(windows.iter().copied())?;
        Some(WindowErrors { rows, windows: of.rows, median_ape_pct: of.median_ape_pct, bias_pct: of.bias_pct })
    }
}
