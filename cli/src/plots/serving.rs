//! The plots of `evaluate serving` and `evaluate closed-loop`.

use std::collections::BTreeMap;

use ridgepoint_lab::evaluate::comparison::Evaluation;
use ridgepoint_lab::evaluate::measured::WHOLE_RUN;
use ridgepoint_lab::evaluate::metric::Metric;

use super::canvas::Series;
use super::scatter::predicted_over_measured;
use super::{Figure, sorted_out};

/// All plots, in a stable order, and what could not be drawn; `kind` begins their files' names.
pub fn figures(evaluation: &Evaluation, kind: &str) -> (Vec<Figure>, Vec<String>) {
    let runs = &evaluation.experiments;
    let mut by_metric: BTreeMap<Metric, Vec<(f64, f64)>> = BTreeMap::new();
    for row in runs.iter().flat_map(|run| &run.metrics).filter(|row| row.stage == WHOLE_RUN) {
        by_metric.entry(row.metric).or_default().push((row.measured_ms, row.predicted_ms));
    }
    let series = by_metric.into_iter().map(|(metric, points)| Series { name: metric.to_string(), points }).collect();
    let title = "Whole runs: predicted and measured time";
    sorted_out(vec![(format!("{kind}-predicted-over-measured.svg"), predicted_over_measured(title, "ms", series))])
}
