//! Pairs of runs whose tails are predicted in the wrong order.

use serde::Serialize;

use crate::evaluate::measured::WHOLE_RUN;
use crate::evaluate::metric::{Latency, Metric, Statistic};
use crate::evaluate::report::{Baseline, CaseResult, MetricRow};

/// Pairs of runs in the wrong order by one predictor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inversions {
    /// The figure that runs are ordered by.
    pub metric: Metric,
    /// The baseline; `None` for the prediction.
    pub predictor: Option<Baseline>,
    /// Pairs whose measured figures differ.
    pub pairs: usize,
    /// Those in the wrong order.
    pub inverted: usize,
    /// Pairs whose predicted 90 % intervals do not overlap.
    pub disjoint_pairs: usize,
    /// Those in the wrong order.
    pub disjoint_inverted: usize,
}

/// Compares all pairs of runs by the p99 of `latency`; `None` where no run has it.
pub(super) fn inversions(runs: &[CaseResult], latency: Latency, predictor: Option<Baseline>) -> Option<Inversions> {
    let metric = Metric { latency, statistic: Statistic::P99 };
    let row = |run: &'_ CaseResult| -> Option<(f64, f64, f64, f64)> {
        let is_it = |row: &&MetricRow| row.stage == WHOLE_RUN && row.metric == metric;
        let row = run.metrics.iter().find(is_it)?;
        let predicted_ms = predictor.map_or(Some(row.predicted_ms), |of| row.baselines.get(&of).copied())?;
        Some((row.measured_ms, predicted_ms, row.lower_ms, row.upper_ms))
    };
    let rows: Vec<_> = runs.iter().filter_map(row).collect();
    let mut found = Inversions { metric, predictor, pairs: 0, inverted: 0, disjoint_pairs: 0, disjoint_inverted: 0 };
    for (index, one) in rows.iter().enumerate() {
        for other in rows.iter().skip(index + 1) {
            let measured = one.0.total_cmp(&other.0);
            if measured.is_eq() {
                continue;
            }
            let is_inverted = one.1.total_cmp(&other.1) != measured;
            let are_disjoint = one.3 < other.2 || other.3 < one.2;
            found.pairs += 1;
            found.inverted += usize::from(is_inverted);
            found.disjoint_pairs += usize::from(are_disjoint);
            found.disjoint_inverted += usize::from(are_disjoint && is_inverted);
        }
    }
    (!rows.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::fold::Labels;
    use ridgepoint::correction::CorrectionInfo;

    fn run(measured_ms: f64, predicted_ms: f64, half_ms: f64) -> CaseResult {
        let metric = Metric { latency: Latency::E2e, statistic: Statistic::P99 };
        let mut row = MetricRow::new(WHOLE_RUN, metric, measured_ms, predicted_ms);
        (row.lower_ms, row.upper_ms) = (predicted_ms - half_ms, predicted_ms + half_ms);
        row.baselines.insert(Baseline::IdealRoofline, -predicted_ms);
        CaseResult {
            labels: Labels::default(),
            correction: CorrectionInfo::of(None),
            metrics: vec![row],
            notes: Vec::new(),
            trace: None,
        }
    }

    #[test]
    fn pairs_in_the_wrong_order_are_counted_and_those_with_disjoint_intervals_apart() {
        // 10 and 20 are in the wrong order within their intervals, 10 and 30 beyond them; 20 and 30 are in order.
        let runs = [run(10.0, 25.0, 2.0), run(20.0, 22.0, 2.0), run(30.0, 22.5, 0.1)];
        let found = inversions(&runs, Latency::E2e, None).expect("three runs");
        assert_eq!((found.pairs, found.inverted, found.disjoint_pairs, found.disjoint_inverted), (3, 2, 1, 1));
        let baseline = inversions(&runs, Latency::E2e, Some(Baseline::IdealRoofline)).expect("three runs");
        assert_eq!(baseline.inverted, 1);
        assert_eq!(inversions(&runs, Latency::Ttft, None), None);
    }
}
