//! The table of `calibrate`: the errors of each operator, by number format, beside those of simpler methods.

use ridgepoint_lab::calibrate::report::{OperatorReport, Score};

use crate::outcome::Report;
use crate::text::{count, rendered, table, width, wrap};
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

/// Simpler methods, as the reports key them and as they are shown.
const SIMPLER: [(&str, &str); 3] = [
    ("kernel_model", "kernel model alone"),
    ("nearest_neighbour", "nearest neighbour"),
    ("constant_mfu", "one constant MFU"),
];

impl Report for Reports {
    fn table(&self) -> String {
        let width = width();
        let mut out = format!("{}\n\n", self.title);
        let mut rows = table(&["operator", ">rows", ">median", ">mean", ">p90", ">bias"]);
        for (operator, report) in &self.operators {
            let labels = report.by_dtype.iter().map(|(label, score)| (format!("  {label}"), score));
            let lines = report.whole_lines_left_out.iter().map(|score| ("  (whole lines left out)".to_owned(), score));
            let simpler =
                SIMPLER.iter().filter_map(|(key, shown)| Some((format!("  ({shown})"), report.compared.get(key)?)));
            let total = report.total.iter().map(|score| ((*operator).to_owned(), score));
            for (name, score) in total.chain(labels).chain(lines).chain(simpler) {
                rows.add_row(line(name, score));
            }
        }
        out.push_str(&rendered(rows, &["bias"]));
        out.push('\n');
        let mut methods: Vec<(&str, Vec<&str>)> = Vec::new();
        for (operator, report) in &self.operators {
            match methods.iter_mut().find(|(method, _)| *method == report.method) {
                Some((_, operators)) => operators.push(operator),
                None => methods.push((&report.method, vec![operator])),
            }
        }
        for (method, operators) in methods {
            out.push_str(&wrap("", &format!("Absolute errors of {}: {method}.", operators.join(", ")), width));
        }
        for (operator, report) in &self.operators {
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
