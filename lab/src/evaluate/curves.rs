//! Curves of closed loops: servers that differ in the number of requests in flight alone.
//!
//! The error of a curve has two parts. One factor for all of its rows takes out the level; the rest is the error of its shape, which is how
//! times grow with the load. A straight line through the curve's other rows is the baseline: it needs measurements, but no simulator.

use std::collections::BTreeMap;

use super::case::Case;
use super::measured::WHOLE_RUN;
use super::metric::Metric;
use super::report::{Baseline, CaseResult};
use crate::stats::non_negative_least_squares;

/// Rows of the shortest curve: with two, one factor or a line through the other row would leave next to nothing to judge.
const FEWEST_ROWS: usize = 3;

/// A row of a curve.
struct CurvePoint {
    result: usize,
    metric: usize,
    concurrency: f64,
    measured_ms: f64,
    predicted_ms: f64,
}

/// Adds the prediction with one factor a curve, and the line through the other rows of the curve, to the rows of curves.
pub(super) fn add_curves(cases: &[&Case], results: &mut [CaseResult]) {
    let mut curves: BTreeMap<(&str, Metric), Vec<CurvePoint>> = BTreeMap::new();
    for (result, (case, of)) in cases.iter().zip(&*results).enumerate() {
        let (Some(curve), [Some(concurrency)]) = (&case.curve, case.concurrency.as_slice()) else { continue };
        for (metric, row) in of.metrics.iter().enumerate().filter(|(_, row)| row.stage == WHOLE_RUN) {
            let (measured_ms, predicted_ms) = (row.measured_ms, row.predicted_ms);
            let point = CurvePoint { result, metric, concurrency: f64::from(*concurrency), measured_ms, predicted_ms };
            curves.entry((curve, row.metric)).or_default().push(point);
        }
    }
    for points in curves.values().filter(|points| points.len() >= FEWEST_ROWS) {
        let factor = factor(points);
        for (at, point) in points.iter().enumerate() {
            let row = results.get_mut(point.result).and_then(|of| of.metrics.get_mut(point.metric));
            let Some(row) = row else { continue };
            row.baselines.insert(Baseline::ScaledCurve, factor * point.predicted_ms);
            row.baselines.extend(line_without(points, at).map(|ms| (Baseline::CurveLine, ms)));
        }
    }
}

/// Geometric mean of measured over predicted times.
fn factor(points: &[CurvePoint]) -> f64 {
    let logarithms: f64 = points.iter().map(|point| (point.measured_ms / point.predicted_ms).ln()).sum();
    (logarithms / points.len() as f64).exp()
}

/// The time at a point on the line `a + b · concurrency` through the others, by least squares of relative errors; neither is negative.
fn line_without(points: &[CurvePoint], left_out: usize) -> Option<f64> {
    let others = || points.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, point)| point);
    let rows: Vec<[f64; 2]> = others().map(|of| [1.0 / of.measured_ms, of.concurrency / of.measured_ms]).collect();
    let ones = vec![1.0; rows.len()];
    let [base_ms, per_request_ms] = non_negative_least_squares(&rows, &ones, &ones)?;
    Some(base_ms + per_request_ms * points.get(left_out)?.concurrency)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[(f64, f64, f64)]) -> Vec<CurvePoint> {
        let point = |(concurrency, measured_ms, predicted_ms): &(f64, f64, f64)| CurvePoint {
            result: 0,
            metric: 0,
            concurrency: *concurrency,
            measured_ms: *measured_ms,
            predicted_ms: *predicted_ms,
        };
        values.iter().map(point).collect()
    }

    #[test]
    fn one_factor_takes_out_the_level_of_a_curve() {
        let doubled = points(&[(1.0, 10.0, 20.0), (8.0, 14.0, 28.0), (64.0, 42.0, 84.0)]);
        assert!((factor(&doubled) - 0.5).abs() < 1e-12);
        // Factors 2 and 1/8 have a geometric mean of 1/2.
        assert!((factor(&points(&[(1.0, 2.0, 1.0), (2.0, 1.0, 8.0)])) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_line_goes_through_the_other_rows() {
        let straight = points(&[(1.0, 11.0, 0.0), (4.0, 14.0, 0.0), (16.0, 99.0, 0.0)]);
        let at = |left_out| line_without(&straight, left_out).unwrap_or(f64::NAN);
        // 10 + 1 · 16, though 99 was measured there.
        assert!((at(2) - 26.0).abs() < 1e-9, "{}", at(2));
        // A line through (1, 11) and (16, 99) is at 11 + 3 · 88/15 = 28.6.
        assert!((at(1) - 28.6).abs() < 1e-9, "{}", at(1));
        // The line through (4, 14) and (16, 99) is below 0 at 0, so that the base stays 0: the slope with the least squares of relative
        // errors is Σ(c/t) / Σ(c/t)².
        let (first, second) = (4.0 / 14.0, 16.0 / 99.0);
        let slope = (first + second) / (first * first + second * second);
        assert!((at(0) - slope).abs() < 1e-9, "{} {slope}", at(0));
    }
}
