//! Steps of real engines beside their predictions, as tables. Uses `text`.

use std::collections::BTreeMap;

use ridgepoint_lab::evaluate::steps::report::{StepBaseline, StepEvaluation, StepExperiment};
use ridgepoint_lab::evaluate::steps::score::Scores;
use ridgepoint_lab::ingest::Dropped;

use crate::text::{count, plural, rendered, table, width, wrap};

fn name(baseline: StepBaseline) -> &'static str {
    match baseline {
        StepBaseline::GivenCorrection => "given correction",
        StepBaseline::CalibratedRoofline => "calibrated roofline",
        StepBaseline::IdealRoofline => "ideal roofline",
        StepBaseline::BlackBox => "black box",
        StepBaseline::Ridge => "ridge regression",
    }
}

/// The whole report.
pub fn render(evaluation: &StepEvaluation) -> String {
    let mut out = String::new();
    for experiment in &evaluation.experiments {
        out.push_str(&heading(experiment));
        out.push_str(&errors("absolute error", &experiment.metrics, &experiment.baselines));
        out.push('\n');
    }
    let summary = &evaluation.summary;
    if summary.experiments > 1 {
        let title = format!("all {} runs", summary.experiments);
        out.push_str(&errors(&title, &summary.metrics, &summary.baselines));
        out.push('\n');
    }
    let split = &evaluation.split;
    let rows = plural(summary.rows as u64, "row");
    let windows = match split.window {
        1 => format!("{rows}, each interval for itself"),
        window => format!("{rows} in {} of {window} or more", plural(summary.windows as u64, "window")),
    };
    let judged = format!("{}: {windows}", split.judged);
    out.push_str(&wrap("judged: ", &judged, width()));
    out.push_str(&remarks(evaluation));
    out
}

fn heading(experiment: &StepExperiment) -> String {
    let StepExperiment { name, model, hardware, tensor_parallel_size, workload, rows, windows, .. } = experiment;
    let workload = workload.as_ref().map_or_else(String::new, |workload| format!(", {workload}"));
    let judged = format!("{} in {}", plural(*rows as u64, "row"), plural(*windows as u64, "window"));
    let mut out =
        format!("{name}\n  {model} on {hardware}, tensor_parallel_size {tensor_parallel_size}{workload}: {judged}");
    if experiment.dropped.total() > 0 {
        out.push_str(&format!("; left out: {}", reasons(&experiment.dropped)));
    }
    out.push('\n');
    out
}

fn reasons(dropped: &Dropped) -> String {
    let reasons: Vec<String> =
        dropped.iter().map(|(reason, rows)| format!("{} {}", count(rows), reason.name().replace('_', " "))).collect();
    reasons.join(", ")
}

fn errors(title: &str, metrics: &Scores, baselines: &BTreeMap<StepBaseline, Scores>) -> String {
    let mut rows = table(&[title, ">median", ">mean", ">bias", ">r", ">coverage"]);
    rows.add_row(line("prediction", metrics));
    for (baseline, scores) in baselines {
        rows.add_row(line(&format!("  ({})", name(*baseline)), scores));
    }
    rendered(rows, &["r"])
}

fn line(name: &str, of: &Scores) -> [String; 6] {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    [
        name.to_owned(),
        format!("{:.1} %", of.median_ape_pct),
        format!("{:.1} %", of.mape_pct),
        format!("{:+.1} %", of.bias_pct),
        or_dash(of.pearson_r.map(|r| format!("{r:.3}"))),
        or_dash(of.coverage_pct.map(|share| format!("{share:.1} %"))),
    ]
}

/// Notes of runs, equal ones together, and runs that were not judged.
fn remarks(evaluation: &StepEvaluation) -> String {
    let mut notes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for experiment in &evaluation.experiments {
        for note in &experiment.notes {
            notes.entry(note).or_default().push(&experiment.name);
        }
    }
    let mut out = String::new();
    for note in &evaluation.notes {
        out.push_str(&wrap("note: ", note, width()));
    }
    for (note, names) in notes {
        let whose = if names.len() == evaluation.experiments.len() { "all".to_owned() } else { names.join(", ") };
        out.push_str(&wrap("note: ", &format!("{note} ({whose})"), width()));
    }
    for skipped in &evaluation.skipped {
        out.push_str(&wrap("not judged: ", &format!("{} ({})", skipped.reason, skipped.id), width()));
    }
    out
}
