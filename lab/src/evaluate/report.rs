//! The result of an evaluation: measured and predicted values, errors by metric, and the runs that could not be judged.
//! Serving runs, closed loops and traces of steps share it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::fold::{GroupBy, Labels};
use super::measured::WHOLE_RUN;
use super::metric::{Latency, Metric, predicted_ms};
use crate::ingest::Dropped;
use crate::stats::{ErrorSummary, error_pct, pearson};
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::{Correction, Error, Result};
use ridgepoint_replay::{Metrics, Spread};

/// A simpler predictor that is judged on the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// The correction that was given, if the judged one is fitted anew.
    GivenCorrection,
    /// Calibrated tables and the default host overheads, if the prediction is corrected.
    CalibratedRoofline,
    /// The textbook roofline: datasheet peaks, and a host without overhead.
    IdealRoofline,
    /// A linear model of new prompt tokens and decodes, fitted on training runs ([`super::black_box`]).
    BlackBox,
    /// The prediction with all step times scaled by one factor, so that the mean time from first to last token is the measured one.
    ScaledStepTimes,
    /// The prediction times one factor for all rows of its curve, the servers that differ in the number of requests in flight alone: its
    /// error is that of the curve's shape.
    ScaledCurve,
    /// A straight line in the number of requests in flight through the measured times of the curve's other rows.
    CurveLine,
    /// The prediction without `max_num_seqs` and `max_num_batched_tokens`: no request waits for others.
    NoLimits,
    /// The prediction without prefix caching: every prompt is computed whole.
    NoPrefixCaching,
    /// The prediction with sixteen times the KV blocks, so that preemption and eviction hardly occur.
    NoPreemption,
    /// The prediction without KV blocks in host memory, for servers that have some.
    NoKvOffload,
    /// The prediction without the disk behind the host's tier, for servers that have one.
    NoKvDisk,
    /// The prediction with instant copies of KV blocks between GPU and host, for servers that make some.
    NoKvTransferTime,
    /// The prediction without asynchronous scheduling: no step is scheduled while another runs.
    NoAsyncScheduling,
    /// The prediction without the delay from sending to the engine's queue.
    NoQueueing,
    /// The prediction with an engine's thread that takes no time, neither by step nor by waiting, running or preempted request.
    NoScheduling,
    /// The prediction without the delay from a step's end until the client has its token.
    NoOutputProcessing,
    /// What is left without these three: the steps, and the waits that they cause.
    NoHostOverhead,
}

impl Baseline {
    /// The predictions with one component replaced.
    pub const REPLACED: [Baseline; 12] = [
        Baseline::ScaledStepTimes,
        Baseline::NoLimits,
        Baseline::NoPrefixCaching,
        Baseline::NoPreemption,
        Baseline::NoKvOffload,
        Baseline::NoKvDisk,
        Baseline::NoKvTransferTime,
        Baseline::NoAsyncScheduling,
        Baseline::NoQueueing,
        Baseline::NoScheduling,
        Baseline::NoOutputProcessing,
        Baseline::NoHostOverhead,
    ];
}

/// The name that JSON has too.
impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A measured value and its predictions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricRow {
    /// Stage of the load. It is -1 for the whole run, and for windows of steps.
    pub stage: i32,
    /// The metric.
    pub metric: Metric,
    /// Measured value, ms.
    pub measured_ms: f64,
    /// Predicted value, ms.
    pub predicted_ms: f64,
    /// Lower end of the prediction's 90 % interval, ms.
    pub lower_ms: f64,
    /// Upper end of the prediction's 90 % interval, ms.
    pub upper_ms: f64,
    /// `|predicted − measured| / measured`, percent.
    pub ape_pct: f64,
    /// `(predicted − measured) / measured`, percent: positive if the prediction is too long.
    pub error_pct: f64,
    /// Predictions of the baselines, ms.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<Baseline, f64>,
}

impl MetricRow {
    /// A row with its errors and an empty interval; `measured_ms` must be above 0.
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

    /// The row with the interval of a replay's spread. The tail of a latency has the interval of its mean.
    #[must_use]
    pub fn within(mut self, spread: &Spread) -> Self {
        (self.lower_ms, self.upper_ms) = match self.metric.latency {
            Latency::Ttft => spread.of_ttft(self.predicted_ms),
            Latency::E2e => spread.of_e2e(self.predicted_ms),
            _ => spread.of_steps(self.predicted_ms),
        };
        self
    }
}

/// A judged run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseResult {
    /// What was run.
    #[serde(flatten)]
    pub labels: Labels,
    /// The correction of the prediction.
    pub correction: CorrectionInfo,
    /// A row per measured value.
    pub metrics: Vec<MetricRow>,
    /// Remarks on the rows.
    pub notes: Vec<String>,
    /// For a trace of steps: its rows.
    #[serde(flatten)]
    pub trace: Option<TraceResult>,
}

impl CaseResult {
    /// Adds the values of a baseline's replay to the rows.
    pub(super) fn add_baseline(&mut self, baseline: Baseline, metrics: &Metrics) {
        for row in &mut self.metrics {
            let predicted_ms = predicted_ms(metrics, u32::try_from(row.stage).ok(), row.metric);
            row.baselines.extend(predicted_ms.map(|ms| (baseline, ms)));
        }
    }
}

/// The judged part of a trace of steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceResult {
    /// Sampled steps that were judged.
    pub rows: usize,
    /// Sampled steps without a time or requests, by reason.
    pub dropped: Dropped,
    /// Measured and predicted time of every judged step whose next step was sampled too, ms.
    #[serde(skip)]
    pub single_steps_ms: Vec<(f64, f64)>,
}

/// A run that could not be judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Name of the run.
    pub id: String,
    /// The reason.
    pub reason: String,
}

impl From<(String, Error)> for Skipped {
    fn from((id, error): (String, Error)) -> Self {
        Skipped { id, reason: error.to_string() }
    }
}

/// Separates usable runs from refused ones, in their order.
pub(super) fn sort_out<T, R: From<(String, Error)>>(
    runs: impl Iterator<Item = (String, Result<T>)>,
) -> (Vec<T>, Vec<R>) {
    let (mut usable, mut refused) = (Vec::new(), Vec::new());
    for (name, run) in runs {
        run.map_or_else(|error| refused.push((name, error).into()), |run| usable.push(run));
    }
    (usable, refused)
}

/// Errors of rows of one metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricSummary {
    /// Number of rows.
    pub rows: usize,
    /// Median absolute error, percent.
    pub median_ape_pct: f64,
    /// Mean absolute error, percent.
    pub mean_ape_pct: f64,
    /// 90th percentile of the absolute error, percent.
    pub p90_ape_pct: f64,
    /// Largest absolute error, percent.
    pub max_ape_pct: f64,
    /// Median signed error, percent: positive if predictions are too long.
    pub bias_pct: f64,
    /// Pearson's correlation of predicted and measured values; `None` if either is constant.
    pub pearson_r: Option<f64>,
    /// Share of rows whose 90 % interval contains the measured value, percent. Baselines have no intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage_pct: Option<f64>,
}

impl MetricSummary {
    /// Errors of the prediction or of a baseline in a metric; `None` without rows that have it, or if a value is not finite.
    pub fn of(rows: &[&MetricRow], metric: Metric, baseline: Option<Baseline>) -> Option<Self> {
        let rows = || rows.iter().filter(|row| row.metric == metric);
        let predicted_ms = |row: &MetricRow| match &baseline {
            None => Some(row.predicted_ms),
            Some(baseline) => row.baselines.get(baseline).copied(),
        };
        let pairs: Vec<(f64, f64)> = rows().filter_map(|row| Some((row.measured_ms, predicted_ms(row)?))).collect();
        let covered = rows().filter(|row| (row.lower_ms..=row.upper_ms).contains(&row.measured_ms)).count();
        let ErrorSummary { rows, mape_pct, median_ape_pct, p90_ape_pct, max_ape_pct, bias_pct } =
            ErrorSummary::of(pairs.iter().copied())?;
        Some(MetricSummary {
            rows,
            median_ape_pct,
            mean_ape_pct: mape_pct,
            p90_ape_pct,
            max_ape_pct,
            bias_pct,
            pearson_r: pearson(&pairs),
            coverage_pct: baseline.is_none().then(|| 100.0 * covered as f64 / rows as f64),
        })
    }
}

/// A summary per metric.
pub type Summary = BTreeMap<Metric, MetricSummary>;

/// Errors by metric over rows, of the prediction or of a baseline.
fn summarise(rows: &[&MetricRow], baseline: Option<Baseline>) -> Summary {
    let metrics: BTreeSet<Metric> = rows.iter().map(|row| row.metric).collect();
    metrics.into_iter().filter_map(|metric| Some((metric, MetricSummary::of(rows, metric, baseline)?))).collect()
}

/// The summary of a group of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Runs in it.
    pub experiments: usize,
    /// Errors by metric over the whole runs of the group.
    pub summary: Summary,
    /// `summary` of the baselines.
    pub baselines: BTreeMap<Baseline, Summary>,
}

impl Group {
    fn of(runs: &[&CaseResult]) -> Self {
        let rows: Vec<&MetricRow> =
            runs.iter().flat_map(|of| &of.metrics).filter(|row| row.stage == WHOLE_RUN).collect();
        let baselines: BTreeSet<Baseline> = rows.iter().flat_map(|row| row.baselines.keys().copied()).collect();
        Group {
            experiments: runs.len(),
            summary: summarise(&rows, None),
            baselines: baselines.into_iter().map(|of| (of, summarise(&rows, Some(of)))).collect(),
        }
    }
}

/// Runs summed up group by group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Split {
    /// The label that the runs of a group share.
    pub by: GroupBy,
    /// Groups by name.
    pub groups: BTreeMap<String, Group>,
}

/// Everything that was judged together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvaluationReport {
    /// Runs in order.
    pub experiments: Vec<CaseResult>,
    /// Errors by metric over whole runs (stage -1).
    pub summary: Summary,
    /// Errors by metric over single stages.
    pub summary_by_stage: Summary,
    /// `summary` of the baselines.
    pub baselines: BTreeMap<Baseline, Summary>,
    /// Summaries by group, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// Runs that could not be judged.
    pub skipped: Vec<Skipped>,
    /// Remarks on the whole evaluation.
    pub notes: Vec<String>,
}

impl EvaluationReport {
    /// Sums up.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` without a run, with the reasons.
    pub fn new(experiments: Vec<CaseResult>, skipped: Vec<Skipped>) -> Result<Self> {
        if experiments.is_empty() {
            let reasons = skipped.iter().map(|one| format!("{}: {}", one.id, one.reason)).collect();
            return Err(Error::invalid("nothing could be judged", reasons));
        }
        let all = Group::of(&experiments.iter().collect::<Vec<_>>());
        let stages = experiments.iter().flat_map(|of| &of.metrics).filter(|row| row.stage != WHOLE_RUN);
        Ok(EvaluationReport {
            summary: all.summary,
            summary_by_stage: summarise(&stages.collect::<Vec<_>>(), None),
            baselines: all.baselines,
            split: None,
            notes: Vec::new(),
            experiments,
            skipped,
        })
    }

    /// The report with summaries by group, if asked for.
    #[must_use]
    pub fn split_by(mut self, by: Option<GroupBy>) -> Self {
        let Some(by) = by else { return self };
        let mut members: BTreeMap<String, Vec<&CaseResult>> = BTreeMap::new();
        for of in &self.experiments {
            members.entry(of.labels.group(by).into_owned()).or_default().push(of);
        }
        let groups = members.into_iter().map(|(name, members)| (name, Group::of(&members))).collect();
        self.split = Some(Split { by, groups });
        self
    }
}

/// The remark that a correction was fitted on the model that it is judged by.
pub(super) fn in_sample(correction: &Correction, model: &str) -> Option<String> {
    let is_in_sample = correction.source.models.iter().any(|fitted| fitted == model);
    is_in_sample.then(|| format!("correction {} was fitted on this model: not a test of it", correction.name))
}
