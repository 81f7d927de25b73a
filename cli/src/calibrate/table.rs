//! The table of `calibrate`: the errors of each operator, by number format, beside those of simpler methods.

use ridgepoint::Hardware;
use ridgepoint_lab::calibrate::report::{OperatorReport, Score};

use crate::text::{count, rendered, table, width, wrap};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Errors by operator, in the order of the documentation.
#[derive(Default)]
pub struct Reports(pub Vec<(&'static str, OperatorReport)>);

impl Serialize for Reports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (operator, report) in &self.0 {
            map.serialize_entry(operator, report)?;
        }
        map.end()
    }
}

/// Simpler methods, as the reports key them and as they are shown.
const SIMPLER: [(&str, &str); 3] = [
    ("kernel_model", "kernel model alone"),
    ("nearest_neighbour", "nearest neighbour"),
    ("constant_mfu", "one constant MFU"),
];

/// The whole report.
pub fn render(hardware: &Hardware, reports: &Reports) -> String {
    let width = width();
    let mut out = format!("{} ({})\n\n", hardware.name(), hardware.display_name());
    let mut rows = table(&["operator", ">rows", ">median", ">mean", ">p90", ">bias"]);
    for (operator, report) in &reports.0 {
        rows.add_row(line((*operator).to_owned(), &report.total));
        for (label, score) in &report.by_dtype {
            rows.add_row(line(format!("  {label}"), score));
        }
        if let Some(score) = &report.whole_lines_left_out {
            rows.add_row(line("  (whole lines left out)".to_owned(), score));
        }
        for (key, shown) in SIMPLER {
            if let Some(score) = report.compared.get(key) {
                rows.add_row(line(format!("  ({shown})"), score));
            }
        }
    }
    out.push_str(&rendered(rows, &["bias"]));
    out.push('\n');
    let mut methods: Vec<(&str, Vec<&str>)> = Vec::new();
    for (operator, report) in &reports.0 {
        match methods.iter_mut().find(|(method, _)| *method == report.method) {
            Some((_, operators)) => operators.push(operator),
            None => methods.push((&report.method, vec![operator])),
        }
    }
    for (method, operators) in methods {
        out.push_str(&wrap("", &format!("Absolute errors of {}: {method}.", operators.join(", ")), width));
    }
    for (operator, report) in &reports.0 {
        for (reason, left_out) in &report.left_out {
            out.push_str(&wrap(
                "left out: ",
                &format!("{} rows of {operator}: {reason}", count(*left_out as u64)),
                width,
            ));
        }
    }
    out
}

fn line(name: String, score: &Score) -> [String; 6] {
    let percent = |value: f64| format!("{value:.2} %");
    [
        name,
        count(score.rows as u64),
        percent(score.median_ape_pct),
        percent(score.mape_pct),
        percent(score.p90_ape_pct),
        format!("{:+.2} %", score.bias_pct),
    ]
}
