//! Sampled steps of real engines as observations, and a correction fitted to them. Uses `evaluate::steps`, `learn`, `observation`;
//! terms are computed in parallel.
//!
//! A row is the time from a sampled step to the next sampled one: n steps, of which one or two are described. The terms of the
//! others are taken to be the mean of the samples around, as sampling is random:
//!
//! `terms of the mean step = (Σ described + (n − described) · x̄) / n`, held against `span / n`.
//!
//! Which steps the time from start to start holds is a matter of the engine ([`Alignment`]).

use std::ops::Range;

use rayon::prelude::*;

use super::learn::{Learned, Prior, learn};
use super::observation::{Observation, Target};
use crate::evaluate::steps::case::{StepCase, StepRow};
use crate::stats::{median, robust_sd};
use ridgepoint::internals::correction::{Basis, Correction};
use ridgepoint::{Error, Result};

/// Rows of a run that are independent of each other, at most. Errors of a run's rows have common causes, so thousands of them do
/// not say a hundred times as much as a few dozen (assumed).
pub const ROWS_OF_A_RUN: f64 = 50.0;

/// Least standard deviation of ln(measured / predicted) of a row, as [`Target::expected_sd`].
const LEAST_SD: f64 = 0.03;
/// Samples on either side that stand for steps that were not sampled.
const AROUND: usize = 25;
/// Rows of a single step that it takes to tell alignments apart.
const ROWS_TO_ALIGN: usize = 30;
/// Robust standard deviations beyond which a time is drawn in when alignments are compared.
const FAR_SDS: f64 = 4.0;
/// Turns of fitting and estimating the rows' noise from what is left.
const TURNS: usize = 2;

/// Which step's work fills the time from a step's start to the next step's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Alignment {
    /// Its own.
    Own,
    /// That of the step before. With asynchronous scheduling a step is scheduled when the one before it starts on the GPU, so
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

/// A run with the terms of its rows.
#[derive(Debug, Clone)]
pub struct RunTerms<'a> {
    /// The run.
    pub case: &'a StepCase,
    /// Terms of each row's sampled step, in the order of [`StepCase::rows`].
    pub sampled: Vec<Basis>,
    /// Which step's work a time holds.
    pub alignment: Alignment,
    /// By how much of what is predicted times of a single step rise with the step itself and with the one before; `None` where
    /// the run has too few such rows to tell, and for timed forward passes. [`RunTerms::compare`] has the formula.
    pub slopes: Option<(f64, f64)>,
}

impl<'a> RunTerms<'a> {
    /// Of a run; times are taken to be the steps' own until [`RunTerms::compare`].
    pub fn of(case: &'a StepCase) -> Self {
        let sampled: Vec<Basis> = case.rows.par_iter().map(|row| case.basis(row)).collect();
        RunTerms { case, sampled, alignment: Alignment::Own, slopes: None }
    }

    /// Chooses the alignment by the rows of a range, with what `by` predicts of them.
    ///
    /// # Formula
    /// Least squares over rows of a single step: `ln(time / time around) = own · ln(t / t̄) + before · ln(t₋₁ / t̄)` with the predictions t of the step,
    /// t₋₁ of the one before and t̄ of those around; where the one before was not sampled it is taken to be as those around. The
    /// greater coefficient wins: a prediction may be wrong by a factor.
    pub fn compare(&mut self, range: Range<usize>, by: &Correction) {
        let rows = self.case.rows.get(range.clone()).unwrap_or_default();
        let sampled = self.sampled.get(range).unwrap_or_default();
        let is_timed = |row: &StepRow| self.case.record(row).is_some_and(|step| step.gpu_time_us.is_some());
        if rows.iter().any(is_timed) {
            return;
        }
        let around = means_around(sampled);
        let against = |basis: Option<&Basis>, mean: &Basis| {
            basis.map_or(0.0, |basis| (by.time_us(basis) / by.time_us(mean)).ln())
        };
        let deviations = |at: usize| {
            let (row, mean) = (rows.get(at).filter(|row| row.steps == 1)?, around.get(at)?);
            let (span_us, steps) = near(rows, at).iter().fold((0.0, 0), |(us, n), of| (us + of.span_us, n + of.steps));
            let before = self.before(rows, at).and_then(|before| sampled.get(before));
            let time = (row.span_us * steps as f64 / span_us).ln();
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
    fn before(&self, rows: &[StepRow], at: usize) -> Option<usize> {
        let id = |at: usize| rows.get(at).and_then(|row| self.case.record(row)).map(|step| step.step_id);
        let before = at.checked_sub(1)?;
        (id(before)?.checked_add(1) == id(at)).then_some(before)
    }

    /// Terms of the mean step of each row of a range, in which samples outside it have no part.
    pub fn rows(&self, range: Range<usize>) -> Vec<Basis> {
        let (Some(rows), Some(sampled)) = (self.case.rows.get(range.clone()), self.sampled.get(range)) else {
            return Vec::new();
        };
        let around = means_around(sampled);
        let terms = |(at, (row, mean)): (usize, (&StepRow, &Basis))| {
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

    /// The rows of a range as observations, predicted with `by`; each counts as a share of the run's [`ROWS_OF_A_RUN`]. Their noise is
    /// what is scattered around the median error, at least 3 %.
    pub fn observe(&self, range: Range<usize>, by: &Correction) -> Vec<Observation> {
        let rows = self.case.rows.get(range.clone()).unwrap_or_default();
        let weight = (ROWS_OF_A_RUN / rows.len().max(1) as f64).min(1.0);
        let mut observations: Vec<Observation> = rows
            .iter()
            .zip(self.rows(range))
            .map(|(row, basis)| Observation {
                experiment: self.case.name.clone(),
                model: self.case.model.clone(),
                target: Target::StepPeriod,
                measured_us: row.span_us / row.steps as f64,
                predicted_us: by.time_us(&basis),
                basis,
                queueing: 0.0,
                sd: LEAST_SD,
                weight,
            })
            .collect();
        let off = observations.iter().map(|of| (of.measured_us / of.predicted_us).ln()).collect();
        let sd = robust_sd(off).max(LEAST_SD);
        observations.iter_mut().for_each(|of| of.sd = sd);
        observations
    }
}

/// Gives runs of one version of an engine one alignment, by the mean of their slopes: whether scheduling is asynchronous is a matter of
/// the engine, and one run alone may not tell.
pub fn align(runs: &mut [&mut RunTerms<'_>]) {
    let mut versions: Vec<Option<String>> = runs.iter().map(|run| run.case.engine_version.clone()).collect();
    versions.sort();
    versions.dedup();
    for version in &versions {
        let is_of = |run: &&mut &mut RunTerms<'_>| run.case.engine_version == *version && run.slopes.is_some();
        let mut lead = 0.0;
        for run in runs.iter_mut().filter(is_of) {
            let single = run.case.rows.iter().filter(|row| row.steps == 1).count();
            let (own, before) = run.slopes.unwrap_or_default();
            lead += single as f64 * (before - own);
        }
        let alignment = if lead > 0.0 { Alignment::Before } else { Alignment::Own };
        runs.iter_mut().filter(is_of).for_each(|run| run.alignment = alignment);
    }
}

/// Least squares of the first value by the others, far values of it drawn in; `None` where the others don't vary.
fn two_slopes(rows: &[[f64; 3]]) -> Option<(f64, f64)> {
    let middle = median(rows.iter().map(|[time, ..]| *time).collect()).unwrap_or(0.0);
    // Where most times are the same the robust one is nothing.
    let mean_off = rows.iter().map(|[time, ..]| (time - middle).abs()).sum::<f64>() / rows.len() as f64;
    let far = FAR_SDS * robust_sd(rows.iter().map(|[time, ..]| *time).collect()).max(mean_off);
    let times: Vec<f64> = rows.iter().map(|[time, ..]| time.clamp(middle - far, middle + far)).collect();
    let count = rows.len() as f64;
    let mean = |of: &dyn Fn(usize) -> f64| (0..rows.len()).map(of).sum::<f64>() / count;
    let column = |column: usize| move |at: usize| rows.get(at).and_then(|row| row.get(column)).copied().unwrap_or(0.0);
    let time = |at: usize| times.get(at).copied().unwrap_or(0.0);
    let (own, before) = (column(1), column(2));
    let (mean_time, mean_own, mean_before) = (mean(&time), mean(&own), mean(&before));
    let (t, o, b) =
        (|at: usize| time(at) - mean_time, |at: usize| own(at) - mean_own, |at: usize| before(at) - mean_before);
    let (oo, bb, ob) = (mean(&|at| o(at) * o(at)), mean(&|at| b(at) * b(at)), mean(&|at| o(at) * b(at)));
    let (to, tb) = (mean(&|at| t(at) * o(at)), mean(&|at| t(at) * b(at)));
    let determinant = oo * bb - ob * ob;
    let varies = determinant > 1e-6 * oo * bb && determinant > 0.0;
    varies.then(|| ((to * bb - tb * ob) / determinant, (tb * oo - to * ob) / determinant))
}

/// What stands around a position, itself included.
fn near<T>(all: &[T], at: usize) -> &[T] {
    all.get(at.saturating_sub(AROUND)..(at + AROUND + 1).min(all.len())).unwrap_or_default()
}

/// For each sample the mean of those around it.
fn means_around(sampled: &[Basis]) -> Vec<Basis> {
    let mean = |at: usize| {
        let around = near(sampled, at);
        let mut sum = Basis::default();
        around.iter().for_each(|basis| sum.add_scaled(basis, 1.0));
        sum.scaled(1.0 / around.len().max(1) as f64)
    };
    (0..sampled.len()).map(mean).collect()
}

/// Fits a correction to rows of runs, from the mean of the prior.
///
/// # Errors
/// `ErrorKind::Invalid` where there are fewer than two rows, or all have the same time; as [`learn`].
pub fn fit_steps(origin: &str, runs: &[(&RunTerms<'_>, Range<usize>)], prior: &Prior) -> Result<Learned> {
    let spans = || runs.iter().flat_map(|(run, range)| run.case.rows.get(range.clone()).unwrap_or_default());
    let period_us = |row: &StepRow| row.span_us / row.steps as f64;
    let mut periods = spans().map(period_us);
    if let Some(first_us) = periods.next()
        && periods.all(|us| (us - first_us).abs() <= 1e-9 * first_us)
        && spans().count() > 1
    {
        let rows = spans().count();
        let problem =
            format!("all {rows} rows have the same time, {first_us} µs: nothing shows what a step's time depends on");
        return Err(Error::invalid(origin, vec![problem]));
    }
    let mut by = prior.means().clone();
    let (mut turn, mut iterations) = (1, 0);
    loop {
        let observations: Vec<Observation> =
            runs.iter().flat_map(|(run, range)| run.observe(range.clone(), &by)).collect();
        let mut learned = learn(origin, &observations, &by, prior)?;
        learned.solution.cost_start = learned.problem.cost(&learned.problem.priors());
        iterations += learned.solution.iterations;
        if turn >= TURNS {
            learned.solution.iterations = iterations;
            label(&mut learned.correction, runs);
            return Ok(learned);
        }
        by = learned.correction;
        turn += 1;
    }
}

fn label(correction: &mut Correction, runs: &[(&RunTerms<'_>, Range<usize>)]) {
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names.dedup();
        names
    };
    correction.source.hardware = sorted(runs.iter().map(|(run, _)| run.case.hardware.clone()).collect());
    correction.source.engine_versions =
        sorted(runs.iter().filter_map(|(run, _)| run.case.engine_version.clone()).collect());
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
