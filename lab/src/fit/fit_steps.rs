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

use super::batch_kind::{BatchKind, Scale, scale_of, scales};
use super::fit_rows::{FitResult, Prior, distinct, factors, fit_rows, parameters_of};
use super::freedom::Freedom;
use super::problem::{FitRow, Problem, Target};
use super::queue_prices::NUM_QUEUE_PRICES;
use super::widths::{self, Widths};
use crate::evaluate::steps::case::StepCase;
use crate::evaluate::steps::window::mean_step_us;
use crate::ingest::Interval;
use crate::stats::{median, robust_sd};
use ridgepoint::correction::{Basis, FittedRange};
use ridgepoint::{Correction, Error, Result};

/// Independent rows that count as one in a fit of a single model, because the same rows choose its widths. With 1, 80 to 95 % of the prices planted in
/// 20 replays were within their 90 % intervals. A fit of several models takes 1: what is unknown of others is found by leaving models out.
const ROWS_PER_ROW: f64 = 1.5;

/// Fewer rows than this leave priors as wide as assumed.
const ROWS_TO_LEARN_WIDTHS: usize = 100;

/// Coefficients of times that follow from cached tokens.
const OF_CACHED_TOKENS: [&str; 2] = ["attention_decode", "attention_prefill"];

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

/// A time with its kind and its terms.
type Described<'r> = (&'r Interval, BatchKind, Basis);

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
    /// Factor on the times of each kind of batch: a fit of the median of these is one of the mean of those.
    pub(super) lifts: [f64; BatchKind::COUNT],
}

impl<'a> StepRun<'a> {
    /// A run whose alignment is chosen by the rows to fit.
    pub fn new(case: &'a StepCase, fitted: Range<usize>, held_out: Range<usize>, prior: &Prior) -> Self {
        let (sampled, bounds_us) = case.rows.par_iter().map(|row| case.terms(row)).unzip();
        let (alignment, lifts) = (Alignment::Own, [1.0; BatchKind::COUNT]);
        let mut run = StepRun { case, sampled, bounds_us, fitted, held_out, alignment, slopes: None, lifts };
        run.compare(&prior.means);
        run
    }

    /// Takes all rows to fit, and holds none out.
    pub fn fit_all(&mut self) {
        let end = self.case.rows.len();
        (self.fitted, self.held_out) = (0..end, end..end);
    }

    /// From the beginning of the rows that were held out to that of the last one, ns; `None` if none were.
    pub(super) fn held_out_ns(&self) -> Option<Range<u64>> {
        let rows = self.part(&self.held_out).0;
        let start_ns = |row: &Interval| self.case.record(row).map(|step| step.start_ns);
        Some(start_ns(rows.first()?)?..start_ns(rows.last()?)?)
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

    /// Terms of the mean step of each row of a range, and the row's kind. Samples outside the range are not used.
    pub(super) fn terms(&self, range: &Range<usize>) -> Vec<(BatchKind, Basis)> {
        let (rows, sampled) = self.part(range);
        let around = means_around(sampled);
        let terms = |(at, (row, mean)): (usize, (&Interval, &Basis))| {
            if let Some(sum) = self.rebuilt(rows, sampled, at) {
                return (BatchKind::Several, sum.scaled(1.0 / row.steps as f64));
            }
            // The step before is described where it was sampled too; the last step of the interval is not in it then.
            let (own, before) = match self.alignment {
                Alignment::Own => (true, None),
                Alignment::Before => (row.steps > 1, self.before(rows, at)),
            };
            let mut sum = Basis::default();
            let mut described = 0;
            for basis in [own.then_some(at), before].into_iter().flatten().filter_map(|at| sampled.get(at)) {
                sum.add_scaled(basis, 1.0);
                described += 1;
            }
            let kind = BatchKind::of(&sum, described == row.steps);
            let steps = row.steps as f64;
            sum.add_scaled(mean, steps - described as f64);
            (kind, sum.scaled(1.0 / steps))
        };
        rows.iter().zip(&around).enumerate().map(terms).collect()
    }

    /// Terms of the mean step of each row of a range where all of its steps are known, else of its sampled step.
    pub(super) fn known_terms(&self, range: &Range<usize>) -> Vec<Basis> {
        let (rows, sampled) = self.part(range);
        let known = |at: usize| {
            let steps = rows.get(at).map_or(1, |row| row.steps);
            self.rebuilt(rows, sampled, at).map(|sum| sum.scaled(1.0 / steps as f64)).or(sampled.get(at).copied())
        };
        (0..rows.len()).filter_map(known).collect()
    }

    /// Sum of the terms of all steps that a row's time holds, where those that were not sampled are known.
    fn rebuilt(&self, rows: &[Interval], sampled: &[Basis], at: usize) -> Option<Basis> {
        let mut sum = *sampled.get(at)?;
        let own = self.case.rebuilt(rows.get(at)?)?;
        sum.add_scaled(&own.others, 1.0);
        if self.alignment == Alignment::Before {
            let before = at.checked_sub(1).and_then(|before| rows.get(before).map(|row| (before, row)));
            let last = before.and_then(|(before, row)| match row.steps {
                1 => sampled.get(before).copied(),
                _ => self.case.rebuilt(row).map(|of| of.last),
            });
            // Without the step before it is taken to be as the last one.
            sum.add_scaled(&own.last, -1.0);
            sum.add_scaled(&last.unwrap_or(own.last), 1.0);
        }
        Some(sum)
    }

    /// ln(measured / predicted) of rows with their terms.
    fn errors(&self, rows: &[Described<'_>], by: &Correction) -> Vec<(BatchKind, f64)> {
        let error =
            |(row, kind, basis): &Described<'_>| (*kind, (row.period_us() / self.case.period_us(by, row, basis)).ln());
        rows.iter().map(error).collect()
    }

    /// The times to fit: periods, and steps that preempt where times hold scheduling. The price of a preemption is the difference between the
    /// two, in which common causes of errors cancel.
    fn described(&self, includes_scheduling: bool) -> [Vec<Described<'_>>; 2] {
        let rows = self.part(&self.fitted).0.iter();
        let periods = rows.zip(self.terms(&self.fitted)).map(|(row, (kind, basis))| (row, kind, basis));
        let preempting = self.preempting(&self.fitted).filter(|_| includes_scheduling);
        let preempting = preempting.map(|row| (row, BatchKind::WithPrompts, self.case.basis(row)));
        [periods.collect(), preempting.collect()]
    }

    /// The rows for a fit, scaled by the scatter and the correlation of the errors of `by`; without it by what is expected. Times without
    /// scheduling determine no prices of queues.
    fn fit_rows(
        &self,
        described: &[Vec<Described<'_>>; 2],
        by: Option<&Correction>,
        includes_scheduling: bool,
        rows_per_row: f64,
    ) -> Vec<FitRow> {
        let mut found = Vec::new();
        for rows in described {
            let scales = by.map_or([Scale::expected(Target::StepPeriod.expected_sd()); BatchKind::COUNT], |by| {
                scales(&self.errors(rows, by), rows_per_row)
            });
            found.extend(rows.iter().map(|(row, kind, basis)| {
                let Scale { sd, independent } = scale_of(&scales, *kind);
                // Steps of which nothing is known have the queues of their neighbour.
                let queues = if includes_scheduling { self.case.queue_counts(row) } else { [0.0; NUM_QUEUE_PRICES] };
                FitRow {
                    target: Target::StepPeriod,
                    offset: 0.0,
                    x: factors(basis, 0.0, queues),
                    measured: row.period_us() * self.lifts[*kind as usize],
                    sd,
                    weight: independent,
                }
            }));
        }
        found
    }

    /// The rows to fit, each with its kind and its measured time over the predicted one.
    pub(super) fn fitted_rows(&self, by: &Correction) -> Vec<(&Interval, BatchKind, f64)> {
        let rows = self.part(&self.fitted).0.iter().zip(self.terms(&self.fitted));
        let ratio = |(row, (kind, basis)): (_, (BatchKind, Basis))| {
            let row: &Interval = row;
            (row, kind, row.period_us() / self.case.period_us(by, row, &basis))
        };
        rows.map(ratio).collect()
    }

    /// Returns the steps of a range that preempt requests.
    pub(super) fn preempting(&self, range: &Range<usize>) -> impl Iterator<Item = &Interval> {
        let rows = self.part(range).0;
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

fn includes_scheduling(runs: &[&StepRun<'_>]) -> bool {
    runs.iter().all(|run| run.includes_scheduling())
}

/// Fits the runs' rows. The priors of the freed coefficients are as wide as the rows ask for.
pub(super) fn fit_widened(origin: &str, runs: &[&StepRun<'_>], prior: &Prior, freedom: Freedom) -> Result<FitResult> {
    let includes_scheduling = includes_scheduling(runs);
    let models = distinct(runs.iter().map(|run| run.case.labels.model.clone()));
    let rows_per_row = if models.len() > 1 { 1.0 } else { ROWS_PER_ROW };
    let mut prior = if includes_scheduling { prior.including_scheduling() } else { prior.clone() };
    if runs.iter().all(|run| run.case.is_unmeasured()) {
        prior = prior.unmeasured();
    }
    let described: Vec<_> = runs.iter().map(|run| run.described(includes_scheduling)).collect();
    let rows = |by: Option<&Correction>| -> Vec<FitRow> {
        let of_run =
            |(run, described): (&&StepRun<'_>, _)| run.fit_rows(described, by, includes_scheduling, rows_per_row);
        runs.iter().zip(&described).flat_map(of_run).collect()
    };
    // An estimate of cached tokens scatters, and a factor on their time would be too small for it.
    let is_estimated = runs.iter().any(|run| run.case.is_kv_estimated);
    let mut as_assumed = freedom.as_assumed();
    let of_estimates: Vec<_> =
        OF_CACHED_TOKENS.into_iter().filter(|of| is_estimated && !as_assumed.contains(of)).collect();
    as_assumed.extend(of_estimates);
    // Scatter and correlation of rows are those around a fit that no prior holds back, then around the one that they give.
    let is_free = freedom != Freedom::Assumed;
    let widest = Widths { as_assumed: as_assumed.clone(), ..Widths::WIDEST };
    let pilot_prior = if is_free { prior.with_widths(widest) } else { prior.clone() };
    let pilot = fit_rows(origin, rows(None), &pilot_prior)?.correction;
    if is_free {
        let problem = Problem::new(origin, prior.parameters(), rows(Some(&pilot)))?;
        let parameters = |widths: &Widths| prior.with_widths(widths.clone()).parameters();
        let learned = widths::learned(problem, &parameters, &as_assumed, &parameters_of(&prior.means))?;
        prior = prior.with_widths(learned);
    }
    let first = fit_rows(origin, rows(Some(&pilot)), &prior)?.correction;
    fit_rows(origin, rows(Some(&first)), &prior)
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
    let includes_scheduling = includes_scheduling(runs);
    let rows = runs.iter().map(|run| run.fitted.len()).sum::<usize>();
    let freedom = if rows < ROWS_TO_LEARN_WIDTHS { Freedom::Assumed } else { Freedom::chosen(origin, runs, prior)? };
    let mut fitted = fit_widened(origin, runs, prior, freedom)?;
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
