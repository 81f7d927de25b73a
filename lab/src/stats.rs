//! Owns the statistics that measuring, fitting and judging share: quantiles, summaries of errors, least squares.
#![expect(clippy::indexing_slicing, reason = "columns are counted here, and rows are equally long")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positions within a list")]

use nalgebra::{DMatrix, DVector};
use serde::Serialize;

/// The standard deviation of normal values is this many times their median distance from the median.
const SD_PER_MEDIAN_DISTANCE: f64 = 1.4826;

/// Returns the quantile `q` (0 to 1) of ascending values, interpolated between ranks as numpy does by default;
/// `None` without values.
pub fn quantile(ascending: &[f64], q: f64) -> Option<f64> {
    let rank = q * ascending.len().checked_sub(1)? as f64;
    let low = *ascending.get(rank.floor() as usize)?;
    let high = *ascending.get(rank.ceil() as usize)?;
    Some(low + (high - low) * rank.fract())
}

/// Returns the median, which is the midpoint of the middle two of an even number of values; `None` without values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// Returns the value of rank `⌊q·n⌋` among `n` values, `None` without values. The result is always one of the values;
/// of an even number, the median is the upper of the middle two. It takes linear time and reorders `values`.
pub fn observed_quantile(values: &mut [f64], q: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let rank = ((q * values.len() as f64) as usize).min(last);
    Some(*values.select_nth_unstable_by(rank, f64::total_cmp).1)
}

/// Returns the mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the standard deviation that normal values with the same median distance from their median would have. A few
/// outliers do not change it. Values that are not finite are ignored; the result is 0 without values.
pub fn robust_sd(mut values: Vec<f64>) -> f64 {
    values.retain(|value| value.is_finite());
    let Some(centre) = median(values.clone()) else { return 0.0 };
    let distances = values.into_iter().map(|value| (value - centre).abs()).collect();
    median(distances).map_or(0.0, |distance| SD_PER_MEDIAN_DISTANCE * distance)
}

/// Returns the signed error of a prediction, in percent of the measured value.
///
/// ```
/// assert_eq!(ridgepoint_lab::stats::error_pct(80.0, 100.0), 25.0);
/// ```
pub fn error_pct(measured: f64, predicted: f64) -> f64 {
    100.0 * (predicted - measured) / measured
}

/// Summary of the errors of predictions, in percent of the measured values. Serialised keys are stable.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ErrorSummary {
    /// Number of errors.
    pub rows: usize,
    /// Mean absolute error (MAPE).
    pub mape_pct: f64,
    /// Median absolute error.
    pub median_ape_pct: f64,
    /// 90th percentile of the absolute error.
    pub p90_ape_pct: f64,
    /// Largest absolute error.
    pub max_ape_pct: f64,
    /// Median signed error: positive if predictions are too long.
    pub bias_pct: f64,
}

impl ErrorSummary {
    /// Summarises pairs of measured and predicted values; `None` without pairs, or if an error is not finite.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let errors: Vec<f64> = pairs.into_iter().map(|(measured, predicted)| error_pct(measured, predicted)).collect();
        if errors.iter().any(|error| !error.is_finite()) {
            return None;
        }
        let mut absolute: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        absolute.sort_by(f64::total_cmp);
        Some(ErrorSummary {
            rows: absolute.len(),
            mape_pct: mean(&absolute)?,
            median_ape_pct: quantile(&absolute, 0.5)?,
            p90_ape_pct: quantile(&absolute, 0.9)?,
            max_ape_pct: *absolute.last()?,
            bias_pct: median(errors)?,
        })
    }
}

/// Returns Pearson's correlation of pairs; `None` if either value is constant.
///
/// # Formula
/// `Σ (x − x̄)(y − ȳ) / √(Σ (x − x̄)² · Σ (y − ȳ)²)`.
pub fn pearson(pairs: &[(f64, f64)]) -> Option<f64> {
    let count = pairs.len() as f64;
    let (sum_x, sum_y) = pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0, y + pair.1));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (mut both, mut squares_x, mut squares_y) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        let (x, y) = (x - mean_x, y - mean_y);
        both += x * y;
        squares_x += x * x;
        squares_y += y * y;
    }
    // Equal values differ from their mean by rounding alone.
    let varies = |squares: f64, mean: f64| squares.sqrt() > 1e-12 * mean.abs() * count;
    let r = both / (squares_x.sqrt() * squares_y.sqrt());
    (varies(squares_x, mean_x) && varies(squares_y, mean_y)).then(|| r.clamp(-1.0, 1.0))
}

/// Returns Spearman's correlation of pairs, which is Pearson's of their ranks; `None` if either value is constant.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let ranked: Vec<(f64, f64)> = ranks(&x).into_iter().zip(ranks(&y)).collect();
    pearson(&ranked)
}

/// The rank of each value, from 0; equal values share their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let rank = first as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|at| ranks[*at] = rank);
        first += equal.len();
    }
    ranks
}

/// Returns the coefficients of `targets ≈ rows · coefficients` that minimise `Σ weight·residual²` and are not negative;
/// `None` without rows.
///
/// # Formula
/// At the optimum the positive coefficients solve the unconstrained problem on their own columns (Karush, Kuhn, Tucker).
/// Every set of columns is tried, so `N` should be small. Among equal residuals the fewest and first columns win.
pub fn non_negative_least_squares<const N: usize>(
    rows: &[[f64; N]],
    targets: &[f64],
    weights: &[f64],
) -> Option<[f64; N]> {
    if rows.is_empty() {
        return None;
    }
    let roots: Vec<f64> = weights.iter().map(|weight| weight.sqrt()).collect();
    let target = DVector::from_iterator(rows.len(), targets.iter().zip(&roots).map(|(target, root)| target * root));
    let column =
        |index: usize| DVector::from_iterator(rows.len(), rows.iter().zip(&roots).map(|(row, root)| row[index] * root));
    let columns: Vec<DVector<f64>> = (0..N).map(column).collect();
    let mut best = ([0.0; N], target.norm_squared());
    for set in column_sets::<N>() {
        if set.len() > rows.len() || set.iter().any(|index| columns[*index].norm() <= 0.0) {
            continue;
        }
        // The lengths of columns differ by orders of magnitude, so each is scaled to 1.
        let scaled: Vec<DVector<f64>> = set.iter().map(|index| columns[*index].normalize()).collect();
        let matrix = DMatrix::from_columns(&scaled);
        let Ok(solution) = matrix.clone().svd(true, true).solve(&target, 1e-9) else { continue };
        if solution.iter().any(|value| *value < 0.0 || !value.is_finite()) {
            continue;
        }
        let residual = (matrix * &solution - &target).norm_squared();
        if residual < best.1 - 1e-12 {
            let mut coefficients = [0.0; N];
            for (index, value) in set.iter().zip(solution.iter()) {
                coefficients[*index] = value / columns[*index].norm();
            }
            best = (coefficients, residual);
        }
    }
    Some(best.0)
}

/// Every non-empty set of columns, smaller sets first and each size in ascending order.
fn column_sets<const N: usize>() -> Vec<Vec<usize>> {
    let members = |bits: u32| (0..N).filter(|index| bits >> index & 1 == 1).collect::<Vec<usize>>();
    let mut sets: Vec<Vec<usize>> = (1..1u32 << N).map(members).collect();
    sets.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_ranks_as_in_numpy() {
        // Ranks of 4 values: 0.5 × 3 = 1.5, 0.9 × 3 = 2.7.
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.5), Some(3.0));
        assert!((quantile(&values, 0.9).unwrap() - 6.8).abs() < 1e-12);
        assert_eq!(quantile(&values, 1.0), Some(8.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn medians_are_midpoints_and_observed_ones_are_values() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 8.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0, 8.0]), Some(4.0));
        assert_eq!(median(Vec::new()), None);
        assert_eq!(observed_quantile(&mut [4.0, 1.0, 2.0, 8.0], 0.5), Some(4.0));
        assert_eq!(observed_quantile(&mut [4.0, 1.0, 8.0], 0.5), Some(4.0));
        assert_eq!(observed_quantile(&mut [4.0, 1.0], 1.0), Some(4.0));
        assert_eq!(observed_quantile(&mut [], 0.5), None);
    }

    #[test]
    fn a_robust_deviation_ignores_outliers_and_values_that_are_not_finite() {
        // Distances from the median 20 of 0 to 40: half of them are at most 10.
        let mut values: Vec<f64> = (0..41).map(f64::from).collect();
        assert!((robust_sd(values.clone()) - 14.826).abs() < 1e-9);
        values[40] = 1e9;
        values.push(f64::NAN);
        assert!((robust_sd(values) - 14.826).abs() < 1e-9);
        assert!(robust_sd(Vec::new()).abs() <= 0.0);
    }

    #[test]
    fn errors_are_relative_to_the_measured_value() {
        let summary = ErrorSummary::of([90.0, 100.0, 130.0].map(|predicted| (100.0, predicted))).unwrap();
        assert!((summary.mape_pct - 40.0 / 3.0).abs() < 1e-9);
        assert!((summary.median_ape_pct - 10.0).abs() < 1e-9);
        assert!((summary.p90_ape_pct - 26.0).abs() < 1e-9);
        assert!((summary.max_ape_pct - 30.0).abs() < 1e-9);
        assert!(summary.bias_pct.abs() < 1e-9);
        assert_eq!(ErrorSummary::of([]), None);
        assert_eq!(ErrorSummary::of([(1.0, 1.0), (1.0, f64::NAN)]), None);
    }

    #[test]
    fn correlations_by_hand() {
        // Deviations of the first values: -1, 0, 1; of the second ones: -1, 1, 0. Σ = 1, Σ² = 2 and 2.
        assert!((pearson(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]).unwrap() - 0.5).abs() < 1e-9);
        assert!((pearson(&[(1.0, 6.0), (2.0, 4.0), (3.0, 2.0)]).unwrap() + 1.0).abs() < 1e-9);
        for pairs in
            [&[][..], &[(0.1, 3.3)], &[(0.1, 1.0), (0.1, 2.0), (0.1, 3.0)], &[(1.0, 0.1), (2.0, 0.1), (3.0, 0.1)]]
        {
            assert_eq!(pearson(pairs), None, "{pairs:?}");
        }
    }

    #[test]
    fn coefficients_are_never_negative() {
        // The unconstrained line through these falls: y = 3 − x. The best without a negative slope is the mean.
        let rows = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 2.0, 0.0]];
        let found = non_negative_least_squares(&rows, &[3.0, 2.0, 1.0], &[1.0; 3]).unwrap();
        assert!((found[0] - 2.0).abs() < 1e-9 && found[1] <= 0.0 && found[2] <= 0.0, "{found:?}");
        let found = non_negative_least_squares(&rows, &[-1.0, -1.0, -1.0], &[1.0; 3]).unwrap();
        assert!(found.iter().all(|coefficient| coefficient.abs() <= 0.0), "{found:?}");
        assert_eq!(non_negative_least_squares::<3>(&[], &[], &[]), None);
    }

    #[test]
    fn weights_count_rows() {
        // A row of weight 3 counts as three rows: (3 · 2 + 6) / 4.
        let found = non_negative_least_squares(&[[1.0], [1.0]], &[2.0, 6.0], &[3.0, 1.0]).unwrap();
        assert!((found[0] - 3.0).abs() < 1e-9, "{found:?}");
    }
}
