//! Regressions that know no physics, fitted on the training rows of a split: the black box `b0 + b1 · prefill tokens + b2 · decodes`
//! and a ridge regression on all aggregates. Both see means over windows, as they are judged on. Uses `features`, `split`,
//! `window`, `black_box`, nalgebra.

use std::ops::Range;

use nalgebra::{DMatrix, DVector};

use super::case::StepCase;
use super::features::{DECODE_REQUESTS, Features, NUM_FEATURES, PREFILL_TOKENS, mean_features};
use super::split::Training;
use super::window::windows;
use crate::stats::non_negative_least_squares;

/// Penalties that are tried, relative to standardised features' variance of 1.
const PENALTIES: [f64; 8] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];
/// The one taken where no row is left to choose by.
const USUAL_PENALTY: f64 = 1e-2;

/// A window as a regression sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Means over the sampled steps.
    pub features: Features,
    /// `Σ span / Σ steps`, µs.
    pub measured_us: f64,
}

/// The windows of some rows of a run.
pub fn samples(case: &StepCase, rows: Range<usize>, window: usize) -> Vec<Sample> {
    let rows = case.rows.get(rows).unwrap_or_default();
    let sample = |range: Range<usize>| {
        let rows = rows.get(range).unwrap_or_default();
        let (span_us, steps) = rows.iter().fold((0.0, 0u64), |(us, steps), row| (us + row.span_us, steps + row.steps));
        Sample {
            features: mean_features(rows.iter().filter_map(|row| case.record(row))),
            measured_us: span_us / steps.max(1) as f64,
        }
    };
    windows(rows.len(), window).into_iter().map(sample).collect()
}

/// Windows to fit on, and windows to tune on.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    fit: Vec<Sample>,
    tune: Vec<Sample>,
}

impl Seen {
    /// Of training runs.
    pub fn of(training: &[&Training<'_>], window: usize) -> Self {
        let mut seen = Seen::default();
        for of in training {
            seen.fit.extend(samples(of.case, of.fit.clone(), window));
            seen.tune.extend(samples(of.case, of.tune.clone(), window));
        }
        seen
    }

    /// Windows.
    pub fn count(&self) -> usize {
        self.fit.len() + self.tune.len()
    }

    fn all(&self) -> Vec<Sample> {
        self.fit.iter().chain(&self.tune).copied().collect()
    }
}

/// A straight line in prompt tokens and decodes, no coefficient below 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// µs per step.
    pub step_us: f64,
    /// µs per prompt token.
    pub prefill_token_us: f64,
    /// µs per decode.
    pub decode_us: f64,
}

impl Line {
    /// With the least squares of relative errors over all training windows; `None` without any.
    pub fn fit(seen: &Seen) -> Option<Line> {
        let row = |of: Sample| {
            let [prefill_tokens, decodes] = [PREFILL_TOKENS, DECODE_REQUESTS].map(|at| value(&of, at));
            [1.0 / of.measured_us, prefill_tokens / of.measured_us, decodes / of.measured_us]
        };
        let rows: Vec<[f64; 3]> = seen.all().into_iter().map(row).collect();
        let [step_us, prefill_token_us, decode_us] =
            non_negative_least_squares(&rows, &vec![1.0; rows.len()], &vec![1.0; rows.len()])?;
        Some(Line { step_us, prefill_token_us, decode_us })
    }

    /// Mean time of a step in a window, µs.
    pub fn predict_us(&self, of: &Sample) -> f64 {
        self.step_us + self.prefill_token_us * value(of, PREFILL_TOKENS) + self.decode_us * value(of, DECODE_REQUESTS)
    }
}

fn value(of: &Sample, at: usize) -> f64 {
    of.features.get(at).copied().flatten().unwrap_or(0.0)
}

/// A ridge regression on the aggregates that all windows have.
#[derive(Debug, Clone, PartialEq)]
pub struct Ridge {
    /// Positions of the features, their means and standard deviations, and coefficients of the standardised ones, µs.
    columns: Vec<(usize, f64, f64, f64)>,
    intercept_us: f64,
    penalty: f64,
}

impl Ridge {
    /// Fitted on training windows for each penalty; the one with the least mean absolute error on the tuning windows is fitted
    /// again on all of them. `judged` decides only which features there are. `None` without windows to fit on.
    ///
    /// # Formula
    /// `argmin Σ w (y − b0 − Σ b z)² / Σ w + λ Σ b²` with `w = 1 / y²`, so that errors count relative, and `z` standardised.
    pub fn fit(seen: &Seen, judged: &[Sample]) -> Option<Ridge> {
        let all = seen.all();
        let is_known =
            |at: &usize| all.iter().chain(judged).all(|of| of.features.get(*at).is_some_and(Option::is_some));
        let known: Vec<usize> = (0..NUM_FEATURES).filter(is_known).collect();
        let error = |ridge: &Ridge| -> f64 {
            seen.tune.iter().map(|of| (ridge.predict_us(of) / of.measured_us - 1.0).abs()).sum()
        };
        let mut best = (USUAL_PENALTY, f64::INFINITY);
        for penalty in PENALTIES.into_iter().filter(|_| !seen.tune.is_empty()) {
            let error = error(&Ridge::with_penalty(&seen.fit, &known, penalty)?);
            if error < best.1 {
                best = (penalty, error);
            }
        }
        Ridge::with_penalty(&all, &known, best.0)
    }

    fn with_penalty(samples: &[Sample], known: &[usize], penalty: f64) -> Option<Ridge> {
        let weights: Vec<f64> = samples.iter().map(|of| of.measured_us.powi(-2)).collect();
        let sum: f64 = weights.iter().sum();
        let weighted = |of: &dyn Fn(&Sample) -> f64| -> f64 {
            samples.iter().zip(&weights).map(|(sample, weight)| weight * of(sample)).sum::<f64>() / sum
        };
        if samples.is_empty() || !sum.is_finite() {
            return None;
        }
        let intercept_us = weighted(&|of| of.measured_us);
        let mut columns: Vec<(usize, f64, f64, f64)> = Vec::new();
        for at in known {
            let mean = weighted(&|of| value(of, *at));
            let sd = weighted(&|of| (value(of, *at) - mean).powi(2)).sqrt();
            // A feature that does not vary says nothing.
            if sd > 1e-9 * mean.abs() {
                columns.push((*at, mean, sd, 0.0));
            }
        }
        let size = columns.len();
        if size > 0 {
            let z = |of: &Sample, (at, mean, sd, _): &(usize, f64, f64, f64)| (value(of, *at) - mean) / sd;
            let normal = DMatrix::from_fn(size, size, |row, column| {
                let diagonal = if row == column { penalty } else { 0.0 };
                diagonal + weighted(&|of| z(of, &columns[row]) * z(of, &columns[column]))
            });
            let right =
                DVector::from_fn(size, |row, _| weighted(&|of| z(of, &columns[row]) * (of.measured_us - intercept_us)));
            let solved = normal.cholesky()?.solve(&right);
            for (column, coefficient) in columns.iter_mut().zip(solved.iter()) {
                column.3 = *coefficient;
            }
        }
        Some(Ridge { columns, intercept_us, penalty })
    }

    /// Mean time of a step in a window, µs.
    pub fn predict_us(&self, of: &Sample) -> f64 {
        let terms = self.columns.iter().map(|(at, mean, sd, coefficient)| coefficient * (value(of, *at) - mean) / sd);
        self.intercept_us + terms.sum::<f64>()
    }

    /// The penalty that was chosen.
    pub fn penalty(&self) -> f64 {
        self.penalty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of so many prompt tokens in a chunk and so many decodes, at a KV usage.
    fn sample(prefill: f64, decodes: f64, usage: Option<f64>, measured_us: f64) -> Sample {
        let features = [
            Some(prefill + decodes),
            Some(prefill),
            Some(decodes),
            Some(1.0),
            Some(decodes),
            None,
            usage,
            usage.map(|usage| usage * decodes),
        ];
        Sample { features, measured_us }
    }

    fn linear(prefill: f64, decodes: f64) -> Sample {
        sample(prefill, decodes, Some(decodes / 500.0), 5000.0 + 10.0 * prefill + 20.0 * decodes)
    }

    fn seen() -> Seen {
        let fit = [(0.0, 10.0), (50.0, 20.0), (100.0, 60.0), (10.0, 90.0), (200.0, 40.0)];
        let tune = [(30.0, 30.0), (80.0, 70.0)];
        let of = |rows: &[(f64, f64)]| rows.iter().map(|(prefill, decodes)| linear(*prefill, *decodes)).collect();
        Seen { fit: of(&fit), tune: of(&tune) }
    }

    #[test]
    fn both_recover_a_line() {
        let line = Line::fit(&seen()).unwrap();
        assert!((line.step_us - 5000.0).abs() < 1e-6, "{line:?}");
        assert!((line.prefill_token_us - 10.0).abs() < 1e-6 && (line.decode_us - 20.0).abs() < 1e-6, "{line:?}");
        let unseen = linear(150.0, 80.0);
        assert!((line.predict_us(&unseen) - 8100.0).abs() < 1e-6);
        let ridge = Ridge::fit(&seen(), &[unseen]).unwrap();
        assert!((ridge.predict_us(&unseen) / 8100.0 - 1.0).abs() < 1e-3, "{ridge:?}");
        assert!(ridge.penalty() <= 1e-5, "noise-free rows want no penalty: {}", ridge.penalty());
    }

    #[test]
    fn the_penalty_is_chosen_on_tuning_rows() {
        // The fit rows have a slope that the tuning rows don't: the strongest penalty errs least there.
        let flat = |decodes| sample(0.0, decodes, None, 5000.0);
        let steep = |decodes: f64| sample(0.0, decodes, None, 5000.0 + 100.0 * (decodes - 50.0));
        let seen = Seen { fit: vec![steep(30.0), steep(50.0), steep(70.0)], tune: vec![flat(20.0), flat(80.0)] };
        let ridge = Ridge::fit(&seen, &[]).unwrap();
        assert!((ridge.penalty() - 10.0).abs() < 1e-9, "{}", ridge.penalty());
    }

    #[test]
    fn features_that_judged_windows_lack_are_not_used() {
        let judged = [sample(10.0, 10.0, None, 1.0)];
        let ridge = Ridge::fit(&seen(), &judged).unwrap();
        assert!(ridge.columns.iter().all(|(at, ..)| ![5, 6, 7].contains(at)), "{ridge:?}");
        let with_usage = Ridge::fit(&seen(), &[linear(1.0, 1.0)]).unwrap();
        assert!(with_usage.columns.iter().any(|(at, ..)| *at == 6));
    }

    #[test]
    fn constant_rows_give_their_mean_and_none_gives_none() {
        let same = Seen { fit: vec![linear(0.0, 10.0); 3], tune: Vec::new() };
        let ridge = Ridge::fit(&same, &[]).unwrap();
        assert!(ridge.columns.is_empty() && (ridge.intercept_us - 5200.0).abs() < 1e-9, "{ridge:?}");
        assert_eq!((Ridge::fit(&Seen::default(), &[]), Line::fit(&Seen::default())), (None, None));
    }
}
