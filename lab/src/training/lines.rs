//! Ridge and lasso through the rows of a training table, judged on rows that they have not seen.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::elastic_net::{Line, Observation, Penalty, fit};
use crate::stats::{ErrorSummary, mean};

/// Fewest rows that a line is fitted to.
const LEAST_ROWS: usize = 20;

/// A row of a table, as far as its columns are known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TrainingRow {
    pub(super) x: Vec<Option<f64>>,
    pub(super) y: f64,
}

/// A fitted line with its errors. Keys of its JSON are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineFit {
    /// Ridge or lasso.
    pub method: Penalty,
    /// What it is a line of, with its unit.
    pub target: &'static str,
    /// The penalty that was chosen.
    pub penalty: f64,
    /// Target where all columns are 0.
    pub intercept: f64,
    /// Coefficients in units of their columns.
    pub coefficients: BTreeMap<&'static str, f64>,
    /// Columns that add nothing to the others.
    pub dropped: Vec<&'static str>,
    /// Columns that the rows do not know, or that never change.
    pub not_used: Vec<&'static str>,
    /// Rows that were fitted.
    pub rows: usize,
    /// Errors on later rows; `None` without any.
    pub held_out: Option<HeldOut>,
    /// Places and coefficients of the columns that are used.
    #[serde(skip)]
    weights: Vec<(usize, f64)>,
}

/// Errors on rows that were not fitted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeldOut {
    /// Number of rows.
    pub rows: usize,
    /// Mean of the target.
    pub mean: f64,
    /// Mean of the prediction.
    pub predicted_mean: f64,
    /// Mean absolute error, in the target's unit.
    pub mean_absolute: f64,
    /// The same in percent of the target's mean; `None` where that is 0.
    pub of_mean_pct: Option<f64>,
    /// Median absolute error of a row, percent; `None` where a target is 0.
    pub median_ape_pct: Option<f64>,
    /// Mean absolute error of a row, percent; `None` where a target is 0.
    pub mean_ape_pct: Option<f64>,
}

impl HeldOut {
    /// Of pairs of measured and predicted targets; `None` without any.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let of = |value: fn(&(f64, f64)) -> f64| mean(&pairs.iter().map(value).collect::<Vec<f64>>());
        let (mean, mean_absolute) = (of(|pair| pair.0)?, of(|pair| (pair.1 - pair.0).abs())?);
        let relative = ErrorSummary::of(pairs.iter().copied());
        Some(HeldOut {
            rows: pairs.len(),
            mean,
            predicted_mean: of(|pair| pair.1)?,
            mean_absolute,
            of_mean_pct: (mean > 0.0).then(|| 100.0 * mean_absolute / mean),
            median_ape_pct: relative.map(|of| of.median_ape_pct),
            mean_ape_pct: relative.map(|of| of.mape_pct),
        })
    }
}

impl LineFit {
    /// The target of a row, never negative; `None` if a column is missing that the line uses.
    pub(super) fn predict(&self, x: &[Option<f64>]) -> Option<f64> {
        let term = |(at, coefficient): &(usize, f64)| Some(coefficient * (*x.get(*at)?)?);
        let sum = self.weights.iter().map(term).sum::<Option<f64>>()?;
        Some((self.intercept + sum).max(0.0))
    }

    /// The coefficient of a column; 0 if it has none.
    pub fn coefficient(&self, column: &str) -> f64 {
        self.coefficients.get(column).copied().unwrap_or(0.0)
    }
}

/// Ridge and lasso through rows in the order of time, judged on others. A column is used if half of the rows know it; rows without it are
/// left out. None where too few rows are left.
pub(super) fn lines(
    target: &'static str,
    columns: &[&'static str],
    (training, judged): (&[TrainingRow], &[TrainingRow]),
    non_negative: bool,
) -> Vec<LineFit> {
    let known = |at: usize| training.iter().filter(|row| row.x.get(at).is_some_and(Option::is_some)).count();
    let used: Vec<usize> = (0..columns.len()).filter(|at| 2 * known(*at) >= training.len()).collect();
    let row = |of: &TrainingRow| {
        let x = used.iter().map(|at| of.x.get(*at).copied().flatten()).collect::<Option<Vec<f64>>>()?;
        Some(Observation { x, y: of.y })
    };
    let rows: Vec<Observation> = training.iter().filter_map(row).collect();
    if rows.len() < LEAST_ROWS {
        return Vec::new();
    }
    let names: Vec<&'static str> = used.iter().filter_map(|at| columns.get(*at).copied()).collect();
    let of = |method: Penalty| {
        let Line { intercept, coefficients, penalty } = fit(&rows, method, non_negative)?;
        let found: Vec<(&'static str, Option<f64>)> = names.iter().copied().zip(coefficients.iter().copied()).collect();
        let is_zero = |of: f64| of.abs() <= 0.0;
        let is_constant = |name: &&str| !found.iter().any(|(known, b)| known == name && b.is_some());
        let mut line = LineFit {
            method,
            target,
            penalty,
            intercept,
            coefficients: found.iter().filter_map(|(name, b)| Some((*name, (*b).filter(|b| !is_zero(*b))?))).collect(),
            dropped: found.iter().filter(|(_, b)| b.is_some_and(is_zero)).map(|(name, _)| *name).collect(),
            not_used: columns.iter().copied().filter(is_constant).collect(),
            rows: rows.len(),
            held_out: None,
            weights: used.iter().zip(&coefficients).map(|(at, b)| (*at, b.unwrap_or(0.0))).collect(),
        };
        let pairs: Vec<(f64, f64)> = judged.iter().filter_map(|row| Some((row.y, line.predict(&row.x)?))).collect();
        line.held_out = HeldOut::of(&pairs);
        Some(line)
    };
    [Penalty::Ridge, Penalty::Lasso].into_iter().filter_map(of).collect()
}

#[allow(clippy::float_cmp)]
#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    const COLUMNS: [&str; 4] = ["queue_depth", "kv_ratio", "prompt_tokens", "cached_tokens"];

    /// `wait = 4 + 12 · queue depth + 0.02 · prompt tokens` ms, give or take 3 ms; the share of KV blocks is of another row, and no
    /// row reports cached tokens.
    fn rows(seed: u64) -> Vec<TrainingRow> {
        let mut random = Pcg64::seed_from_u64(seed);
        let row = |_| {
            let (waiting, prompt) = (random.random_range(0..40u32), random.random_range(50..3000u32));
            let y = 4.0 + 12.0 * f64::from(waiting) + 0.02 * f64::from(prompt) + random.random_range(-3.0..3.0f64);
            let permuted = f64::from(waiting) / 40.0;
            TrainingRow { x: vec![Some(f64::from(waiting)), Some(permuted), Some(f64::from(prompt)), None], y }
        };
        let mut rows: Vec<TrainingRow> = (0..1500).map(row).collect();
        for last in (1..rows.len()).rev() {
            let other = random.random_range(0..=last);
            (rows[last].x[1], rows[other].x[1]) = (rows[other].x[1], rows[last].x[1]);
        }
        rows
    }

    #[test]
    fn planted_waits_are_found_and_a_permuted_column_is_dropped() {
        for seed in 0..20 {
            let rows = rows(seed);
            let found = lines("queue wait, ms", &COLUMNS, rows.split_at(900), false);
            let [ridge, lasso] = found.try_into().unwrap();
            for line in [&ridge, &lasso] {
                for (column, planted) in [("queue_depth", 12.0), ("prompt_tokens", 0.02)] {
                    let value = line.coefficient(column);
                    assert!((value / planted - 1.0).abs() < 0.05, "{seed} {}: {column} = {value}", line.method);
                }
                // The mean of evenly spread errors of up to 3 ms is 1.5 ms.
                let held_out = line.held_out.unwrap();
                assert_eq!((line.rows, held_out.rows, line.not_used.as_slice()), (900, 600, &["cached_tokens"][..]));
                assert!((1.3..1.7).contains(&held_out.mean_absolute), "{seed}: {held_out:?}");
            }
            assert_eq!((ridge.dropped.len(), lasso.dropped), (0, vec!["kv_ratio"]), "{seed}");
        }
    }

    #[test]
    fn rows_without_a_used_column_are_left_out_and_few_rows_give_no_line() {
        let mut rows = rows(1);
        rows[..10].iter_mut().for_each(|row| row.x[0] = None);
        rows[900..920].iter_mut().for_each(|row| row.x[2] = None);
        let line = &lines("queue wait, ms", &COLUMNS, rows.split_at(900), false)[0];
        assert_eq!((line.rows, line.held_out.unwrap().rows), (890, 580));
        assert_eq!(line.predict(&rows[0].x), None);
        assert!(lines("queue wait, ms", &COLUMNS, rows[10..40].split_at(LEAST_ROWS - 1), false).is_empty());
    }

    #[test]
    fn errors_by_hand() {
        let of = HeldOut::of(&[(10.0, 12.0), (30.0, 27.0)]).unwrap();
        assert_eq!((of.mean, of.predicted_mean, of.mean_absolute, of.of_mean_pct), (20.0, 19.5, 2.5, Some(12.5)));
        assert!((of.median_ape_pct.unwrap() - 15.0).abs() < 1e-9);
        // A request that did not wait has no relative error.
        let of = HeldOut::of(&[(0.0, 1.0)]).unwrap();
        assert_eq!((of.mean_absolute, of.of_mean_pct, of.median_ape_pct), (1.0, None, None));
        assert_eq!(HeldOut::of(&[]), None);
    }
}
