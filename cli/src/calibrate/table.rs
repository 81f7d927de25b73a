//! The table of `calibrate`: the errors of each operator, by number format, compared with those of simpler methods.

use std::collections::BTreeMap;

use ridgepoint_lab::calibrate::report::OperatorReport;
use ridgepoint_lab::stats::ErrorSummary;

use crate::outcome::Report;
use crate::text::{Page, Rows, count};
use serde::{Serialize, Serializer};

/// Errors by operator, in the order of the documentation.
pub struct Reports {
    /// The GPU.
    pub title: String,
    /// Names and errors.
    pub operators: Vec<(&'static str, OperatorReport)>,
}

impl Serialize for Reports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.operators.iter().map(|(operator, report)| (operator, report)))
    }
}

impl Report for Reports {
    fn lay_out(&self, page: &mut Page) {
        page.line(&self.title);
        page.blank();
        let percent = |value: f64| format!("{value:.2} %");
        let rows = Rows::of(self.operators.iter().flat_map(lines))
            .left("operator", |(name, _)| name.clone())
            .right("rows", |(_, of)| count(of.rows))
            .right("median", |(_, of)| percent(of.median_ape_pct))
            .right("mean", |(_, of)| percent(of.mape_pct))
            .right("p90", |(_, of)| percent(of.p90_ape_pct))
            .right("bias", |(_, of)| format!("{:+.2} %", of.bias_pct));
        page.rows(&rows, &["bias"]);
        page.blank();
        let mut methods: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (operator, report) in &self.operators {
            methods.entry(&report.method).or_default().push(operator);
        }
        for (method, operators) in methods {
            page.paragraph("", &format!("Absolute errors of {}: {method}.", operators.join(", ")));
        }
        for (operator, report) in &self.operators {
            for (reason, left_out) in &report.left_out {
                page.paragraph("left out: ", &format!("{} rows of {operator}: {reason}", count(*left_out)));
            }
        }
    }
}

/// The lines of an operator: all rows, each label, rows within the roofline, whole lines left out, and simpler methods.
fn lines<'a>((operator, report): &'a (&'static str, OperatorReport)) -> Vec<(String, &'a ErrorSummary)> {
    let total = report.total.iter().map(|of| ((*operator).to_owned(), of));
    let labels = report.by_dtype.iter().map(|(label, of)| (format!("  {label}"), of));
    let within = report.within_roofline.iter().map(|of| ("  (rows that do not beat the roofline)".to_owned(), of));
    let whole_lines = report.whole_lines_left_out.iter().map(|of| ("  (whole lines left out)".to_owned(), of));
    let simpler = report.compared.iter().map(|(method, of)| (format!("  ({})", method.replace('_', " ")), of));
    total.chain(labels).chain(within).chain(whole_lines).chain(simpler).collect()
}
