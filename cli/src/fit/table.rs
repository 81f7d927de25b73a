//! The table of `fit`: its parameters with what was believed of them before, and how the solver ended.

use ridgepoint_lab::fit::{FitReport, ParameterReport, StepRunReport, WindowErrors};

use super::Fitted;
use crate::outcome::Report;
use crate::text::{count, rendered, table, width, wrap};

impl Report for Fitted {
    fn table(&self) -> String {
        match self {
            Fitted::Serving(report) => render(report),
            Fitted::Steps(report) => runs_table(&report.runs) + &render(&report.fit),
        }
    }
}

fn render(report: &FitReport) -> String {
    let width = width();
    let titles = ["coefficient", "unit", ">prior", ">value", ">90 % interval", ">sd", "data"];
    let mut rows = table(&titles);
    for parameter in &report.parameters {
        rows.add_row(line(parameter));
    }
    let mut out = rendered(rows, &["unit", "sd", "prior"]);
    out.push('\n');
    let of: Vec<String> =
        report.rows_by_target.iter().map(|(target, rows)| format!("{} {target}", count(*rows))).collect();
    out.push_str(&wrap("rows: ", &format!("{} ({})", count(report.rows), of.join(", ")), width));
    let ended = if report.converged { "converged" } else { "NOT converged" };
    out.push_str(&wrap(
        "solver: ",
        &format!(
            "{ended} after {} iterations: {}; cost {} → {}",
            report.iterations,
            report.why_stopped,
            number(report.cost_before),
            number(report.cost_after)
        ),
        width,
    ));
    if report.parameters.iter().any(|parameter| !parameter.identified) {
        let text =
            "the data narrow the prior by less than a third: the coefficient is a belief more than a measurement";
        out.push_str(&wrap("prior: ", text, width));
    }
    for note in &report.notes {
        out.push_str(&wrap("! ", note, width));
    }
    out
}

/// A line of the table of parameters.
fn line(parameter: &ParameterReport) -> [String; 7] {
    let ParameterReport { name, unit, prior, prior_sd, value, sd, lower, upper, identified, at_bound } = parameter;
    let data = match (identified, at_bound) {
        (true, false) => "identified",
        (true, true) => "identified, at its bound",
        (false, false) => "prior",
        (false, true) => "prior, at its bound",
    };
    [
        name.clone(),
        unit.clone(),
        format!("{} ± {}", number(*prior), number(*prior_sd)),
        number(*value),
        format!("{} to {}", number(*lower), number(*upper)),
        number(*sd),
        data.to_owned(),
    ]
}

/// Four significant digits, without an exponent where that reads well.
fn number(value: f64) -> String {
    let size = value.abs();
    if !(1e-4..1e7).contains(&size) && size > 0.0 {
        return format!("{value:.3e}");
    }
    let digits = if size >= 1.0 { 3 - (size.log10().floor() as i32).min(3) } else { 4 };
    let text = format!("{value:.*}", digits.max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The runs.
fn runs_table(runs: &[StepRunReport]) -> String {
    let mut rows = table(&["run", ">rows", ">median", ">bias", ">held-out rows", ">median", ">bias"]);
    for run in runs {
        let [fitted, held_out] = [&run.fitted, &run.held_out].map(cells);
        rows.add_row([vec![run.name.clone()], fitted.to_vec(), held_out.to_vec()].concat());
    }
    let mut out = rendered(rows, &[]);
    out.push_str("errors of means over windows of 50 sampled steps\n");
    for run in runs {
        let mut said = format!(
            "{} on {}, tensor_parallel_size {}; a step's start to the next one's start is the time of {}",
            run.model,
            run.hardware,
            run.tensor_parallel_size,
            run.alignment.in_words()
        );
        if let Some((own, before)) = run.alignment_slopes {
            said.push_str(&format!(
                " (times of single steps rise by {own:.2} of what is predicted of the step and {before:.2} of that of the one before)"
            ));
        }
        if run.dropped.total() > 0 {
            said.push_str(&format!("; left out: {}", run.dropped));
        }
        out.push_str(&wrap(&format!("{}: ", run.name), &said, width()));
    }
    out.push('\n');
    out
}

fn cells(errors: &Option<WindowErrors>) -> [String; 3] {
    match errors {
        Some(of) => [count(of.rows as u64), format!("{:.1} %", of.median_ape_pct), format!("{:+.1} %", of.bias_pct)],
        None => ["-", "-", "-"].map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ridgepoint_lab::fit::Target;

    use super::*;

    fn parameter(name: &str, value: f64, identified: bool, at_bound: bool) -> ParameterReport {
        ParameterReport {
            name: name.to_owned(),
            unit: "factor".to_owned(),
            prior: 1.0,
            prior_sd: 0.05,
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
            converged: false,
            why_stopped: "300 iterations were not enough".to_owned(),
            iterations: 300,
            cost_before: 1234.56,
            cost_after: 78.9,
            parameters: vec![parameter("projections", 1.0456, true, false), parameter("experts", 0.3, false, true)],
            notes: vec!["no row has 'experts': it stays at its prior".to_owned()],
        };
        let text = render(&report);
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

    #[test]
    fn numbers_keep_four_digits() {
        let shown = [0.0, 1.0, 0.05, 12.3456, 1234.56, 1e9, -2.5e-7].map(number);
        assert_eq!(shown, ["0", "1", "0.05", "12.35", "1235", "1.000e9", "-2.500e-7"]);
    }
}
