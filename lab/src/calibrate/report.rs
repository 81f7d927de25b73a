//! The errors of predicted rows and the report of an operator.
#![expect(clippy::indexing_slicing, reason = "rows have as many simpler times as the report asks for")]

use std::collections::BTreeMap;

use serde::Serialize;

use crate::stats::ErrorSummary;

/// Rows left out, by reason.
pub type RowsLeftOut = BTreeMap<String, usize>;

/// Counts `rows` more rows that are left out for `reason`.
pub(super) fn leave_out(left_out: &mut RowsLeftOut, reason: &str, rows: usize) {
    if rows > 0 {
        *left_out.entry(reason.to_owned()).or_default() += rows;
    }
}

/// How calls that no table holds are predicted.
pub(super) const LOOKED_UP: &str = "looked up as in a prediction, no table holds such rows";

/// Why a call is left out whose requests are too long for a prediction.
pub(super) const TOO_LONG: &str = "more tokens in a request than a prediction takes";

/// Simpler methods that tables are compared with: the kernel model alone, the efficiency of the nearest row, and the
/// median efficiency of the label.
pub const SIMPLER: [&str; 3] = ["kernel_model", "nearest_neighbour", "constant_mfu"];

/// A measured row and its predictions.
#[derive(Debug, Clone)]
pub struct RowPrediction {
    /// Series of the table.
    pub series: String,
    /// Number format, launch mode or kernel name that errors are grouped by.
    pub label: String,
    /// Measured time, µs.
    pub measured_us: f64,
    /// Time predicted by tables, µs.
    pub predicted_us: f64,
    /// Whether the measured time is below the roofline bound; no prediction is.
    pub beats_roofline: bool,
    /// Times predicted by the methods of [`SIMPLER`], µs; `None` if they were not compared.
    pub simpler_us: [Option<f64>; 3],
}

impl RowPrediction {
    /// A row that is not compared with simpler methods.
    pub(super) fn new(series: &str, label: String, measured_us: f64, predicted_us: f64) -> Self {
        RowPrediction {
            series: series.to_owned(),
            label,
            measured_us,
            predicted_us,
            beats_roofline: false,
            simpler_us: [None; 3],
        }
    }
}

/// Errors of one operator, as printed and as in the JSON.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OperatorReport {
    /// All rows whose label counts in the total; `None` if every row was left out.
    #[serde(flatten)]
    pub total: Option<ErrorSummary>,
    /// By number format (by launch mode for all-reduce).
    pub by_dtype: BTreeMap<String, ErrorSummary>,
    /// The rows that do not beat the roofline, if others do: a repeated call finds its operands in L2, where a server's next step does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_roofline: Option<ErrorSummary>,
    /// How each row was predicted without being used.
    pub method: String,
    /// Rows that the shipped tables did not use, or rows left out in folds.
    pub rows_unseen: usize,
    /// The same rows by simpler methods, if they were compared.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub compared: BTreeMap<&'static str, ErrorSummary>,
    /// Rows predicted without the whole line of the table that they are on, as for a model that was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_lines_left_out: Option<ErrorSummary>,
    /// By series of the table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_series: BTreeMap<String, ErrorSummary>,
    /// Rows left out, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: RowsLeftOut,
    /// Text of the table, if one was built.
    #[serde(skip)]
    pub table: Option<String>,
}

impl OperatorReport {
    /// Scores predictions. If no label counts `in_total`, all of them do.
    pub(super) fn new(
        predictions: &[RowPrediction],
        in_total: fn(&str) -> bool,
        method: &str,
        left_out: RowsLeftOut,
    ) -> OperatorReport {
        let mut counted: Vec<&RowPrediction> = predictions.iter().filter(|row| in_total(&row.label)).collect();
        if counted.is_empty() {
            counted = predictions.iter().collect();
        }
        let simpler = |(index, name): (usize, &&'static str)| {
            let pairs = counted.iter().filter_map(|row| Some((row.measured_us, row.simpler_us[index]?)));
            Some((*name, ErrorSummary::of(pairs)?))
        };
        let score =
            |rows: &[&RowPrediction]| ErrorSummary::of(rows.iter().map(|row| (row.measured_us, row.predicted_us)));
        let within: Vec<&RowPrediction> = counted.iter().copied().filter(|row| !row.beats_roofline).collect();
        OperatorReport {
            total: score(&counted),
            within_roofline: if within.len() < counted.len() { score(&within) } else { None },
            by_dtype: scores_by(predictions, |row| &row.label),
            method: method.to_owned(),
            rows_unseen: counted.len(),
            compared: SIMPLER.iter().enumerate().filter_map(simpler).collect(),
            by_series: scores_by(predictions, |row| &row.series),
            left_out,
            ..OperatorReport::default()
        }
    }
}

/// One score per value of a key; rows whose key is empty are not scored.
fn scores_by(predictions: &[RowPrediction], key: impl Fn(&RowPrediction) -> &String) -> BTreeMap<String, ErrorSummary> {
    let mut groups: BTreeMap<&String, Vec<(f64, f64)>> = BTreeMap::new();
    for row in predictions.iter().filter(|row| !key(row).is_empty()) {
        groups.entry(key(row)).or_default().push((row.measured_us, row.predicted_us));
    }
    groups.into_iter().filter_map(|(name, pairs)| Some((name.clone(), ErrorSummary::of(pairs)?))).collect()
}
