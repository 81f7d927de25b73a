//! The tables of `evaluate`: measured against predicted with signed errors, baselines beside, summaries, and where the error
//! comes from.

use std::collections::BTreeMap;

use ridgepoint_lab::evaluate::attribution::{Attribution, METRICS};
use ridgepoint_lab::evaluate::comparison::{
    Baseline, Evaluation, ExperimentReport, MetricRow, MetricSummary, Summary, error_pct,
};
use ridgepoint_lab::evaluate::measured::WHOLE_RUN;
use ridgepoint_lab::evaluate::metric::Metric;
use ridgepoint_lab::evaluate::split::Split;

use crate::text::{plural, rendered, table, width, wrap};
use serde::Serialize;

/// An evaluation with the views that were asked for, as the reports show it.
#[derive(Serialize)]
pub struct Evaluated {
    /// Measured against predicted.
    #[serde(flatten)]
    pub evaluation: Evaluation,
    /// Summaries by group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// Where the error comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribution: Option<Attribution>,
}

/// Baselines with their names, the second for tables of many columns.
const BASELINES: [(Baseline, &str, &str); 3] = [
    (Baseline::CalibratedRoofline, "calibrated", "calibrated"),
    (Baseline::IdealRoofline, "ideal roofline", "ideal"),
    (Baseline::BlackBox, "black box", "black box"),
];
/// Means that whole runs are compared by, as far as an evaluation has them.
const MEANS: [(Metric, &str); 4] =
    [(Metric::E2E_MEAN, "E2E"), (Metric::TTFT_MEAN, "TTFT"), (Metric::ITL_MEAN, "ITL"), (Metric::TPOT_MEAN, "TPOT")];
/// Names that the list of what was not run gives per reason.
const NAMES_PER_REASON: usize = 3;

/// The whole report.
pub fn render(evaluated: &Evaluated) -> String {
    let Evaluated { evaluation, split, attribution } = evaluated;
    let mut out = String::new();
    let shown = shown(evaluation);
    let with_stages = evaluation.experiments.iter().any(has_stages);
    if with_stages {
        for experiment in &evaluation.experiments {
            out.push_str(&one_experiment(experiment, &shown));
            out.push('\n');
        }
    }
    out.push_str(&whole_runs(evaluation, !with_stages, &shown));
    out.push('\n');
    out.push_str(&wrap("correction: ", &corrections(evaluation), width()));
    out.push('\n');
    out.push_str(&summary(evaluation));
    if let Some(split) = split {
        out.push('\n');
        out.push_str(&groups(split));
    }
    if let Some(attribution) = attribution {
        out.push('\n');
        out.push_str(&components(attribution));
    }
    let remarks = remarks(evaluation);
    if !remarks.is_empty() {
        out.push('\n');
        out.push_str(&remarks);
    }
    out
}

fn has_stages(experiment: &ExperimentReport) -> bool {
    experiment.metrics.iter().any(|row| row.stage != WHOLE_RUN)
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
    row.baselines.get(&baseline).map_or_else(|| "-".to_owned(), |ms| signed(error_pct(row.measured_ms, *ms)))
}

/// A baseline that no row has is left out where that follows from what was asked for: without a correction the calibrated roofline
/// is the prediction.
fn shown(evaluation: &Evaluation) -> Vec<(Baseline, &'static str, &'static str)> {
    let has =
        |baseline| evaluation.experiments.iter().any(|e| e.metrics.iter().any(|r| r.baselines.contains_key(&baseline)));
    BASELINES.into_iter().filter(|(baseline, ..)| *baseline != Baseline::CalibratedRoofline || has(*baseline)).collect()
}

/// The corrections of the predictions, with how many experiments each predicts where there are several.
fn corrections(evaluation: &Evaluation) -> String {
    let mut experiments: BTreeMap<String, u64> = BTreeMap::new();
    for experiment in &evaluation.experiments {
        *experiments.entry(experiment.correction.to_string()).or_default() += 1;
    }
    let is_one = experiments.len() == 1;
    let named = |(name, count): (String, u64)| if is_one { name } else { format!("{name} ({})", plural(count, "run")) };
    experiments.into_iter().map(named).collect::<Vec<_>>().join(", ")
}

fn one_experiment(experiment: &ExperimentReport, shown: &[(Baseline, &str, &str)]) -> String {
    let ExperimentReport { name, model, hardware, tensor_parallel_size, workload, .. } = experiment;
    let mut out = format!("{name}\n  {model} on {hardware}, tensor_parallel_size {tensor_parallel_size}, {workload}\n");
    let mut titles: Vec<String> =
        ["stage", "metric", ">measured ms", ">predicted ms", ">error"].map(str::to_owned).to_vec();
    titles.extend(shown.iter().map(|(_, name, _)| format!(">{name}")));
    let mut rows = table(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for row in &experiment.metrics {
        let stage = if row.stage == WHOLE_RUN { "all".to_owned() } else { row.stage.to_string() };
        let mut cells =
            vec![stage, row.metric.to_string(), ms(row.measured_ms), ms(row.predicted_ms), signed(row.error_pct)];
        cells.extend(shown.iter().map(|(baseline, ..)| baseline_error(row, *baseline)));
        rows.add_row(cells);
    }
    out.push_str(&rendered(rows, &["black box", "ideal roofline", "calibrated"]));
    out
}

/// A line per experiment: its means over the whole run, and what was measured where no table before says so.
fn whole_runs(evaluation: &Evaluation, with_times: bool, shown: &[(Baseline, &str, &str)]) -> String {
    let means: Vec<(Metric, &str)> =
        MEANS.into_iter().filter(|(metric, _)| evaluation.summary.contains_key(metric)).collect();
    let mut titles = vec!["whole run".to_owned()];
    for (_, name) in &means {
        if with_times {
            titles.extend([format!(">{name} ms"), ">predicted".to_owned(), ">error".to_owned()]);
        } else {
            titles.push(format!(">{name} error"));
        }
        titles.extend(shown.iter().map(|(_, _, name)| format!(">{name}")));
    }
    let mut rows = table(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for experiment in &evaluation.experiments {
        let mut cells = vec![experiment.name.clone()];
        for (metric, _) in &means {
            let found = experiment.metrics.iter().find(|row| row.stage == WHOLE_RUN && row.metric == *metric);
            let cell = |of: &dyn Fn(&MetricRow) -> String| found.map_or_else(String::new, of);
            if with_times {
                cells.extend([cell(&|row| ms(row.measured_ms)), cell(&|row| ms(row.predicted_ms))]);
            }
            cells.push(cell(&|row| signed(row.error_pct)));
            cells.extend(shown.iter().map(|(baseline, ..)| cell(&|row| baseline_error(row, *baseline))));
        }
        rows.add_row(cells);
    }
    rendered(rows, &["ideal", "black box", "calibrated", "predicted"])
}

fn summary(evaluation: &Evaluation) -> String {
    let Evaluation { summary, summary_by_stage, baselines, .. } = evaluation;
    let mut rows = table(&["absolute error", ">rows", ">median", ">mean", ">max", ">bias", ">in 90 % interval"]);
    for (metric, whole) in summary {
        rows.add_row(line(metric.to_string(), whole));
        for (baseline, name, _) in BASELINES {
            if let Some(of) = baselines.get(&baseline).and_then(|summary| summary.get(metric)) {
                rows.add_row(line(format!("  ({name})"), of));
            }
        }
        if let Some(stages) = summary_by_stage.get(metric) {
            rows.add_row(line("  (single stages)".to_owned(), stages));
        }
    }
    rendered(rows, &["bias"])
}

fn line(name: String, of: &MetricSummary) -> [String; 7] {
    [
        name,
        of.rows.to_string(),
        absolute(of.median_ape_pct),
        absolute(of.mean_ape_pct),
        absolute(of.max_ape_pct),
        signed(of.bias_pct),
        of.coverage_pct.map_or_else(String::new, absolute),
    ]
}

fn groups(split: &Split) -> String {
    let has = |metric: &Metric| split.groups.values().any(|group| group.summary.contains_key(metric));
    let means: Vec<(Metric, &str)> = MEANS.into_iter().filter(|(metric, _)| has(metric)).collect();
    let by = serde_json::to_value(split.by).ok().and_then(|by| by.as_str().map(str::to_owned)).unwrap_or_default();
    let mut titles = vec![format!("by {by}"), ">runs".to_owned()];
    for (_, name) in &means {
        titles.extend([format!(">{name} median"), format!(">{name} bias")]);
    }
    let mut rows = table(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, group) in &split.groups {
        let mut cells = vec![name.clone(), group.experiments.to_string()];
        for (metric, _) in &means {
            cells.extend(median_and_bias(&group.summary, *metric));
        }
        rows.add_row(cells);
    }
    rendered(rows, &[])
}

fn median_and_bias(summary: &Summary, metric: Metric) -> [String; 2] {
    match summary.get(&metric) {
        Some(of) => [absolute(of.median_ape_pct), signed(of.bias_pct)],
        None => [String::new(), String::new()],
    }
}

fn components(attribution: &Attribution) -> String {
    let names = ["E2E", "TTFT", "ITL"];
    let mut titles = vec!["replaced by".to_owned(), ">runs".to_owned()];
    for name in names {
        titles.extend([format!(">{name} error"), format!(">{name} explained")]);
    }
    let mut rows = table(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    let mut first = vec!["(nothing)".to_owned(), attribution.experiments.len().to_string()];
    for metric in METRICS {
        first.extend([attribution.median_ape_pct.get(&metric).map_or(String::new(), |e| absolute(*e)), String::new()]);
    }
    rows.add_row(first);
    for component in &attribution.components {
        let mut cells = vec![component.replacement.to_owned(), component.experiments.to_string()];
        for metric in METRICS {
            cells.push(component.median_ape_pct.get(&metric).map_or(String::new(), |e| absolute(*e)));
            let points = component.median_explained_points.get(&metric);
            cells.push(points.map_or(String::new(), |points| format!("{points:+.1}")));
        }
        rows.add_row(cells);
    }
    let mut out = rendered(rows, &[]);
    let reading = "Medians over runs; explained are the points by which the absolute error falls";
    out.push_str(&wrap("", &format!("{reading}: {}.", attribution.verdict), width()));
    out
}

/// Notes of experiments and reasons of what was not run, equal ones together.
fn remarks(evaluation: &Evaluation) -> String {
    let mut notes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for experiment in &evaluation.experiments {
        for note in &experiment.notes {
            notes.entry(note).or_default().push(&experiment.name);
        }
    }
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for skipped in &evaluation.skipped {
        reasons.entry(&skipped.reason).or_default().push(&skipped.id);
    }
    let mut out = String::new();
    let mut paragraphs = |first: &str, groups: &BTreeMap<&str, Vec<&str>>| {
        for (text, names) in groups {
            let whose = if names.len() == evaluation.experiments.len() { "all".to_owned() } else { some(names) };
            out.push_str(&wrap(first, &format!("{text} ({whose})"), width()));
        }
    };
    paragraphs("note: ", &notes);
    paragraphs("not run: ", &reasons);
    out
}

fn some(names: &[&str]) -> String {
    let shown = names.iter().take(NAMES_PER_REASON).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMES_PER_REASON) {
        Some(more) if more > 0 => format!("{}: {shown} and {more} more", plural(names.len() as u64, "run")),
        _ => shown,
    }
}
