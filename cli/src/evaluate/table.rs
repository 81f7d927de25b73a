//! The tables of `evaluate`: measured beside predicted values, errors by metric, groups of runs, and remarks.

use std::collections::BTreeMap;

use ridgepoint_lab::evaluate::measured::WHOLE_RUN;
use ridgepoint_lab::evaluate::report::{Baseline, EvaluationReport, MetricRow, MetricSummary, Skipped, Summary};
use ridgepoint_lab::stats::error_pct;

use crate::outcome::Report;
use crate::text::{Page, plural, shown, table};

/// Baselines that have a column in the table of measured values.
const COLUMNS: [Baseline; 3] = [Baseline::CalibratedRoofline, Baseline::IdealRoofline, Baseline::BlackBox];
/// Number of runs that a remark names.
const NAMES_PER_REMARK: usize = 3;

fn name(baseline: Baseline) -> &'static str {
    match baseline {
        Baseline::GivenCorrection => "given correction",
        Baseline::CalibratedRoofline => "calibrated",
        Baseline::IdealRoofline => "ideal roofline",
        Baseline::BlackBox => "black box",
        Baseline::ScaledStepTimes => "step times scaled to the measured decoding time",
        Baseline::NoLimits => "no limit on requests or tokens of a step",
        Baseline::NoPrefixCaching => "no prefix caching",
        Baseline::NoAsyncScheduling => "no asynchronous scheduling",
        Baseline::NoHostOverhead => "a host that takes no time",
    }
}

impl Report for EvaluationReport {
    fn table(&self) -> String {
        let mut page = Page::new();
        if self.experiments.iter().any(|of| of.trace.is_none()) {
            measured_values(&mut page, self);
            page.blank();
        }
        errors(&mut page, self);
        page.blank();
        remarks(&mut page, self);
        page.text()
    }
}

fn signed(error_pct: f64) -> String {
    format!("{error_pct:+.1} %")
}

fn absolute(ape_pct: f64) -> String {
    format!("{ape_pct:.1} %")
}

/// A row per measured value; the first row of a run has its name.
fn measured_values(page: &mut Page, report: &EvaluationReport) {
    let baselines: Vec<Baseline> = COLUMNS.into_iter().filter(|of| report.baselines.contains_key(of)).collect();
    let mut titles = ["run", "stage", "metric", ">measured ms", ">predicted ms", ">error"].map(str::to_owned).to_vec();
    titles.extend(baselines.iter().map(|baseline| format!(">{}", name(*baseline))));
    let mut rows = table(&titles);
    for of in &report.experiments {
        let mut run = of.labels.name.as_str();
        for row in &of.metrics {
            let MetricRow { stage, metric, measured_ms, predicted_ms, error_pct: error, .. } = row;
            let stage = if *stage == WHOLE_RUN { "all".to_owned() } else { stage.to_string() };
            let times = [format!("{measured_ms:.2}"), format!("{predicted_ms:.2}")];
            let mut cells = vec![std::mem::take(&mut run).to_owned(), stage, metric.to_string()];
            cells.extend(times);
            cells.push(signed(*error));
            let error_of = |baseline| shown(row.baselines.get(baseline), |ms| signed(error_pct(*measured_ms, *ms)));
            cells.extend(baselines.iter().map(error_of));
            rows.add_row(cells);
        }
    }
    page.table(rows, &["black box", "ideal roofline", "calibrated"]);
}

/// Errors by metric: of groups of runs, and of all runs with the baselines beside. Groups have baselines too if there is one metric.
fn errors(page: &mut Page, report: &EvaluationReport) {
    let titles = ["absolute error", ">rows", ">median", ">mean", ">p90", ">max", ">bias", ">r", ">in 90 % interval"];
    let mut rows = table(&titles);
    let mut add = |group: &str, summary: &Summary, baselines: &BTreeMap<Baseline, Summary>, by_stage: &Summary| {
        for (metric, whole) in summary {
            rows.add_row(error_cells(format!("{group}{metric}"), whole));
            for (baseline, of) in baselines.iter().filter_map(|(baseline, of)| Some((baseline, of.get(metric)?))) {
                rows.add_row(error_cells(format!("  ({})", name(*baseline)), of));
            }
            if let Some(of) = by_stage.get(metric) {
                rows.add_row(error_cells("  (single stages)".to_owned(), of));
            }
        }
    };
    for (name, group) in report.split.iter().flat_map(|split| &split.groups) {
        let baselines = if report.summary.len() == 1 { group.baselines.clone() } else { BTreeMap::new() };
        add(
            &format!("{name} ({}): ", plural(group.experiments as u64, "run")),
            &group.summary,
            &baselines,
            &Summary::new(),
        );
    }
    add("all: ", &report.summary, &report.baselines, &report.summary_by_stage);
    page.table(rows, &["r", "p90", "max", "bias"]);
}

fn error_cells(name: String, of: &MetricSummary) -> [String; 9] {
    [
        name,
        of.rows.to_string(),
        absolute(of.median_ape_pct),
        absolute(of.mean_ape_pct),
        absolute(of.p90_ape_pct),
        absolute(of.max_ape_pct),
        signed(of.bias_pct),
        shown(of.pearson_r, |r| format!("{r:.3}")),
        shown(of.coverage_pct, absolute),
    ]
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
