//! Measured against predicted: the rows of an experiment, their summaries, and what is written as JSON. Uses `metric`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::measured::WHOLE_RUN;
use super::metric::{Latency, Metric};
use crate::stats::ErrorSummary;
pub use crate::stats::error_pct;
use ridgepoint::internals::correction::Used;
use ridgepoint::replay::Spread;

/// A simpler way to predict, judged beside the prediction on the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// The calibrated roofline with the default host, where the prediction is corrected.
    CalibratedRoofline,
    /// The textbook roofline: datasheet peaks, and a host that takes no time.
    IdealRoofline,
    /// Straight lines fitted on the other experiments ([`super::black_box`]).
    BlackBox,
}

impl Baseline {
    /// All of them, the closest to the prediction first.
    pub const ALL: [Baseline; 3] = [Baseline::CalibratedRoofline, Baseline::IdealRoofline, Baseline::BlackBox];
}

/// One measured figure and what was predicted for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricRow {
    /// Stage of the load; -1 is the whole run.
    pub stage: i32,
    /// Which figure.
    pub metric: Metric,
    /// What clients saw, ms.
    pub measured_ms: f64,
    /// The calibrated roofline, corrected where a correction is on, through the replay, ms.
    pub predicted_ms: f64,
    /// Lower end of the prediction's 90 % interval, ms.
    pub lower_ms: f64,
    /// Upper end of the prediction's 90 % interval, ms.
    pub upper_ms: f64,
    /// `|predicted − measured| / measured`, percent.
    pub ape_pct: f64,
    /// `(predicted − measured) / measured`, percent: above zero where the prediction is too long.
    pub error_pct: f64,
    /// What simpler ways predict, ms.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<Baseline, f64>,
}

impl MetricRow {
    /// A row with its errors, and an interval that is the prediction alone; `measured_ms` must be above 0.
    pub fn new(stage: i32, metric: Metric, measured_ms: f64, predicted_ms: f64) -> Self {
        let error_pct = error_pct(measured_ms, predicted_ms);
        MetricRow {
            stage,
            metric,
            measured_ms,
            predicted_ms,
            lower_ms: predicted_ms,
            upper_ms: predicted_ms,
            ape_pct: error_pct.abs(),
            error_pct,
            baselines: BTreeMap::new(),
        }
    }

    /// The row with the interval that a replay's spread gives. The tail of a latency has the interval of its mean.
    #[must_use]
    pub fn within(mut self, spread: &Spread) -> Self {
        (self.lower_ms, self.upper_ms) = match self.metric.latency {
            Latency::Ttft => spread.of_ttft(self.predicted_ms),
            Latency::E2e | Latency::Itl | Latency::Tpot => spread.of_steps(self.predicted_ms),
        };
        self
    }

    /// Whether the interval holds what was measured.
    pub fn is_covered(&self) -> bool {
        self.lower_ms <= self.measured_ms && self.measured_ms <= self.upper_ms
    }
}

/// One experiment, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExperimentReport {
    /// Its folder's name, or the id of its row.
    pub name: String,
    /// The model, by its short name.
    pub model: String,
    /// The GPU, by its short name.
    pub hardware: String,
    /// GPUs that share every layer.
    pub tensor_parallel_size: u32,
    /// Mean lengths of prompts and outputs, tokens, as `547 in, 248 out`.
    pub workload: String,
    /// Version of the serving engine, where the experiment says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_version: Option<String>,
    /// Which correction the prediction was made with.
    pub correction: Used,
    /// A row per measured figure.
    pub metrics: Vec<MetricRow>,
    /// What to know when reading the rows.
    pub notes: Vec<String>,
}

/// An experiment that could not be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its folder's name, or the id of its row.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// Errors of several rows of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricSummary {
    /// How many rows.
    pub rows: usize,
    /// Median absolute error, percent.
    pub median_ape_pct: f64,
    /// Mean absolute error, percent.
    pub mean_ape_pct: f64,
    /// Largest absolute error, percent.
    pub max_ape_pct: f64,
    /// Median signed error, percent: above zero where predictions are too long.
    pub bias_pct: f64,
    /// Share of rows whose 90 % interval holds what was measured, percent; only the prediction has intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage_pct: Option<f64>,
}

impl MetricSummary {
    /// Of signed errors in percent; `None` where there are none.
    pub fn of(errors_pct: &[f64]) -> Option<Self> {
        let summary = ErrorSummary::of(errors_pct.to_vec())?;
        Some(MetricSummary {
            rows: summary.count,
            median_ape_pct: summary.median_abs_pct,
            mean_ape_pct: summary.mean_abs_pct,
            max_ape_pct: summary.max_abs_pct,
            bias_pct: summary.bias_pct,
            coverage_pct: None,
        })
    }
}

/// A summary per metric.
pub type Summary = BTreeMap<Metric, MetricSummary>;

/// Which rows of an experiment go into a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The whole run, one row per experiment and metric.
    WholeRun,
    /// Single stages, each for itself.
    Stages,
}

/// Errors by metric over experiments, of the prediction or of a baseline.
pub fn summarise<'a>(
    experiments: impl IntoIterator<Item = &'a ExperimentReport>,
    rows: Rows,
    baseline: Option<Baseline>,
) -> Summary {
    let mut errors_pct: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    let mut covered: BTreeMap<Metric, usize> = BTreeMap::new();
    for row in experiments.into_iter().flat_map(|experiment| &experiment.metrics) {
        if (row.stage == WHOLE_RUN) != (rows == Rows::WholeRun) {
            continue;
        }
        let error = match baseline {
            None => Some(row.error_pct),
            Some(baseline) => row.baselines.get(&baseline).map(|ms| error_pct(row.measured_ms, *ms)),
        };
        if let Some(error) = error {
            errors_pct.entry(row.metric).or_default().push(error);
            *covered.entry(row.metric).or_default() += usize::from(row.is_covered());
        }
    }
    let summary = |(metric, errors): (Metric, Vec<f64>)| {
        let share = covered.get(&metric).map(|covered| 100.0 * *covered as f64 / errors.len() as f64);
        let coverage_pct = share.filter(|_| baseline.is_none());
        Some((metric, MetricSummary { coverage_pct, ..MetricSummary::of(&errors)? }))
    };
    errors_pct.into_iter().filter_map(summary).collect()
}

/// Everything that was judged together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Experiments in order.
    pub experiments: Vec<ExperimentReport>,
    /// Errors by metric over experiments, of the whole run (stage -1) of each.
    pub summary: Summary,
    /// Errors by metric over single stages of experiments.
    pub summary_by_stage: Summary,
    /// `summary` of simpler ways to predict.
    pub baselines: BTreeMap<Baseline, Summary>,
    /// What could not be run.
    pub skipped: Vec<Skipped>,
}

impl Evaluation {
    /// Sums up.
    pub fn new(experiments: Vec<ExperimentReport>, skipped: Vec<Skipped>) -> Self {
        let of = |baseline| summarise(&experiments, Rows::WholeRun, Some(baseline));
        let baselines = Baseline::ALL.into_iter().map(|b| (b, of(b)));
        Evaluation {
            summary: summarise(&experiments, Rows::WholeRun, None),
            summary_by_stage: summarise(&experiments, Rows::Stages, None),
            baselines: baselines.filter(|(_, summary)| !summary.is_empty()).collect(),
            experiments,
            skipped,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::evaluate) fn report(name: &str, model: &str, rows: Vec<MetricRow>) -> ExperimentReport {
        ExperimentReport {
            name: name.to_owned(),
            model: model.to_owned(),
            hardware: "h100_sxm".to_owned(),
            tensor_parallel_size: 1,
            workload: "10 in, 5 out".to_owned(),
            backend_version: None,
            correction: Used::of(None),
            metrics: rows,
            notes: Vec::new(),
        }
    }

    fn row(stage: i32, predicted_ms: f64, ideal_ms: f64) -> MetricRow {
        let mut row = MetricRow::new(stage, Metric::E2E_MEAN, 200.0, predicted_ms);
        row.baselines.insert(Baseline::IdealRoofline, ideal_ms);
        row
    }

    #[test]
    fn errors_are_signed_and_relative_to_the_measurement() {
        let row = MetricRow::new(0, Metric::TTFT_MEAN, 50.0, 40.0);
        assert_eq!((row.error_pct, row.ape_pct), (-20.0, 20.0));
    }

    #[test]
    fn the_summary_is_over_whole_runs_and_stages_are_apart() {
        let experiments = vec![
            report("a", "m", vec![row(-1, 220.0, 100.0), row(0, 200.0, 100.0)]),
            report("b", "m", vec![row(-1, 150.0, 120.0), row(0, 260.0, 100.0), row(1, 180.0, 100.0)]),
            report("c", "m", vec![row(-1, 190.0, 160.0)]),
        ];
        let evaluation = Evaluation::new(experiments, Vec::new());
        // Signed errors +10, -25 and -5 %.
        let whole = evaluation.summary[&Metric::E2E_MEAN];
        assert_eq!((whole.rows, whole.median_ape_pct, whole.max_ape_pct, whole.bias_pct), (3, 10.0, 25.0, -5.0));
        assert!((whole.mean_ape_pct - 40.0 / 3.0).abs() < 1e-9);
        // 0, +30 and -10 %.
        let stages = evaluation.summary_by_stage[&Metric::E2E_MEAN];
        assert_eq!((stages.rows, stages.median_ape_pct, stages.bias_pct), (3, 10.0, 0.0));
        // -50, -40 and -20 %.
        let ideal = evaluation.baselines[&Baseline::IdealRoofline][&Metric::E2E_MEAN];
        assert_eq!((ideal.median_ape_pct, ideal.bias_pct), (40.0, -40.0));
        assert!(!evaluation.baselines.contains_key(&Baseline::BlackBox), "no row has it");
    }

    #[test]
    fn json_keys_are_those_of_the_contract() {
        let evaluation = Evaluation::new(vec![report("a", "m", vec![row(-1, 220.0, 100.0)])], Vec::new());
        let json = serde_json::to_value(&evaluation).expect("JSON");
        let row = &json["experiments"][0]["metrics"][0];
        assert_eq!(row["stage"], -1);
        assert_eq!(row["metric"], "e2e_mean");
        assert_eq!((row["measured_ms"].as_f64(), row["predicted_ms"].as_f64()), (Some(200.0), Some(220.0)));
        assert_eq!((row["ape_pct"].as_f64(), row["baselines"]["ideal_roofline"].as_f64()), (Some(10.0), Some(100.0)));
        for key in ["median_ape_pct", "mean_ape_pct", "max_ape_pct"] {
            assert_eq!(json["summary"]["e2e_mean"][key].as_f64(), Some(10.0), "{key}");
        }
        assert_eq!(json["skipped"], serde_json::json!([]));
    }
}
