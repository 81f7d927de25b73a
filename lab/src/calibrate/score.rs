//! Errors of predictions against measurements, and the summaries that are printed. Uses nothing else of the crate.

use std::collections::BTreeMap;

use serde::Serialize;

/// A predicted and a measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Predicted, µs.
    pub predicted_us: f64,
    /// Measured, µs.
    pub measured_us: f64,
}

impl Pair {
    /// Signed relative error `(predicted − measured) / measured`.
    pub fn error(&self) -> f64 {
        (self.predicted_us - self.measured_us) / self.measured_us
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
    /// Median signed error, percent: above zero where predictions are too long.
    pub bias_pct: f64,
}

impl Score {
    /// Summarises pairs; `None` where there are none.
    pub fn of(pairs: &[Pair]) -> Option<Score> {
        if pairs.is_empty() {
            return None;
        }
        let mut signed: Vec<f64> = pairs.iter().map(|p| 100.0 * p.error()).collect();
        let mut absolute: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
        signed.sort_by(f64::total_cmp);
        absolute.sort_by(f64::total_cmp);
        Some(Score {
            rows: pairs.len(),
            mape_pct: absolute.iter().sum::<f64>() / absolute.len() as f64,
            median_ape_pct: quantile(&absolute, 0.5),
            p90_ape_pct: quantile(&absolute, 0.9),
            bias_pct: quantile(&signed, 0.5),
        })
    }
}

/// Linear-interpolated quantile of ascending values.
pub fn quantile(ascending: &[f64], q: f64) -> f64 {
    let Some(last) = ascending.len().checked_sub(1) else { return f64::NAN };
    let at = q * last as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(last);
    ascending[low] + (ascending[high] - ascending[low]) * (at - low as f64)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_measurement() {
        let pairs: Vec<Pair> =
            [90.0, 100.0, 130.0].into_iter().map(|predicted_us| Pair { predicted_us, measured_us: 100.0 }).collect();
        let score = Score::of(&pairs).expect("three pairs");
        assert!((score.mape_pct - 40.0 / 3.0).abs() < 1e-9);
        assert!((score.median_ape_pct - 10.0).abs() < 1e-9);
        assert!((score.bias_pct - 0.0).abs() < 1e-9);
        assert!((score.p90_ape_pct - 26.0).abs() < 1e-9);
        assert!(Score::of(&[]).is_none());
    }
}
