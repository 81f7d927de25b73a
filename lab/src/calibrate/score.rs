//! Errors of predictions against measurements, and the summaries that are printed. Uses nothing else of the crate.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::stats::{ErrorSummary, error_pct};

/// A predicted and a measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Predicted, µs.
    pub predicted_us: f64,
    /// Measured, µs.
    pub measured_us: f64,
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
    /// Median signed error, percent: above zero where predictions are too long.
    pub bias_pct: f64,
}

impl Score {
    /// Summarises pairs; `None` where there are none.
    pub fn of(pairs: &[Pair]) -> Option<Score> {
        let errors = pairs.iter().map(|pair| error_pct(pair.measured_us, pair.predicted_us)).collect();
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

/// Pairs under a label each, summed up together and by label.
#[derive(Debug, Default, Clone)]
pub struct Labelled {
    /// Pairs by label (number format, head size).
    pub by_label: BTreeMap<String, Vec<Pair>>,
}

impl Labelled {
    /// Adds a pair.
    pub fn push(&mut self, label: &str, pair: Pair) {
        self.by_label.entry(label.to_owned()).or_default().push(pair);
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.by_label.values().map(Vec::len).sum()
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything together; `None` where empty.
    pub fn total(&self) -> Option<Score> {
        let all: Vec<Pair> = self.by_label.values().flatten().copied().collect();
        Score::of(&all)
    }

    /// One summary per label.
    pub fn scores(&self) -> BTreeMap<String, Score> {
        self.by_label.iter().filter_map(|(label, pairs)| Score::of(pairs).map(|s| (label.clone(), s))).collect()
    }
}
