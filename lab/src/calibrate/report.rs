//! The errors of predicted rows and the report of an operator.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::stats::{ErrorSummary, error_pct};

/// Rows left out, by reason.
pub type LeftOut = BTreeMap<String, usize>;

/// Counts `rows` more rows that are left out for `reason`.
pub(super) fn leave_out(left_out: &mut LeftOut, reason: &str, rows: usize) {
    if rows > 0 {
        *left_out.entry(reason.to_owned()).or_default() += rows;
    }
}

/// Summary of absolute percentage errors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Score {
    /// Rows.
    pub rows: usize,
    /// Mean absolute percentage error.
    pub mape_pct: f64,
    /// Median absolute percentage error.
    pub median_ape_pct: f64,
    /// 90th percentile of the absolute percentage error.
    pub p90_ape_pct: f64,
    /// Median signed error, percent: positive if predictions are too long.
    pub bias_pct: f64,
}

impl Score {
    /// Summarises pairs of measured and predicted times; `None` without pairs.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Score> {
        let errors = pairs.into_iter().map(|(measured, predicted)| error_pct(measured, predicted)).collect();
        let summary = ErrorSummary::of(errors)?;
        Some(Score {
            rows: summary.count,
            mape_pct: summary.mean_abs_pct,
            median_ape_pct: summary.median_abs_pct,
            p90_ape_pct: summary.p90_abs_pct,
            bias_pct: summary.bias_pct,
        })
    }
}

/// Simpler methods that tables are compared with: the kernel model alone, the efficiency of the nearest row, and the
/// median efficiency of the label.
pub const SIMPLER: [&str; 3] = ["kernel_model", "nearest_neighbour", "constant_mfu"];

/// A measured row and its predictions.
#[derive(Debug, Clone)]
pub struct Prediction {
    /// Series of the table.
    pub series: String,
    /// Number format, launch mode or kernel name that errors are grouped by.
    pub label: String,
    /// Measured time, µs.
    pub measured_us: f64,
    /// Time predicted by tables, µs.
    pub predicted_us: f64,
    /// Times predicted by the methods of [`SIMPLER`], µs; `None` if they were not compared.
    pub simpler_us: [Option<f64>; 3],
}

impl Prediction {
    fn pair(&self) -> (f64, f64) {
        (self.measured_us, self.predicted_us)
    }
}

/// Errors of one operator, as printed and as in the JSON.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OperatorReport {
    /// All rows whose label counts in the total; `None` if every row was left out.
    #[serde(flatten)]
    pub total: Option<Score>,
    /// By number format (by launch mode for all-reduce).
    pub by_dtype: BTreeMap<String, Score>,
    /// How each row was predicted without being used.
    pub method: String,
    /// Rows that the shipped tables did not use, or rows left out in folds.
    pub rows_unseen: usize,
    /// The same rows by simpler methods, if they were compared.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub compared: BTreeMap<&'static str, Score>,
    /// Rows predicted without the whole line of the table that they are on, as for a model that was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_lines_left_out: Option<Score>,
    /// By series of the table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_series: BTreeMap<String, Score>,
    /// Rows left out, by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: LeftOut,
    /// Text of the table, if one was built.
    #[serde(skip)]
    pub table: Option<String>,
}

impl OperatorReport {
    /// Scores predictions. If no label counts `in_total`, all of them do.
    pub(super) fn new(
        predictions: &[Prediction],
        in_total: impl Fn(&str) -> bool,
        method: &str,
        left_out: LeftOut,
    ) -> OperatorReport {
        let mut counted: Vec<&Prediction> = predictions.iter().filter(|row| in_total(&row.label)).collect();
        if counted.is_empty() {
            counted = predictions.iter().collect();
        }
        let simpler = |(index, name): (usize, &&'static str)| {
            let pairs = counted.iter().filter_map(|row| Some((row.measured_us, row.simpler_us[index]?)));
            Some((*name, Score::of(pairs)?))
        };
        OperatorReport {
            total: Score::of(counted.iter().map(|row| row.pair())),
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
fn scores_by(predictions: &[Prediction], key: impl Fn(&Prediction) -> &String) -> BTreeMap<String, Score> {
    let mut groups: BTreeMap<&String, Vec<(f64, f64)>> = BTreeMap::new();
    for row in predictions.iter().filter(|row| !key(row).is_empty()) {
        groups.entry(key(row)).or_default().push(row.pair());
    }
    groups.into_iter().filter_map(|(name, pairs)| Some((name.clone(), Score::of(pairs)?))).collect()
}
