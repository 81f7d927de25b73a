//! The table of `fit`: its parameters with their priors, and how the solver ended.

use ridgepoint_lab::evaluate::fold::Labels;
use ridgepoint_lab::fit::{FitReport, KindErrors, ParameterReport, StepRunReport, TimeErrors, WindowErrors};
use ridgepoint_lab::solver::Solution;

use super::{Fitted, FittedSteps, bench, training};
use crate::outcome::Report;
use crate::text::{Page, Rows, count, four_digits, shown};

impl Report for Fitted {
    fn lay_out(&self, page: &mut Page) {
        match self {
            Fitted::Serving(report) => parameters(page, report),
            Fitted::Bench(report) => {
                bench::lay_out(page, report);
                coefficients(page, &report.parameters);
                ended(page, &report.solution);
                report.notes.iter().for_each(|note| page.paragraph("! ", note));
            }
            Fitted::Steps(fitted) => {
                let FittedSteps { report, training } = &**fitted;
                page.paragraph("", &report.verdict.in_words());
                report.verdict.remarks.iter().for_each(|remark| page.paragraph("! ", remark));
                page.blank();
                runs(page, &report.runs);
                kinds(page, &report.verdict.kinds);
                parameters(page, &report.fit);
                training.iter().for_each(|of| training::lay_out(&of.report, page));
            }
        }
    }
}

/// The fitted coefficients with their priors.
fn coefficients(page: &mut Page, parameters: &[ParameterReport]) {
    let rows = Rows::of(parameters)
        .left("coefficient", |of| of.parameter.name.to_owned())
        .left("unit", |of| of.parameter.unit.to_owned())
        .right("prior", |of| format!("{} ± {}", four_digits(of.parameter.prior), four_digits(of.parameter.prior_sd)))
        .right("value", |of| four_digits(of.value))
        .right("90 % interval", |of| format!("{} to {}", four_digits(of.lower), four_digits(of.upper)))
        .right("sd", |of| four_digits(of.sd))
        .left("data", |of| {
            let known = if of.identified { "identified" } else { "prior" };
            format!("{known}{}", if of.at_bound { ", at its bound" } else { "" })
        });
    page.rows(&rows, &["unit", "sd", "prior"]);
    page.blank();
}

/// How the solver ended.
fn ended(page: &mut Page, solution: &Solution) {
    let Solution { converged, iterations, why_stopped, cost_before, cost_after, .. } = solution;
    let ended = if *converged { "converged" } else { "NOT converged" };
    let (before, after) = (four_digits(*cost_before), four_digits(*cost_after));
    let solver = format!("{ended} after {iterations} iterations: {why_stopped}; cost {before} → {after}");
    page.paragraph("solver: ", &solver);
}

fn parameters(page: &mut Page, report: &FitReport) {
    coefficients(page, &report.parameters);
    let by_target = report.rows_by_target.iter().map(|(target, rows)| format!("{} {target}", count(*rows)));
    let by_target = by_target.collect::<Vec<_>>().join(", ");
    page.paragraph("rows: ", &format!("{} ({by_target})", count(report.rows)));
    ended(page, &report.solution);
    if report.parameters.iter().any(|of| !of.identified) {
        let text =
            "the data narrow the prior by less than a third: the coefficient is a belief more than a measurement";
        page.paragraph("prior: ", text);
    }
    report.notes.iter().for_each(|note| page.paragraph("! ", note));
}

/// Errors of single held-out times by kind of batch.
fn kinds(page: &mut Page, kinds: &[KindErrors]) {
    if kinds.is_empty() {
        return;
    }
    let percent = |of: f64| format!("{of:+.1} %");
    let mean_of = |of: Option<TimeErrors>| shown(of.as_ref(), |of| percent(of.mean_pct));
    let table = Rows::of(kinds)
        .left("held-out rows", |of| of.kind.in_words().to_owned())
        .right("rows", |of| count(of.rows))
        .right("mean", |of| percent(of.correction.mean_pct))
        .right("p50", |of| percent(of.correction.p50_pct))
        .right("p99", |of| percent(of.correction.p99_pct))
        .right("median of one", |of| format!("{:.1} %", of.correction.median_ape_pct))
        .right("mean by operators", |of| percent(of.operators.mean_pct))
        .right("by a line", |of| mean_of(of.line))
        .right("by trees", |of| mean_of(of.trees))
        .right("by the mean", |of| mean_of(of.mean));
    page.rows(&table, &["by the mean", "median of one", "by trees"]);
    page.line("errors of single times, predicted over measured; times of requests are replayed");
    page.blank();
}

fn runs(page: &mut Page, runs: &[StepRunReport]) {
    let rows = |of: &Option<WindowErrors>| shown(of.as_ref(), |of| count(of.rows));
    let median = |of: &Option<WindowErrors>| shown(of.as_ref(), |of| format!("{:.1} %", of.median_ape_pct));
    let bias = |of: &Option<WindowErrors>| shown(of.as_ref(), |of| format!("{:+.1} %", of.bias_pct));
    let table = Rows::of(runs)
        .left("run", |of| of.labels.name.clone())
        .right("rows", |of| rows(&of.fitted))
        .right("median", |of| median(&of.fitted))
        .right("bias", |of| bias(&of.fitted))
        .right("held-out rows", |of| rows(&of.held_out))
        .right("median", |of| median(&of.held_out))
        .right("bias", |of| bias(&of.held_out));
    page.rows(&table, &[]);
    page.line("errors of means over windows of 50 sampled steps");
    for run in runs {
        let Labels { name, model, hardware, tensor_parallel_size, .. } = &run.labels;
        let mut text = format!(
            "{model} on {hardware}, tensor_parallel_size {tensor_parallel_size}; a step's start to the next one's start is the \
             time of {}",
            run.alignment.in_words()
        );
        if let Some((own, before)) = run.alignment_slopes {
            text.push_str(&format!(
                " (times of single steps rise by {own:.2} of what is predicted of the step and {before:.2} of that of the one before)"
            ));
        }
        if run.dropped.total() > 0 {
            text.push_str(&format!("; left out: {}", run.dropped));
        }
        page.paragraph(&format!("{name}: "), &text);
    }
    page.blank();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ridgepoint_lab::fit::{Target, Widths};
    use ridgepoint_lab::solver::Parameter;

    use super::*;

    fn parameter(name: &'static str, value: f64, identified: bool, at_bound: bool) -> ParameterReport {
        ParameterReport {
            parameter: Parameter { name, unit: "factor", prior: 1.0, prior_sd: 0.05, bounds: (0.3, 3.0) },
            value,
            sd: 0.0123,
            lower: value - 0.02,
            upper: value + 0.02,
            identified,
            at_bound,
        }
    }

    #[test]
    fn table_says_what_is_measured_and_what_is_believed() {
        let report = FitReport {
            rows: 12_345,
            rows_by_target: BTreeMap::from([(Target::Decoding, 12_000), (Target::Ttft, 345)]),
            solution: Solution {
                values: Vec::new(),
                converged: false,
                why_stopped: "300 iterations were not enough".to_owned(),
                iterations: 300,
                cost_before: 1234.56,
                cost_after: 78.9,
            },
            parameters: vec![parameter("projections", 1.0456, true, false), parameter("experts", 0.3, false, true)],
            prior_widths: Widths::ASSUMED,
            notes: vec!["no row has 'experts': it stays at its prior".to_owned()],
        };
        let text = Fitted::Serving(report).table();
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
        let projections = line("projections");
        for expected in ["1 ± 0.05", "1.046", "1.026 to 1.066", "0.0123", "identified"] {
            assert!(projections.contains(expected), "{expected}: {projections}");
        }
        assert!(line("experts").ends_with("prior, at its bound"), "{text}");
        assert_eq!(line("rows"), "rows: 12,345 (12,000 decoding, 345 ttft)");
        assert!(text.contains("NOT converged after 300 iterations") && text.contains("cost 1235 → 78.9"), "{text}");
        assert!(text.contains("! no row has 'experts'") && text.contains("prior: the data narrow"), "{text}");
    }
}
