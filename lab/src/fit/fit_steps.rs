//! Fits a correction to sampled steps of real engines. Uses `evaluate::steps`, `fit_rows`.
//!
//! A row is the time from a sampled step to the next sampled one: n steps, of which one or two are described. The terms of the
//! other steps are taken as the mean of the samples around, because sampling is random:
//!
//! `terms of the mean step = (Σ described + (n − described) · x̄) / n`, compared with `span / n`.
//!
//! Which steps an interval between two starts holds depends on the engine ([`Alignment`]).
#![expect(clippy::indexing_slicing, reason = "rows have as many values as the term count says")]

use std::ops::Range;

use rayon::prelude::*;

use super::fit_rows::{FitResult, Prior, distinct, factors, fit_rows};
use super::problem::{FitRow, Target};
use crate::evaluate::steps::case::StepCase;
use crate::evaluate::steps::window::mean_step_us;
use crate::ingest::Interval;
use crate::stats::{median, robust_sd};
use ridgepoint::correction::{Basis, FittedRange};
use ridgepoint::latency::Queues;
use ridgepoint::{Correction, Error, Result};

/// Number of independent rows that a run counts as, at most. Errors of a run's rows have common causes, so thousands of rows do
/// not weigh a hundred times as much as a few dozen (assumed).
const ROWS_OF_A_RUN: f64 = 50.0;

/// Samples on either side whose mean stands for steps that were not sampled.
const AROUND: usize = 25;
/// Least number of single-step rows for choosing an alignment.
const ROWS_TO_ALIGN: usize = 30;
/// Robust standard deviations beyond which a time is clamped when alignments are compared.
const FAR_SDS: f64 = 4.0;

/// Which step's execution the interval between two consecutive step starts measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Alignment {
    /// The first step's own.
    Own,
    /// That of the step before it. With asynchronous scheduling a step is scheduled when the one before it starts on the GPU, so
    /// that its start is the end of the step two before.
    Before,
}

impl Alignment {
    /// In words.
    pub fn in_words(self) -> &'static str {
        match self {
            Alignment::Own => "the step itself",
            Alignment::Before => "the step before (asynchronous scheduling)",
        }
    }
}

/// A run with the terms of its rows, and which of its rows are fitted.
#[derive(Debug, Clone)]
pub struct StepRun<'a> {
    /// The run.
    pub case: &'a StepCase,
    /// Terms of each row's sampled step, in the order of [`StepCase::rows`].
    pub sampled: Vec<Basis>,
    /// Roofline bounds of these steps, µs: no prediction is below.
    pub bounds_us: Vec<f64>,
    /// Rows to fit.
    pub fitted: Range<usize>,
    /// Later rows that are not fitted but may be looked at, for errors and scatter.
    pub held_out: Range<usize>,
    /// Which step's execution a time measures.
    pub alignment: Alignment,
    /// By how much of what is predicted times of a single step rise with the step itself and with the one before; `None` where
    /// the run has too few such rows, and for timed forward passes and token times. `StepRun::compare` has the formula.
    pub slopes: Option<(f64, f64)>,
}

impl<'a> StepRun<'a> {
    /// A run whose alignment is chosen by the rows to fit.
    pub fn new(case: &'a StepCase, fitted: Range<usize>, held_out: Range<usize>, prior: &Prior) -> Self {
        let (sampled, bounds_us) = case.rows.par_iter().map(|row| case.terms(row)).unzip();
        let mut run = StepRun { case, sampled, bounds_us, fitted, held_out, alignment: Alignment::Own, slopes: None };
        run.compare(&prior.means);
        run
    }

    /// Takes all rows to fit, and holds none out.
    pub fn fit_all(&mut self) {
        let end = self.case.rows.len();
        (self.fitted, self.held_out) = (0..end, end..end);
    }

    /// Whether a time holds the host's share of a period. Asynchronous scheduling hides it behind the step before, and a timed forward
    /// pass has none.
    pub fn includes_scheduling(&self) -> bool {
        !self.case.is_timed && self.alignment == Alignment::Own
    }

    /// Rows of a range with the terms of their sampled steps.
    pub(super) fn part(&self, range: &Range<usize>) -> (&[Interval], &[Basis]) {
        let rows = self.case.rows.get(range.clone()).unwrap_or_default();
        (rows, self.sampled.get(range.clone()).unwrap_or_default())
    }

    /// Chooses the alignment: regresses the times of single steps on `by`'s predictions for the step and for the one before.
    ///
    /// # Formula
    /// Least squares over rows of a single step: `ln(time / time around) = own · ln(t / t̄) + before · ln(t₋₁ / t̄)` with the predictions t of the step,
    /// t₋₁ of the one before and t̄ of those around; where the one before was not sampled it is taken to be as those around. The
    /// greater coefficient wins: a prediction may be wrong by a factor.
    fn compare(&mut self, by: &Correction) {
        let (rows, sampled) = self.part(&self.fitted);
        if self.case.is_timed || self.case.is_of_tokens {
            return;
        }
        let around = means_around(sampled);
        let against = |basis: Option<&Basis>, mean: &Basis| {
            basis.map_or(0.0, |basis| (by.time_us(basis) / by.time_us(mean)).ln())
        };
        let deviations = |at: usize| {
            let (row, mean) = (rows.get(at).filter(|row| row.steps == 1)?, around.get(at)?);
            let before = self.before(rows, at).and_then(|before| sampled.get(before));
            let time = (row.span_us / mean_step_us(near(rows, at))).ln();
            Some([time, against(sampled.get(at), mean), against(before, mean)])
        };
        let deviations: Vec<[f64; 3]> = (0..rows.len()).filter_map(deviations).collect();
        if deviations.len() < ROWS_TO_ALIGN {
            return;
        }
        self.slopes = two_slopes(&deviations);
        if let Some((own, before)) = self.slopes {
            self.alignment = if before > own { Alignment::Before } else { Alignment::Own };
        }
    }

    /// The row of the step before, where that was sampled.
    fn before(&self, rows: &[Interval], at: usize) -> Option<usize> {
        let id = |at: usize| rows.get(at).and_then(|row| self.case.record(row)).map(|step| step.step_id);
        let before = at.checked_sub(1)?;
        (id(before)?.checked_add(1) == id(at)).then_some(before)
    }

    /// Terms of the mean step of each row to fit. Other samples are not used.
    fn terms(&self) -> Vec<Basis> {
        let (rows, sampled) = self.part(&self.fitted);
        let around = means_around(sampled);
        let terms = |(at, (row, mean)): (usize, (&Interval, &Basis))| {
            // The step before is described where it was sampled too; the last step of the interval is not in it then.
            let (own, before) = match self.alignment {
                Alignment::Own => (true, None),
                Alignment::Before => (row.steps > 1, self.before(rows, at)),
            };
            let mut sum = Basis::default();
            let mut described = 0.0;
            for basis in [own.then_some(at), before].into_iter().flatten().filter_map(|at| sampled.get(at)) {
                sum.add_scaled(basis, 1.0);
                described += 1.0;
            }
            let steps = row.steps as f64;
            sum.add_scaled(mean, steps - described);
            sum.scaled(1.0 / steps)
        };
        rows.iter().zip(&around).enumerate().map(terms).collect()
    }

    /// The rows for a fit; each counts as a share of the run's `ROWS_OF_A_RUN`. Their standard deviation is the scatter around
    /// the median error of `by`'s predictions, at least 3 %. Times without scheduling determine no prices of queues.
    fn fit_rows(&self, by: &Correction, includes_scheduling: bool) -> Vec<FitRow> {
        let rows = self.part(&self.fitted).0;
        let weight = (ROWS_OF_A_RUN / rows.len().max(1) as f64).min(1.0);
        let bases = self.terms();
        // Steps that were not sampled have the queues of their neighbour.
        let queues = |row: &Interval| if includes_scheduling { self.case.queues(row) } else { Queues::default() };
        let off = |(row, basis): (&Interval, &Basis)| (row.period_us() / by.period_us(basis, &queues(row))).ln();
        let sd = robust_sd(rows.iter().zip(&bases).map(off).collect()).max(Target::StepPeriod.expected_sd());
        let row = |row: &Interval, basis: &Basis, weight| FitRow {
            target: Target::StepPeriod,
            offset: 0.0,
            x: factors(basis, 0.0, queues(row).counts()),
            measured: row.period_us(),
            sd,
            weight,
        };
        let mut found: Vec<FitRow> = rows.iter().zip(&bases).map(|(of, basis)| row(of, basis, weight)).collect();
        if includes_scheduling {
            // Their price is their difference from the other rows, in which common causes of errors cancel.
            let preempting: Vec<&Interval> = self.preempting().collect();
            let weight = (ROWS_OF_A_RUN / preempting.len().max(1) as f64).min(1.0);
            found.extend(preempting.into_iter().map(|of| row(of, &self.case.basis(of), weight)));
        }
        found
    }

    /// The rows to fit, each with its measured time over the predicted one.
    pub(super) fn fitted_rows(&self, by: &Correction) -> Vec<(&Interval, f64)> {
        let ratio = |(row, basis): (&Interval, &Basis)| row.period_us() / by.period_us(basis, &self.case.queues(row));
        let rows = self.part(&self.fitted).0;
        rows.iter().zip(&self.terms()).map(|pair| (pair.0, ratio(pair))).collect()
    }

    /// Single steps with a preemption among the rows to fit.
    fn preempting(&self) -> impl Iterator<Item = &Interval> {
        let rows = self.part(&self.fitted).0;
        let steps = rows.first().map_or(0, |row| row.first)..rows.last().map_or(0, |row| row.first);
        self.case.preempting.iter().filter(move |row| steps.contains(&row.first))
    }
}

/// Least squares of the first value by the other two, after far values of the first are clamped; `None` if the others do not
/// vary.
fn two_slopes(rows: &[[f64; 3]]) -> Option<(f64, f64)> {
    let times: Vec<f64> = rows.iter().map(|[time, ..]| *time).collect();
    let middle = median(times.clone())?;
    // The robust standard deviation is 0 if most times are equal.
    let mean_off = times.iter().map(|time| (time - middle).abs()).sum::<f64>() / rows.len() as f64;
    let far = FAR_SDS * robust_sd(times).max(mean_off);
    let clamped: Vec<[f64; 3]> =
        rows.iter().map(|[time, own, before]| [time.clamp(middle - far, middle + far), *own, *before]).collect();
    let mean = |of: &dyn Fn(&[f64; 3]) -> f64| clamped.iter().map(of).sum::<f64>() / rows.len() as f64;
    let centre = [mean(&|row| row[0]), mean(&|row| row[1]), mean(&|row| row[2])];
    let product = |a: usize, b: usize| mean(&|row| (row[a] - centre[a]) * (row[b] - centre[b]));
    let (oo, bb, ob, to, tb) = (product(1, 1), product(2, 2), product(1, 2), product(0, 1), product(0, 2));
    let determinant = oo * bb - ob * ob;
    let varies = determinant > 1e-6 * oo * bb && determinant > 0.0;
    varies.then(|| ((to * bb - tb * ob) / determinant, (tb * oo - to * ob) / determinant))
}

/// The values around a position, itself included.
fn near<T>(all: &[T], at: usize) -> &[T] {
    all.get(at.saturating_sub(AROUND)..(at + AROUND + 1).min(all.len())).unwrap_or_default()
}

/// The mean around each sample.
fn means_around(sampled: &[Basis]) -> Vec<Basis> {
    let mean = |at: usize| {
        let around = near(sampled, at);
        let mut sum = Basis::default();
        around.iter().for_each(|basis| sum.add_scaled(basis, 1.0));
        sum.scaled(1.0 / around.len().max(1) as f64)
    };
    (0..sampled.len()).map(mean).collect()
}

/// Fits a correction to the runs' rows, from the mean of the prior.
///
/// # Errors
/// `ErrorKind::Invalid` if there are fewer than two rows, or all have the same time; as [`fit_rows`].
pub(super) fn fit_steps(origin: &str, runs: &[&StepRun<'_>], prior: &Prior) -> Result<FitResult> {
    let periods_us: Vec<f64> = runs.iter().flat_map(|run| run.part(&run.fitted).0).map(Interval::period_us).collect();
    if let [first_us, _, ..] = periods_us.as_slice()
        && periods_us.iter().all(|us| (us - first_us).abs() <= 1e-9 * first_us)
    {
        let rows = periods_us.len();
        let problem =
            format!("all {rows} rows have the same time, {first_us} µs: nothing shows what a step's time depends on");
        return Err(Error::invalid(origin, vec![problem]));
    }
    let includes_scheduling = runs.iter().all(|run| run.includes_scheduling());
    let mut prior = if includes_scheduling { prior.including_scheduling() } else { prior.clone() };
    if runs.iter().all(|run| run.case.is_unmeasured()) {
        prior = prior.unmeasured();
    }
    let fit = |by: &Correction| {
        let rows = runs.iter().flat_map(|run| run.fit_rows(by, includes_scheduling)).collect();
        fit_rows(origin, rows, &prior)
    };
    // The second fit takes the noise of each run's rows from the residuals of the first one.
    let first = fit(&prior.means)?;
    let mut fitted = fit(&first.correction)?;
    fitted.report.notes.push(if includes_scheduling {
        "periods hold the time of the engine's thread: it is in step_us, and scheduling_us is 0".to_owned()
    } else {
        "scheduling_us and prices of queues: not identified: they are not in these times; they stay at the prior"
            .to_owned()
    });
    fitted.correction.range = FittedRange::of(runs.iter().flat_map(|run| {
        let rows = run.part(&run.fitted).0.iter();
        rows.map(|row| run.case.calibrated.unchecked_sums(&run.case.requests(row)))
    }));
    let source = &mut fitted.correction.source;
    let used = || runs.iter().filter(|run| !run.fitted.is_empty()).map(|run| &run.case.labels);
    source.models = distinct(used().map(|labels| labels.model.clone()));
    source.hardware = distinct(used().map(|labels| labels.hardware.clone()));
    source.engine_versions = distinct(used().filter_map(|labels| labels.backend_version.clone()));
    Ok(fitted)
}

#[cfg(test)]
#[path = "fit_steps_tests.rs"]
pub(super) mod tests;
