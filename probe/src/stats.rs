//! The figures of a handful of times.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank within a list")]

use serde::Serialize;

/// Least, middle and greatest of some times, ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// Middle; of an even number, the midpoint of the middle two.
    pub median: f64,
    /// The 99th percentile, interpolated between ranks.
    pub p99: f64,
    /// Greatest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// (max − min) / median, percent.
    pub spread_pct: f64,
    /// Number of times.
    pub count: usize,
}

impl Spread {
    /// The figures; `None` without a time.
    ///
    /// ```
    /// use ridgepoint_probe::Spread;
    ///
    /// let of = Spread::of([30.0, 10.0, 20.0, 40.0]).unwrap();
    /// assert_eq!((of.min, of.median, of.max, of.count), (10.0, 25.0, 40.0, 4));
    /// assert_eq!(of.spread_pct, 120.0);
    /// ```
    pub fn of(times: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = times.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (median, p99) = (quantile(&sorted, 0.5)?, quantile(&sorted, 0.99)?);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let spread_pct = if median > 0.0 { 100.0 * (max - min) / median } else { 0.0 };
        Some(Spread { min, median, p99, max, mean, spread_pct, count: sorted.len() })
    }
}

/// A quantile of ascending values, interpolated between ranks.
fn quantile(ascending: &[f64], q: f64) -> Option<f64> {
    let rank = q * ascending.len().checked_sub(1)? as f64;
    let (low, high) = (ascending.get(rank.floor() as usize)?, ascending.get(rank.ceil() as usize)?);
    Some(low + (high - low) * rank.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_has_no_figures_and_one_has_no_spread() {
        assert_eq!(Spread::of([]), None);
        let one = Spread::of([7.0]).unwrap();
        assert_eq!((one.median.to_bits(), one.spread_pct.to_bits(), one.count), (7f64.to_bits(), 0f64.to_bits(), 1));
    }

    #[test]
    fn percentiles_lie_between_ranks() {
        // Rank 0.99 × 100 of 0 to 100.
        let of = Spread::of((0..=100).map(f64::from)).unwrap();
        assert!((of.p99 - 99.0).abs() < 1e-9 && (of.mean - 50.0).abs() < 1e-9);
    }
}
