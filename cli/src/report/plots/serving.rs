//! The plots of `evaluate serving` and `evaluate closed-loop`. Uses `scatter`, `bars`.

use std::collections::BTreeMap;

use ridgepoint_lab::evaluate::comparison::{Baseline, Evaluation, ExperimentReport, MetricRow, error_pct};
use ridgepoint_lab::evaluate::measured::WHOLE_RUN;
use ridgepoint_lab::evaluate::metric::Metric;

use super::bars::{Bars, bars};
use super::canvas::Series;
use super::scatter::predicted_over_measured;
use super::steps::sorted_out;
use super::{Drawn, Figure};

/// All plots, in a stable order, and what could not be drawn; `kind` begins their files' names.
pub fn figures(evaluation: &Evaluation, kind: &str) -> (Vec<Figure>, Vec<String>) {
    let runs = &evaluation.experiments;
    let mut by_metric: BTreeMap<Metric, Vec<(f64, f64)>> = BTreeMap::new();
    for row in runs.iter().flat_map(|run| &run.metrics).filter(|row| row.stage == WHOLE_RUN) {
        by_metric.entry(row.metric).or_default().push((row.measured_ms, row.predicted_ms));
    }
    let metrics: Vec<Metric> = by_metric.keys().copied().collect();
    let series = by_metric.into_iter().map(|(metric, points)| Series { name: metric.to_string(), points }).collect();
    let title = "Whole runs: predicted and measured time";
    let mut drawn: Vec<(String, Drawn)> =
        vec![(format!("{kind}-predicted-over-measured.svg"), predicted_over_measured(title, "ms", series))];
    for metric in metrics.into_iter().filter(|metric| is_mean(*metric)) {
        drawn.push((format!("{kind}-error-by-experiment-{metric}.svg"), errors(runs, metric)));
    }
    sorted_out(drawn)
}

fn is_mean(metric: Metric) -> bool {
    metric.statistic == ridgepoint_lab::evaluate::metric::Statistic::Mean
}

fn errors(runs: &[ExperimentReport], metric: Metric) -> Drawn {
    let group = |run: &ExperimentReport| {
        let row = run.metrics.iter().find(|row| row.stage == WHOLE_RUN && row.metric == metric)?;
        let of =
            |row: &MetricRow, baseline| row.baselines.get(&baseline).map(|ms| error_pct(row.measured_ms, *ms).abs());
        let values = vec![Some(row.ape_pct), of(row, Baseline::IdealRoofline), of(row, Baseline::BlackBox)];
        Some(Bars { name: run.name.clone(), values })
    };
    let groups: Vec<Bars> = runs.iter().filter_map(group).collect();
    let title = format!("Whole runs: absolute error of {metric}");
    bars(&title, "absolute error, %", &["prediction", "ideal roofline", "black box"], &groups)
}
