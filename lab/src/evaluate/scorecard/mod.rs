//! The scorecard of serving runs: each run by the limits of the fidelity paper, order of the tails, coverage of intervals, groups left
//! out, and the paper's sixteen experiments by name. Uses `report`, `judge`, `fold`.

mod inversions;
mod paper;

use std::collections::BTreeMap;

use serde::Serialize;

use super::fold::GroupBy;
use super::measured::WHOLE_RUN;
use super::metric::{Latency, Metric, Statistic};
use super::report::{Baseline, CaseResult, EvaluationReport, MetricRow, Skipped};
use crate::stats::ErrorSummary;
use inversions::{Inversions, inversions};
use paper::PaperExperiment;

/// A run passes P1 if the error of its mean E2E is at most this, percent.
pub const MAX_E2E_PCT: f64 = 10.0;

/// A run passes P2 if the errors of its mean TTFT and of its mean ITL are at most this, percent.
pub const MAX_TTFT_AND_ITL_PCT: f64 = 15.0;

/// Metrics whose intervals are counted.
const COVERED: [(Latency, Statistic); 7] = [
    (Latency::E2e, Statistic::Mean),
    (Latency::E2e, Statistic::P90),
    (Latency::E2e, Statistic::P99),
    (Latency::Ttft, Statistic::Mean),
    (Latency::Ttft, Statistic::P90),
    (Latency::Ttft, Statistic::P99),
    (Latency::Itl, Statistic::Mean),
];

/// A run by the limits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoredRun {
    /// Name of the run.
    pub name: String,
    /// Short name of the model.
    pub model: String,
    /// Mean lengths of prompts and outputs.
    pub workload: Option<String>,
    /// Signed error of the mean E2E, percent.
    pub e2e_mean_pct: Option<f64>,
    /// Signed error of the mean TTFT, percent.
    pub ttft_mean_pct: Option<f64>,
    /// Signed error of the mean ITL, percent. It is that of E2E − TTFT, as clients count output tokens differently.
    pub itl_mean_pct: Option<f64>,
    /// The E2E is within its limit.
    pub passed_p1: bool,
    /// TTFT and ITL are within theirs.
    pub passed_p2: bool,
}

impl ScoredRun {
    fn of(run: &CaseResult) -> Self {
        let row = |metric: Metric| run.metrics.iter().find(|row| row.stage == WHOLE_RUN && row.metric == metric);
        let (e2e, ttft) = (row(Metric::E2E_MEAN), row(Metric::TTFT_MEAN));
        let error_pct = |row: Option<&MetricRow>| row.map(|row| row.error_pct);
        // Clients may count other output tokens than were generated; both times are divided by the same number.
        let decoding_pct = e2e.zip(ttft).map(|(e2e, ttft)| {
            let measured_ms = e2e.measured_ms - ttft.measured_ms;
            100.0 * ((e2e.predicted_ms - ttft.predicted_ms) / measured_ms - 1.0)
        });
        let decoding_pct = decoding_pct.filter(|pct| pct.is_finite());
        let (e2e_mean_pct, ttft_mean_pct) = (error_pct(e2e), error_pct(ttft));
        let within = |pct: Option<f64>, limit: f64| pct.is_some_and(|pct| pct.abs() <= limit);
        ScoredRun {
            name: run.labels.name.clone(),
            model: run.labels.model.clone(),
            workload: run.labels.workload.clone(),
            e2e_mean_pct,
            ttft_mean_pct,
            itl_mean_pct: decoding_pct,
            passed_p1: within(e2e_mean_pct, MAX_E2E_PCT),
            passed_p2: within(ttft_mean_pct, MAX_TTFT_AND_ITL_PCT) && within(decoding_pct, MAX_TTFT_AND_ITL_PCT),
        }
    }
}

/// Errors of runs that a correction has not seen, or of a part of the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Errors {
    /// What was left out, or the part.
    pub of: String,
    /// Runs.
    pub runs: usize,
    /// Absolute errors of the mean E2E.
    pub e2e_mean: Option<ErrorSummary>,
    /// Of the mean TTFT.
    pub ttft_mean: Option<ErrorSummary>,
    /// Of the p99 of TTFT.
    pub ttft_p99: Option<ErrorSummary>,
    /// Of the mean ITL.
    pub itl_mean: Option<ErrorSummary>,
}

impl Errors {
    /// Sums up the whole runs of a report.
    pub fn of(what: &str, runs: &[&CaseResult]) -> Self {
        let summary = |latency, statistic| {
            let metric = Metric { latency, statistic };
            let rows = runs.iter().flat_map(|run| &run.metrics);
            let rows = rows.filter(|row| row.stage == WHOLE_RUN && row.metric == metric);
            ErrorSummary::of(rows.map(|row| (row.measured_ms, row.predicted_ms)))
        };
        Errors {
            of: what.to_owned(),
            runs: runs.len(),
            e2e_mean: summary(Latency::E2e, Statistic::Mean),
            ttft_mean: summary(Latency::Ttft, Statistic::Mean),
            ttft_p99: summary(Latency::Ttft, Statistic::P99),
            itl_mean: summary(Latency::Itl, Statistic::Mean),
        }
    }
}

/// Kernels of a GPU predicted by another GPU's tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transfer {
    /// GPU whose tables were borrowed.
    pub from: String,
    /// GPU whose rows were predicted.
    pub to: String,
    /// Kind of kernel.
    pub operator: String,
    /// Absolute errors; `None` where no row was measured.
    pub errors: Option<ErrorSummary>,
}

/// How often measured figures are within their 90 % interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Coverage {
    /// The figure.
    pub metric: Metric,
    /// Whole runs that have it.
    pub runs: usize,
    /// Share of these runs whose measured figure is within the interval, percent.
    pub covered_pct: f64,
}

/// Everything on the card.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scorecard {
    /// How the judged corrections were made.
    pub judged: String,
    /// A line a run.
    pub experiments: Vec<ScoredRun>,
    /// Runs that could not be judged.
    pub skipped: Vec<Skipped>,
    /// Order of the tails, by metric and predictor.
    pub inversions: Vec<Inversions>,
    /// Errors where each group was left out of the fit.
    pub left_out: Vec<Errors>,
    /// Kernels by another GPU's tables.
    pub transfers: Vec<Transfer>,
    /// Errors by the number format of the weights.
    pub formats: Vec<Errors>,
    /// Coverage of 90 % intervals.
    pub coverage: Vec<Coverage>,
    /// The sixteen experiments of the paper.
    pub paper: Vec<PaperExperiment>,
    /// Runs that pass P1.
    pub passed_p1: usize,
    /// Runs that pass P2.
    pub passed_p2: usize,
    /// Every run passes P1 and P2, and no prediction with an interval of its own is out of order.
    pub passed: bool,
}

impl Scorecard {
    /// The card of a report on unseen runs. `format_of` names the number format of a model's weights.
    pub fn new(
        judged: &str,
        report: &EvaluationReport,
        left_out: Vec<Errors>,
        transfers: Vec<Transfer>,
        format_of: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let experiments: Vec<ScoredRun> = report.experiments.iter().map(ScoredRun::of).collect();
        let predictors: Vec<Option<Baseline>> =
            std::iter::once(None).chain(report.baselines.keys().copied().map(Some)).collect();
        let inversions: Vec<Inversions> = [Latency::E2e, Latency::Ttft]
            .into_iter()
            .flat_map(|latency| predictors.iter().map(move |predictor| (latency, *predictor)))
            .filter_map(|(latency, predictor)| inversions(&report.experiments, latency, predictor))
            .collect();
        let mut by_format: BTreeMap<String, Vec<&CaseResult>> = BTreeMap::new();
        for run in &report.experiments {
            by_format.entry(format_of(&run.labels.model).unwrap_or_default()).or_default().push(run);
        }
        let covered = |(latency, statistic)| {
            let metric = Metric { latency, statistic };
            let summary = report.summary.get(&metric)?;
            Some(Coverage { metric, runs: summary.rows, covered_pct: summary.coverage_pct? })
        };
        let count = |passed: fn(&ScoredRun) -> bool| experiments.iter().filter(|run| passed(run)).count();
        let (passed_p1, passed_p2) = (count(|run| run.passed_p1), count(|run| run.passed_p2));
        let is_ordered = inversions.iter().all(|of| of.predictor.is_some() || of.disjoint_inverted == 0);
        Scorecard {
            judged: judged.to_owned(),
            paper: paper::experiments(&experiments),
            skipped: report.skipped.clone(),
            left_out,
            transfers,
            formats: by_format.iter().map(|(format, runs)| Errors::of(format, runs)).collect(),
            coverage: COVERED.into_iter().filter_map(covered).collect(),
            passed: passed_p1 == experiments.len() && passed_p2 == experiments.len() && is_ordered,
            passed_p1,
            passed_p2,
            inversions,
            experiments,
        }
    }

    /// What the card lacks, in words; `None` if it passes.
    pub fn missed(&self) -> Option<String> {
        let all = self.experiments.len();
        let mut missed = Vec::new();
        for (passed, what, limit) in [
            (self.passed_p1, "E2E mean", MAX_E2E_PCT),
            (self.passed_p2, "TTFT mean and ITL mean", MAX_TTFT_AND_ITL_PCT),
        ] {
            if passed < all {
                missed.push(format!("{what} within {limit} %: {passed} of {all} runs"));
            }
        }
        let own = self.inversions.iter().filter(|of| of.predictor.is_none());
        let disjoint: usize = own.map(|of| of.disjoint_inverted).sum();
        if disjoint > 0 {
            missed.push(format!("{disjoint} pairs of p99 with disjoint intervals are in the wrong order"));
        }
        (!missed.is_empty()).then(|| missed.join("; "))
    }
}

/// The words for predictions that left out groups by `by`.
pub fn left_out_by(by: GroupBy) -> String {
    format!("each {by} left out of the fit")
}
