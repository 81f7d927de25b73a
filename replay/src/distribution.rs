//! Mean, percentiles, extremes and standard deviation of a set of values or of histograms.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a position within a list")]

use hdrhistogram::Histogram;
use ridgepoint::units::ns_to_ms;
use serde::Serialize;

/// Summary of a set of values, in their unit. Percentiles interpolate linearly between ranks, as numpy does by default.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Standard deviation of the population (numpy's default: the divisor is the count).
    pub std: f64,
}

impl Distribution {
    /// Summarises `values`, in any order. Returns `None` if there are none or if one is not finite.
    ///
    /// ```
    /// use ridgepoint_replay::Distribution;
    ///
    /// // Of four values the 90th percentile is at rank 0.9 × 3 = 2.7: 30 + 0.7 × (40 − 30).
    /// let of = Distribution::of(vec![40.0, 10.0, 30.0, 20.0]).unwrap();
    /// assert_eq!((of.mean, of.p50, of.p90), (25.0, 25.0, 37.0));
    /// assert_eq!(Distribution::of(vec![]), None);
    /// ```
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        if values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        values.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        // Rounding may carry the mean of equal values past the extremes.
        let mean = (values.iter().sum::<f64>() / values.len() as f64).max(min).min(max);
        Some(Distribution::of_ranks(&values.into_iter().zip(1..).collect::<Vec<_>>(), mean, mean, min, max))
    }

    /// Summarises histograms of nanoseconds in milliseconds, with a mean that is known exactly. Returns `None` if they are
    /// empty. Percentiles interpolate between the middles of buckets. `min` and `max` are the outer edges of the outer
    /// buckets, so that no value lies beyond them.
    pub(super) fn of_ns_histograms<'a>(
        histograms: impl IntoIterator<Item = &'a Histogram<u64>>,
        mean_ms: f64,
    ) -> Option<Self> {
        let (mut min, mut max) = (u64::MAX, 0);
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for histogram in histograms.into_iter().filter(|histogram| !histogram.is_empty()) {
            min = min.min(histogram.min());
            max = max.max(histogram.max());
            buckets.extend(
                histogram
                    .iter_recorded()
                    .map(|found| (histogram.median_equivalent(found.value_iterated_to()), found.count_at_value())),
            );
        }
        buckets.sort_unstable();
        let mut count = 0;
        // The middle of each bucket in ms, and the number of values in it or below.
        let ranks: Vec<(f64, u64)> = buckets
            .iter()
            .map(|(middle_ns, values)| {
                count += values;
                (ns_to_ms(*middle_ns), count)
            })
            .collect();
        if count == 0 {
            return None;
        }
        // The deviation is taken around the buckets' own mean, so that equal values have none wherever they lie in a bucket.
        let centre = weighted_mean(&ranks, |middle| middle);
        Some(Distribution::of_ranks(&ranks, mean_ms, centre, ns_to_ms(min), ns_to_ms(max)))
    }

    /// Summarises ascending values, each with the number of values up to and including it. The deviation is taken around
    /// `centre`.
    fn of_ranks(ranks: &[(f64, u64)], mean: f64, centre: f64, min: f64, max: f64) -> Self {
        let count = ranks.last().map_or(0, |(_, count)| *count);
        let value_at = |rank: u64| {
            let position = ranks.partition_point(|(_, up_to)| *up_to <= rank);
            ranks.get(position).map_or(0.0, |(value, _)| *value)
        };
        let last = count.saturating_sub(1);
        let at = |quantile: f64| {
            let position = last as f64 * quantile;
            let rank = (position.floor() as u64).min(last);
            let (lower, upper) = (value_at(rank), value_at((rank + 1).min(last)));
            let share = position - rank as f64;
            // Interpolates from the nearer rank, as numpy does, so that both ends are exact.
            let step = upper - lower;
            let value = if share < 0.5 { lower + step * share } else { upper - step * (1.0 - share) };
            value.max(lower).min(upper)
        };
        let variance = weighted_mean(ranks, |value| (value - centre).powi(2));
        let (p50, p90, p95, p99) = (at(0.5), at(0.9), at(0.95), at(0.99));
        Distribution { count, mean, p50, p90, p95, p99, min, max, std: variance.sqrt() }
    }
}

/// The mean of a function of the values. `ranks` are not empty.
fn weighted_mean(ranks: &[(f64, u64)], of: impl Fn(f64) -> f64) -> f64 {
    let (mut below, mut sum) = (0, 0.0);
    for (value, up_to) in ranks {
        sum += of(*value) * (up_to - below) as f64;
        below = *up_to;
    }
    sum / below as f64
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_between_ranks_in_proportion() {
        // Ranks of 5 values: 0.5 × 4 = 2, 0.9 × 4 = 3.6, 0.95 × 4 = 3.8, 0.99 × 4 = 3.96.
        let of = Distribution::of(vec![5.0, 1.0, 3.0, 2.0, 10.0]).unwrap();
        assert_eq!((of.count, of.min, of.p50, of.max), (5, 1.0, 3.0, 10.0));
        assert_relative_eq!(of.p90, 5.0 + 0.6 * 5.0, max_relative = 1e-12);
        assert_relative_eq!(of.p95, 5.0 + 0.8 * 5.0, max_relative = 1e-12);
        assert_relative_eq!(of.p99, 5.0 + 0.96 * 5.0, max_relative = 1e-12);
        // (5 + 1 + 3 + 2 + 10) / 5 = 4.2; squares 0.64 + 10.24 + 1.44 + 4.84 + 33.64 = 50.8, a fifth of it is 10.16.
        assert_relative_eq!(of.mean, 4.2, max_relative = 1e-12);
        assert_relative_eq!(of.std, 10.16_f64.sqrt(), max_relative = 1e-12);
    }

    #[test]
    fn one_value_is_all_its_percentiles() {
        let of = Distribution::of(vec![7.25]).unwrap();
        let all = [of.mean, of.p50, of.p90, of.p95, of.p99, of.min, of.max];
        assert!(all.iter().all(|value| value.to_bits() == 7.25_f64.to_bits()), "{of:?}");
        assert_eq!((of.count, of.std.to_bits()), (1, 0));
    }

    #[test]
    fn nothing_is_said_of_nothing_or_of_what_is_not_finite() {
        assert_eq!(Distribution::of(vec![]), None);
        assert_eq!(Distribution::of(vec![1.0, f64::NAN]), None);
        assert_eq!(Distribution::of(vec![f64::INFINITY]), None);
        let empty = Histogram::<u64>::new(3).unwrap();
        assert_eq!(Distribution::of_ns_histograms([&empty, &empty], 1.0), None);
    }

    #[test]
    fn the_mean_of_equal_values_is_that_value() {
        // 0.1 + 0.1 + 0.1 is 0.30000000000000004.
        let of = Distribution::of(vec![0.1; 3]).unwrap();
        assert_eq!((of.mean.to_bits(), of.max.to_bits()), (0.1_f64.to_bits(), 0.1_f64.to_bits()));
    }

    #[test]
    fn histograms_are_taken_together_around_the_given_mean() {
        let mut first = Histogram::<u64>::new(3).unwrap();
        let mut second = Histogram::<u64>::new(3).unwrap();
        // 10 ms three times, 20 ms once: ranks 0 to 2 and 3. p90 is at rank 2.7: 10 + 0.7 × 10 = 17 ms.
        first.record_n(10_000_000, 2).unwrap();
        second.record(20_000_000).unwrap();
        second.record(10_000_000).unwrap();
        let of = Distribution::of_ns_histograms([&first, &second], 12.5).unwrap();
        assert_eq!((of.count, of.mean), (4, 12.5));
        assert_relative_eq!(of.p50, 10.0, max_relative = 1e-3);
        assert_relative_eq!(of.p90, 17.0, max_relative = 1e-3);
        // Deviations −2.5 three times and 7.5: (3 × 6.25 + 56.25) / 4 = 18.75.
        assert_relative_eq!(of.std, 18.75_f64.sqrt(), max_relative = 1e-3);
        assert!(of.min <= 10.0 && of.min > 9.99 && of.max >= 20.0 && of.max < 20.02, "{of:?}");
        let alone = Distribution::of_ns_histograms([&first], 10.0).unwrap();
        assert_eq!(alone.std.to_bits(), 0, "equal values have no spread");
    }

    proptest! {
        #[test]
        fn percentiles_rise_and_the_mean_is_inside(values in prop::collection::vec(0_u32..2_000_000_000, 1..200)) {
            let ms: Vec<f64> = values.iter().map(|value| f64::from(*value) / 1e6).collect();
            let exact = Distribution::of(ms.clone()).unwrap();
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            for value in &values {
                histogram.record(u64::from(*value)).unwrap();
            }
            let bucketed = Distribution::of_ns_histograms([&histogram], exact.mean).unwrap();
            for of in [exact, bucketed] {
                let rising = [of.min, of.p50, of.p90, of.p95, of.p99, of.max];
                prop_assert!(rising.windows(2).all(|pair| pair[0] <= pair[1]), "{of:?}");
                prop_assert!(of.min <= of.mean && of.mean <= of.max && of.std >= 0.0, "{of:?}");
                prop_assert!(of.std <= of.max - of.min + 1e-12, "{of:?}");
            }
            // Three significant digits, and the nearest nanosecond below a thousand of them.
            for (a, b) in [(exact.p50, bucketed.p50), (exact.p90, bucketed.p90), (exact.p99, bucketed.p99)] {
                prop_assert!((a - b).abs() <= 1e-3 * a + 1e-6, "{a} {b}");
            }
            let mut backwards = ms;
            backwards.reverse();
            prop_assert_eq!(Distribution::of(backwards), Some(exact));
        }
    }
}
