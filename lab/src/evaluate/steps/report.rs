//! What judging steps says, as tables and JSON show it. Uses `score`, `split`, `window`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::score::Scores;
use super::split::StepSplit;
use super::window::Point;
use crate::evaluate::comparison::Skipped;
use crate::ingest::Dropped;

/// A simpler way to predict, judged on the same windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepBaseline {
    /// The run's own correction, where one fitted anew is judged.
    GivenCorrection,
    /// Calibrated tables without a correction.
    CalibratedRoofline,
    /// Datasheet peaks.
    IdealRoofline,
    /// A line in prompt tokens and decodes, fitted on the training rows.
    BlackBox,
    /// Ridge regression on aggregates, fitted on the training rows.
    Ridge,
}

impl StepBaseline {
    /// All of them.
    pub const ALL: [StepBaseline; 5] = [
        StepBaseline::GivenCorrection,
        StepBaseline::CalibratedRoofline,
        StepBaseline::IdealRoofline,
        StepBaseline::BlackBox,
        StepBaseline::Ridge,
    ];
}

/// A window as it was judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JudgedWindow {
    /// Measured and predicted.
    pub point: Point,
    /// Mean number of requests in its steps.
    pub requests: f64,
}

/// A run, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepExperiment {
    /// Name of the run.
    pub name: String,
    /// The model, by its short name.
    pub model: String,
    /// The GPU, by its short name.
    pub hardware: String,
    /// GPUs that share every layer.
    pub tensor_parallel_size: u32,
    /// Name of the workload, where the trace says.
    pub workload: Option<String>,
    /// The correction of the prediction; `None` for calibrated tables alone.
    pub correction: Option<String>,
    /// Windows judged.
    pub windows: usize,
    /// Rows judged.
    pub rows: usize,
    /// Rows of the run without a time or requests, by reason.
    pub dropped: Dropped,
    /// The prediction.
    pub metrics: Scores,
    /// Simpler predictions.
    pub baselines: BTreeMap<StepBaseline, Scores>,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
    /// The windows, in the order of time.
    #[serde(skip)]
    pub judged: Vec<JudgedWindow>,
    /// Measured and predicted time of every judged step that was sampled with the one after it, µs.
    #[serde(skip)]
    pub single_us: Vec<(f64, f64)>,
    /// What the baselines say of the windows.
    #[serde(skip)]
    pub baseline_points: BTreeMap<StepBaseline, Vec<Point>>,
}

/// All windows of all runs together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepSummary {
    /// Runs.
    pub experiments: usize,
    /// Windows judged.
    pub windows: usize,
    /// Rows judged.
    pub rows: usize,
    /// Rows without a time or requests, by reason.
    pub dropped: Dropped,
    /// The prediction.
    pub metrics: Scores,
    /// Simpler predictions that every run has.
    pub baselines: BTreeMap<StepBaseline, Scores>,
}

/// Which rows are judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitReport {
    /// The split.
    pub by: StepSplit,
    /// Share of a run's time from which rows are judged, in a temporal split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge_from: Option<f64>,
    /// Rows of a window.
    pub window: usize,
    /// What is judged and what is learned from, in words.
    pub judged: String,
}

impl SplitReport {
    /// Of a split.
    pub fn new(split: StepSplit, window: usize) -> Self {
        let judge_from = match split {
            StepSplit::Temporal { judge_from } => Some(judge_from),
            _ => None,
        };
        SplitReport { by: split, judge_from, window, judged: split.in_words() }
    }
}

/// Everything that was judged together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepEvaluation {
    /// Runs in order.
    pub experiments: Vec<StepExperiment>,
    /// All of them together.
    pub summary: StepSummary,
    /// Which rows are judged.
    pub split: SplitReport,
    /// Runs that were not judged.
    pub skipped: Vec<Skipped>,
    /// What to know of all of it.
    pub notes: Vec<String>,
}

impl StepSummary {
    /// Of runs; `None` without any.
    pub fn of(experiments: &[StepExperiment]) -> Option<Self> {
        let mut dropped = Dropped::default();
        experiments.iter().for_each(|of| dropped.merge(&of.dropped));
        let points: Vec<Point> = experiments.iter().flat_map(|of| of.judged.iter().map(|of| of.point)).collect();
        let pooled = |baseline: StepBaseline| {
            let of_each: Option<Vec<&Vec<Point>>> =
                experiments.iter().map(|of| of.baseline_points.get(&baseline)).collect();
            let points: Vec<Point> = of_each?.into_iter().flatten().copied().collect();
            Some((baseline, Scores::of(&points)?))
        };
        Some(StepSummary {
            experiments: experiments.len(),
            windows: points.len(),
            rows: experiments.iter().map(|of| of.rows).sum(),
            dropped,
            metrics: Scores::of(&points)?,
            baselines: StepBaseline::ALL.into_iter().filter_map(pooled).collect(),
        })
    }
}
