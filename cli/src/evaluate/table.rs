//! The tables of `evaluate`: measured and predicted values, errors by metric, groups of runs, and remarks.

use std::collections::BTreeMap;

use ridgepoint_lab::evaluate::measured::WHOLE_RUN;
use ridgepoint_lab::evaluate::report::{
    Baseline, CaseResult, EvaluationReport, MetricRow, MetricSummary, Skipped, Summary,
};
use ridgepoint_lab::stats::error_pct;

use crate::outcome::Report;
use crate::text::{Page, Rows, plural, shown};

/// Baselines that have a column in the table of measured values.
const COLUMNS: [Baseline; 3] = [Baseline::CalibratedRoofline, Baseline::IdealRoofline, Baseline::BlackBox];
/// Number of runs that a remark names.
const NAMES_PER_REMARK: usize = 3;

fn name(baseline: Baseline) -> String {
    baseline.to_string().replace('_', " ")
}

impl Report for EvaluationReport {
    fn lay_out(&self, page: &mut Page) {
        if self.experiments.iter().any(|of| of.trace.is_none()) {
            measured_values(page, self);
            page.blank();
        }
        errors(page, self);
        page.blank();
        remarks(page, self);
    }
}

pub(super) fn signed(error_pct: f64) -> String {
    format!("{error_pct:+.1} %")
}

pub(super) fn absolute(ape_pct: f64) -> String {
    format!("{ape_pct:.1} %")
}

/// A row per measured value; the first row of a run has its name.
fn measured_values(page: &mut Page, report: &EvaluationReport) {
    let of_run = |of: &'_ CaseResult| {
        let names = std::iter::once(of.labels.name.clone()).chain(std::iter::repeat(String::new()));
        names.zip(of.metrics.clone()).collect::<Vec<_>>()
    };
    let stage = |of: &MetricRow| if of.stage == WHOLE_RUN { "all".to_owned() } else { of.stage.to_string() };
    let mut rows = Rows::of(report.experiments.iter().flat_map(of_run))
        .left("run", |(run, _)| run.clone())
        .left("stage", |(_, of)| stage(of))
        .left("metric", |(_, of)| of.metric.to_string())
        .right("measured ms", |(_, of)| format!("{:.2}", of.measured_ms))
        .right("predicted ms", |(_, of)| format!("{:.2}", of.predicted_ms))
        .right("error", |(_, of)| signed(of.error_pct));
    for baseline in COLUMNS.into_iter().filter(|of| report.baselines.contains_key(of)) {
        rows = rows.right(&name(baseline), move |(_, of)| {
            shown(of.baselines.get(&baseline), |ms| signed(error_pct(of.measured_ms, *ms)))
        });
    }
    page.rows(&rows, &["black box", "ideal roofline", "calibrated roofline"]);
}

/// Errors by metric: of groups of runs, and of all runs with the baselines. Groups have baselines too if there is one metric.
fn errors(page: &mut Page, report: &EvaluationReport) {
    let mut lines: Vec<(String, &MetricSummary)> = Vec::new();
    for (name, group) in report.split.iter().flat_map(|split| &split.groups) {
        let title = format!("{name} ({}): ", plural(group.experiments as u64, "run"));
        let baselines = Some(&group.baselines).filter(|_| report.summary.len() == 1);
        lines.extend(by_metric(&title, &group.summary, baselines, None));
    }
    lines.extend(by_metric("all: ", &report.summary, Some(&report.baselines), Some(&report.summary_by_stage)));
    let rows = Rows::of(lines)
        .left("absolute error", |(title, _)| title.clone())
        .right("rows", |(_, of)| of.rows.to_string())
        .right("median", |(_, of)| absolute(of.median_ape_pct))
        .right("mean", |(_, of)| absolute(of.mean_ape_pct))
        .right("p90", |(_, of)| absolute(of.p90_ape_pct))
        .right("max", |(_, of)| absolute(of.max_ape_pct))
        .right("bias", |(_, of)| signed(of.bias_pct))
        .right("r", |(_, of)| shown(of.pearson_r, |r| format!("{r:.3}")))
        .right("in 90 % interval", |(_, of)| shown(of.coverage_pct, absolute));
    page.rows(&rows, &["r", "p90", "max", "bias"]);
}

/// A line per metric, with those of its baselines and of its single stages.
fn by_metric<'a>(
    title: &str,
    summary: &'a Summary,
    baselines: Option<&'a BTreeMap<Baseline, Summary>>,
    by_stage: Option<&'a Summary>,
) -> Vec<(String, &'a MetricSummary)> {
    let mut lines = Vec::new();
    for (metric, whole) in summary {
        lines.push((format!("{title}{metric}"), whole));
        let of_baseline =
            |(baseline, of): (&Baseline, &'a Summary)| Some((format!("  ({})", name(*baseline)), of.get(metric)?));
        lines.extend(baselines.into_iter().flatten().filter_map(of_baseline));
        lines.extend(by_stage.and_then(|of| of.get(metric)).map(|of| ("  (single stages)".to_owned(), of)));
    }
    lines
}

/// Corrections, remarks on the runs and the reasons of those that were skipped, equal ones together.
fn remarks(page: &mut Page, report: &EvaluationReport) {
    let mut remarks: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for note in &report.notes {
        remarks.entry(("judged: ", note.clone())).or_default();
    }
    for of in &report.experiments {
        let name = of.labels.name.as_str();
        remarks.entry(("correction: ", of.correction.to_string())).or_default().push(name);
        for note in &of.notes {
            remarks.entry(("note: ", note.clone())).or_default().push(name);
        }
    }
    for Skipped { id, reason } in &report.skipped {
        remarks.entry(("not judged: ", reason.clone())).or_default().push(id);
    }
    for ((label, text), names) in remarks {
        let named = names.iter().take(NAMES_PER_REMARK).copied().collect::<Vec<_>>().join(", ");
        let of = match names.len().saturating_sub(NAMES_PER_REMARK) {
            _ if names.is_empty() => String::new(),
            _ if names.len() == report.experiments.len() && label != "not judged: " => " (all)".to_owned(),
            0 => format!(" ({named})"),
            more => format!(" ({}: {named} and {more} more)", plural(names.len() as u64, "run")),
        };
        page.paragraph(label, &format!("{text}{of}"));
    }
}
