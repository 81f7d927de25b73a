//! How far predictions of windows are off: errors, correlation, bias, coverage. Uses `window`.

use serde::Serialize;

use super::window::Point;
use crate::evaluate::comparison::{MetricSummary, error_pct};

/// Errors over windows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scores {
    /// Mean absolute error, percent of the measured time.
    pub mape_pct: f64,
    /// Median absolute error, percent.
    pub median_ape_pct: f64,
    /// Pearson's correlation of predicted and measured times; `None` where one of them is constant, or for a single window.
    pub pearson_r: Option<f64>,
    /// Median signed error, percent: above zero where predictions are too long.
    pub bias_pct: f64,
    /// Share of windows whose measured time lies within the 90 % interval, percent; `None` for predictions without one.
    pub coverage_pct: Option<f64>,
}

impl Scores {
    /// Of windows; `None` without any, or where a time is not finite.
    pub fn of(points: &[Point]) -> Option<Self> {
        let errors: Vec<f64> = points.iter().map(|of| error_pct(of.measured_us, of.predicted_us)).collect();
        let summary = MetricSummary::of(&errors)?;
        let is_within = |of: &Point| {
            of.interval_us.map(|(lower_us, upper_us)| lower_us <= of.measured_us && of.measured_us <= upper_us)
        };
        let within: Option<Vec<bool>> = points.iter().map(is_within).collect();
        Some(Scores {
            mape_pct: summary.mean_ape_pct,
            median_ape_pct: summary.median_ape_pct,
            pearson_r: pearson(points),
            bias_pct: summary.bias_pct,
            coverage_pct: within
                .map(|within| 100.0 * within.iter().filter(|of| **of).count() as f64 / points.len() as f64),
        })
    }
}

/// Pearson's r of predicted and measured times.
///
/// # Formula
/// `Σ (p − p̄)(m − m̄) / √(Σ (p − p̄)² · Σ (m − m̄)²)`.
fn pearson(points: &[Point]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_predicted = points.iter().map(|of| of.predicted_us).sum::<f64>() / count;
    let mean_measured = points.iter().map(|of| of.measured_us).sum::<f64>() / count;
    let (mut both, mut predicted, mut measured) = (0.0, 0.0, 0.0);
    for of in points {
        let (p, m) = (of.predicted_us - mean_predicted, of.measured_us - mean_measured);
        both += p * m;
        predicted += p * p;
        measured += m * m;
    }
    // Equal values differ from their mean by rounding alone.
    let is_constant = |squares: f64, mean: f64| squares.sqrt() <= 1e-12 * mean.abs() * count;
    if is_constant(predicted, mean_predicted) || is_constant(measured, mean_measured) {
        return None;
    }
    Some((both / (predicted.sqrt() * measured.sqrt())).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(pairs: &[(f64, f64)]) -> Vec<Point> {
        let point = |(measured_us, predicted_us): &(f64, f64)| Point {
            measured_us: *measured_us,
            predicted_us: *predicted_us,
            interval_us: Some((0.9 * predicted_us, 1.1 * predicted_us)),
        };
        pairs.iter().map(point).collect()
    }

    fn near(found: Option<f64>, expected: f64) {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{found:?}, not {expected}");
    }

    #[test]
    fn errors_are_of_the_measured_time() {
        // +10, -20, +30, 0 %; within a tenth of 110, 160, 390 and 100 lie 100 and 100 alone.
        let scores = Scores::of(&points(&[(100.0, 110.0), (200.0, 160.0), (300.0, 390.0), (100.0, 100.0)])).unwrap();
        near(Some(scores.mape_pct), 15.0);
        near(Some(scores.median_ape_pct), 15.0);
        near(Some(scores.bias_pct), 5.0);
        near(scores.coverage_pct, 50.0);
    }

    #[test]
    fn correlation_by_hand() {
        // Deviations of the measured times: -1, 0, 1; of the predicted ones: -1, 1, 0. Σ = 1, Σ² = 2 and 2.
        near(Scores::of(&points(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)])).unwrap().pearson_r, 0.5);
        near(Scores::of(&points(&[(1.0, 6.0), (2.0, 4.0), (3.0, 2.0)])).unwrap().pearson_r, -1.0);
    }

    #[test]
    fn constants_and_lone_windows_have_no_correlation() {
        for pairs in [&[(0.1, 3.3)][..], &[(0.1, 1.0), (0.1, 2.0), (0.1, 3.0)], &[(1.0, 0.1), (2.0, 0.1), (3.0, 0.1)]] {
            assert_eq!(Scores::of(&points(pairs)).unwrap().pearson_r, None, "{pairs:?}");
        }
        assert_eq!(Scores::of(&[]), None);
    }

    #[test]
    fn predictions_without_an_interval_have_no_coverage() {
        let mut without = points(&[(1.0, 1.0), (2.0, 2.0)]);
        near(Scores::of(&without).unwrap().coverage_pct, 100.0);
        without[1].interval_us = None;
        assert_eq!(Scores::of(&without).unwrap().coverage_pct, None);
    }
}
