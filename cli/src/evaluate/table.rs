//! The tables of `evaluate`: measured beside predicted values, errors by metric, groups of runs, and remarks.

use std::collections::BTreeMap;

use ridgepoint_lab::evaluate::attribution::{Attribution, METRICS};
use ridgepoint_lab::evaluate::fold::GroupBy;
use ridgepoint_lab::evaluate::measured::WHOLE_RUN;
use ridgepoint_lab::evaluate::metric::Metric;
use ridgepoint_lab::evaluate::report::{
    Baseline, CaseResult, EvaluationReport, Group, MetricRow, MetricSummary, Split, Summary, TraceResult,
};
use ridgepoint_lab::stats::error_pct;

use crate::outcome::Report;
use crate::text::{Page, plural, shown, table};

/// The baselines with their names in tables.
const BASELINES: [(Baseline, &str); 4] = [
    (Baseline::GivenCorrection, "given correction"),
    (Baseline::CalibratedRoofline, "calibrated"),
    (Baseline::IdealRoofline, "ideal roofline"),
    (Baseline::BlackBox, "black box"),
];
/// Means that whole runs are compared by, as far as an evaluation has them.
const MEANS: [(Metric, &str); 4] =
    [(Metric::E2E_MEAN, "E2E"), (Metric::TTFT_MEAN, "TTFT"), (Metric::ITL_MEAN, "ITL"), (Metric::TPOT_MEAN, "TPOT")];
/// Number of runs that a remark names.
const NAMES_PER_REMARK: usize = 3;

impl Report for EvaluationReport {
    fn table(&self) -> String {
        let mut page = Page::new();
        let baselines: Vec<(Baseline, &str)> =
            BASELINES.into_iter().filter(|(baseline, _)| self.baselines.contains_key(baseline)).collect();
        let has_stages = !self.summary_by_stage.is_empty();
        for of in &self.experiments {
            if let Some(trace) = &of.trace {
                page.line(&heading(of));
                page.line(&judged_part(trace));
                errors(&mut page, "absolute error", &trace.summary, &trace.baselines, None);
                page.blank();
            } else if has_stages {
                page.line(&heading(of));
                stages(&mut page, of, &baselines);
                page.blank();
            }
        }
        if self.experiments.iter().any(|of| of.trace.is_none()) {
            whole_runs(&mut page, self, !has_stages, &baselines);
            page.blank();
        }
        page.paragraph("correction: ", &corrections(self));
        page.blank();
        let title = format!("absolute error of {}", plural(self.experiments.len() as u64, "run"));
        errors(&mut page, &title, &self.summary, &self.baselines, Some(&self.summary_by_stage));
        match &self.split {
            Some(Split::Groups { by, groups: of }) => groups(&mut page, *by, of),
            Some(Split::Rows(rows)) => {
                let window = match rows.window {
                    1 => "each interval for itself".to_owned(),
                    window => format!("windows of {window} sampled steps or more"),
                };
                page.blank();
                page.paragraph("judged: ", &format!("{}; {window}", rows.judged));
            }
            None => {}
        }
        if let Some(attribution) = &self.attribution {
            components(&mut page, attribution);
        }
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

fn ms(value: f64) -> String {
    format!("{value:.2}")
}

fn baseline_error(row: &MetricRow, baseline: Baseline) -> String {
    shown(row.baselines.get(&baseline), |ms| signed(error_pct(row.measured_ms, *ms)))
}

fn heading(of: &CaseResult) -> String {
    let labels = &of.labels;
    let workload = labels.workload.as_ref().map_or_else(String::new, |workload| format!(", {workload}"));
    format!(
        "{}\n  {} on {}, tensor_parallel_size {}{workload}",
        labels.name, labels.model, labels.hardware, labels.tensor_parallel_size
    )
}

fn judged_part(trace: &TraceResult) -> String {
    let (rows, windows) = (plural(trace.rows as u64, "row"), plural(trace.windows as u64, "window"));
    match trace.dropped.total() {
        0 => format!("  {rows} in {windows}"),
        _ => format!("  {rows} in {windows}; left out: {}", trace.dropped),
    }
}

/// The corrections of the predictions, with the number of runs of each if there are several.
fn corrections(report: &EvaluationReport) -> String {
    let mut runs: BTreeMap<String, u64> = BTreeMap::new();
    for of in &report.experiments {
        *runs.entry(of.correction.to_string()).or_default() += 1;
    }
    let is_one = runs.len() == 1;
    let named = |(name, count): (String, u64)| if is_one { name } else { format!("{name} ({})", plural(count, "run")) };
    runs.into_iter().map(named).collect::<Vec<_>>().join(", ")
}

/// The measured values of a run, stage by stage.
fn stages(page: &mut Page, of: &CaseResult, baselines: &[(Baseline, &str)]) {
    let mut titles = ["stage", "metric", ">measured ms", ">predicted ms", ">error"].map(str::to_owned).to_vec();
    titles.extend(baselines.iter().map(|(_, name)| format!(">{name}")));
    let mut rows = table(&titles);
    for row in &of.metrics {
        let stage = if row.stage == WHOLE_RUN { "all".to_owned() } else { row.stage.to_string() };
        let mut cells =
            vec![stage, row.metric.to_string(), ms(row.measured_ms), ms(row.predicted_ms), signed(row.error_pct)];
        cells.extend(baselines.iter().map(|(baseline, _)| baseline_error(row, *baseline)));
        rows.add_row(cells);
    }
    page.table(rows, &["black box", "ideal roofline", "calibrated"]);
}

/// A line per run with its means, and the measured values if no table before has them.
fn whole_runs(page: &mut Page, report: &EvaluationReport, with_times: bool, baselines: &[(Baseline, &str)]) {
    let means: Vec<(Metric, &str)> =
        MEANS.into_iter().filter(|(metric, _)| report.summary.contains_key(metric)).collect();
    let mut titles = vec!["whole run".to_owned()];
    for (_, name) in &means {
        if with_times {
            titles.extend([format!(">{name} ms"), ">predicted".to_owned(), ">error".to_owned()]);
        } else {
            titles.push(format!(">{name} error"));
        }
        titles.extend(baselines.iter().map(|(_, name)| format!(">{name}")));
    }
    let mut rows = table(&titles);
    for of in &report.experiments {
        let mut cells = vec![of.labels.name.clone()];
        for (metric, _) in &means {
            let found = of.metrics.iter().find(|row| row.stage == WHOLE_RUN && row.metric == *metric);
            let cell = |text: &dyn Fn(&MetricRow) -> String| found.map_or_else(String::new, text);
            if with_times {
                cells.extend([cell(&|row| ms(row.measured_ms)), cell(&|row| ms(row.predicted_ms))]);
            }
            cells.push(cell(&|row| signed(row.error_pct)));
            cells.extend(baselines.iter().map(|(baseline, _)| cell(&|row| baseline_error(row, *baseline))));
        }
        rows.add_row(cells);
    }
    page.table(rows, &["ideal roofline", "black box", "calibrated", "predicted"]);
}

/// Errors by metric, of the prediction and of the baselines.
fn errors(
    page: &mut Page,
    title: &str,
    summary: &Summary,
    baselines: &BTreeMap<Baseline, Summary>,
    by_stage: Option<&Summary>,
) {
    let mut rows = table(&[title, ">rows", ">median", ">mean", ">p90", ">max", ">bias", ">r", ">in 90 % interval"]);
    for (metric, whole) in summary {
        rows.add_row(error_cells(metric.to_string(), whole));
        for (baseline, name) in BASELINES {
            if let Some(of) = baselines.get(&baseline).and_then(|summary| summary.get(metric)) {
                rows.add_row(error_cells(format!("  ({name})"), of));
            }
        }
        if let Some(of) = by_stage.and_then(|summary| summary.get(metric)) {
            rows.add_row(error_cells("  (single stages)".to_owned(), of));
        }
    }
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

fn groups(page: &mut Page, by: GroupBy, groups: &BTreeMap<String, Group>) {
    let has = |metric: &Metric| groups.values().any(|group| group.summary.contains_key(metric));
    let means: Vec<(Metric, &str)> = MEANS.into_iter().filter(|(metric, _)| has(metric)).collect();
    let mut titles = vec![format!("by {by}"), ">runs".to_owned()];
    for (_, name) in &means {
        titles.extend([format!(">{name} median"), format!(">{name} bias")]);
    }
    let mut rows = table(&titles);
    for (name, group) in groups {
        let mut cells = vec![name.clone(), group.experiments.to_string()];
        for (metric, _) in &means {
            let of = group.summary.get(metric);
            cells.extend([shown(of, |of| absolute(of.median_ape_pct)), shown(of, |of| signed(of.bias_pct))]);
        }
        rows.add_row(cells);
    }
    page.blank();
    page.table(rows, &[]);
}

fn components(page: &mut Page, attribution: &Attribution) {
    let names = ["E2E", "TTFT", "ITL"];
    let mut titles = vec!["replaced by".to_owned(), ">runs".to_owned()];
    titles.extend(names.iter().flat_map(|name| [format!(">{name} error"), format!(">{name} explained")]));
    let mut rows = table(&titles);
    let mut first = vec!["(nothing)".to_owned(), "-".to_owned()];
    for metric in METRICS {
        first.extend([shown(attribution.median_ape_pct.get(&metric), |error| absolute(*error)), String::new()]);
    }
    rows.add_row(first);
    for of in &attribution.components {
        let mut cells = vec![of.replacement.to_owned(), of.experiments.to_string()];
        for metric in METRICS {
            cells.push(shown(of.median_ape_pct.get(&metric), |error| absolute(*error)));
            cells.push(shown(of.median_explained_points.get(&metric), |points| format!("{points:+.1}")));
        }
        rows.add_row(cells);
    }
    page.blank();
    page.table(rows, &[]);
    page.paragraph("", "Medians over runs. Explained are the points by which the absolute error falls.");
}

/// Remarks on the runs and the reasons of those that were skipped, equal ones together.
fn remarks(page: &mut Page, report: &EvaluationReport) {
    let mut remarks: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for note in &report.notes {
        remarks.entry(("note: ", note)).or_default();
    }
    for of in &report.experiments {
        for note in &of.notes {
            remarks.entry(("note: ", note)).or_default().push(&of.labels.name);
        }
    }
    for skipped in &report.skipped {
        remarks.entry(("not run: ", &skipped.reason)).or_default().push(&skipped.id);
    }
    if !remarks.is_empty() {
        page.blank();
    }
    for ((label, text), names) in remarks {
        let more = names.len().saturating_sub(NAMES_PER_REMARK);
        let named = names.iter().take(NAMES_PER_REMARK).copied().collect::<Vec<_>>().join(", ");
        let of = match more {
            _ if names.is_empty() => String::new(),
            _ if names.len() == report.experiments.len() && label == "note: " => " (all)".to_owned(),
            0 => format!(" ({named})"),
            _ => format!(" ({}: {named} and {more} more)", plural(names.len() as u64, "run")),
        };
        page.paragraph(label, &format!("{text}{of}"));
    }
}
