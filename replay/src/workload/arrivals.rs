//! Send times of requests: drawn from a seed, in ns from the start of a stage, in constant memory. Callers check rates and
//! counts.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use rand_distr::{Distribution, Exp1, Gamma, Poisson};
use rand_pcg::Pcg64;
use ridgepoint::units::NS_PER_S;

/// Distribution of the gaps between requests of a generated load; their mean is 1/rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ArrivalPattern {
    /// A Poisson process: exponential gaps.
    Poisson,
    /// Request k (from 0) is sent at k / rate.
    Deterministic,
    /// Gamma gaps of this shape, scaled so that the last of n requests is sent at n / rate. A shape of 1 is exponential, a
    /// smaller one burstier, a larger one smoother.
    ///
    /// # Source
    /// vLLM, `vllm/benchmarks/serve.py`, `--burstiness`.
    Gamma {
        /// Shape of the gamma distribution, above 0.
        burstiness: f64,
    },
}

impl ArrivalPattern {
    /// Returns the pattern of vLLM's `--burstiness`; 1 is Poisson.
    pub fn of_burstiness(burstiness: f64) -> Self {
        match burstiness {
            1.0 => ArrivalPattern::Poisson,
            burstiness => ArrivalPattern::Gamma { burstiness },
        }
    }
}

/// Times of one stage, ns from its start, that never decrease.
pub(super) struct ArrivalTimes {
    times: Box<dyn Iterator<Item = u64> + Send>,
    next_ns: Option<u64>,
}

impl ArrivalTimes {
    fn new(mut times: impl Iterator<Item = u64> + Send + 'static) -> Self {
        ArrivalTimes { next_ns: times.next(), times: Box::new(times) }
    }

    /// The next of the times, which stays the next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// inference-perf's `constant` load: `count` exponential gaps, scaled so that the last request is sent at the end of
    /// the span.
    ///
    /// # Source
    /// inference-perf 0.3.0, `loadgen/load_timer.py`, `ConstantLoadTimer`.
    pub(super) fn constant(mut rng: Pcg64, count: u64, span_ns: u64) -> Self {
        Self::new(filled(&mut rng, Exp1, count, 0, span_ns))
    }

    /// inference-perf's `poisson` load: a Poisson number of requests in each second, spread as in
    /// [`constant`](Self::constant), until `count` are sent.
    ///
    /// # Source
    /// inference-perf 0.3.0, `loadgen/load_timer.py`, `PoissonLoadTimer`.
    pub(super) fn poisson_seconds(mut rng: Pcg64, count: u64, rate_per_s: f64) -> Self {
        let Ok(counts) = Poisson::new(rate_per_s) else { return Self::new(std::iter::empty()) };
        let within = move |second: u64| {
            let number = counts.sample(&mut rng) as u64;
            filled(&mut rng, Exp1, number, second.saturating_mul(NS_PER_S), NS_PER_S)
        };
        Self::new((0..).flat_map(within).take(count as usize))
    }

    /// `count` requests of a generated load.
    pub(super) fn pattern(pattern: ArrivalPattern, mut rng: Pcg64, count: u64, rate_per_s: f64) -> Self {
        match pattern {
            ArrivalPattern::Poisson => {
                let mean_ns = NS_PER_S as f64 / rate_per_s;
                Self::new((0..count).scan(0.0_f64, move |elapsed_ns, _| {
                    let gap: f64 = Exp1.sample(&mut rng);
                    *elapsed_ns += gap * mean_ns;
                    Some(elapsed_ns.round() as u64)
                }))
            }
            ArrivalPattern::Deterministic => Self::new((0..count).map(move |request| even_ns(request, rate_per_s))),
            ArrivalPattern::Gamma { burstiness } => {
                let span_ns = even_ns(count, rate_per_s);
                match Gamma::new(burstiness, 1.0) {
                    Ok(gaps) => Self::new(filled(&mut rng, gaps, count, 0, span_ns)),
                    Err(_) => Self::constant(rng, count, span_ns),
                }
            }
        }
    }
}

impl std::fmt::Debug for ArrivalTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArrivalTimes")
    }
}

impl Iterator for ArrivalTimes {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        std::mem::replace(&mut self.next_ns, self.times.next())
    }
}

fn even_ns(requests: u64, rate_per_s: f64) -> u64 {
    (requests as f64 * NS_PER_S as f64 / rate_per_s).round() as u64
}

/// Gaps that are scaled to fill a span to the nanosecond. A first pass, by `rng` itself, draws them for their sum, so that none is stored.
fn filled<D: Distribution<f64>>(
    rng: &mut Pcg64,
    gaps: D,
    count: u64,
    start_ns: u64,
    span_ns: u64,
) -> impl Iterator<Item = u64> + use<D> {
    let mut second_pass = rng.clone();
    let total = (0..count).fold(0.0, |sum, _| sum + gaps.sample(rng));
    (0..count).scan(0.0, move |sum, _| {
        *sum += gaps.sample(&mut second_pass);
        Some(start_ns.saturating_add((*sum / total * span_ns as f64).round() as u64))
    })
}

#[cfg(test)]
mod tests {
    use super::super::seed::{Stream, generator};
    use super::*;

    fn rng(seed: u64) -> Pcg64 {
        generator(seed, Stream::Arrivals, 0)
    }

    fn constant(seed: u64, rate: u64, duration_s: u64) -> Vec<u64> {
        ArrivalTimes::constant(rng(seed), rate * duration_s, duration_s * NS_PER_S).collect()
    }

    /// Variance over mean of the number of requests in each of the first seconds; one sent at the end of a second is its last.
    fn dispersion(times: &[u64], seconds: usize) -> f64 {
        let mut counts = vec![0.0; seconds];
        for time in times {
            if let Some(count) = counts.get_mut((time.saturating_sub(1) / NS_PER_S) as usize) {
                *count += 1.0;
            }
        }
        let mean = counts.iter().sum::<f64>() / seconds as f64;
        counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (seconds - 1) as f64 / mean
    }

    fn sorted(times: &[u64]) -> bool {
        times.windows(2).all(|pair| pair[0] <= pair[1])
    }

    #[test]
    fn constant_load_ends_on_the_last_nanosecond_of_its_span() {
        for seed in 0..20 {
            let times = constant(seed, 5, 600);
            assert_eq!((times.len(), times.last()), (3000, Some(&600_000_000_000)));
            assert!(sorted(&times));
        }
        let odd: Vec<u64> = ArrivalTimes::constant(rng(3), 7, 1_000_000_007).collect();
        assert_eq!(odd.last(), Some(&1_000_000_007));
    }

    #[test]
    fn constant_load_varies_from_second_to_second_as_a_poisson_process_does() {
        // Over 10,000 seconds the ratio's standard error is √(2 / 10⁴) = 0.014.
        let ratio = dispersion(&constant(1, 10, 10_000), 10_000);
        assert!((0.94..1.06).contains(&ratio), "{ratio}");
    }

    #[test]
    fn poisson_load_sends_its_number_and_fills_whole_seconds() {
        let times: Vec<u64> = ArrivalTimes::poisson_seconds(rng(1), 30_000, 3.0).collect();
        assert_eq!(times.len(), 30_000);
        assert!(sorted(&times));
        let ratio = dispersion(&times, 9_500);
        assert!((0.94..1.06).contains(&ratio), "{ratio}");
        // The last request of a second is sent at its very end: of 10,000 seconds, e⁻³ = 5.0 % are empty.
        let full = times.iter().filter(|time| *time % NS_PER_S == 0).count();
        assert!((9_350..9_650).contains(&full), "{full}");
    }

    #[test]
    fn a_rate_far_below_one_still_sends_its_requests() {
        let times: Vec<u64> = ArrivalTimes::poisson_seconds(rng(5), 10, 0.01).collect();
        assert_eq!(times.len(), 10);
        let mean_gap_s = times[9] as f64 / 10.0 / 1e9;
        assert!((40.0..250.0).contains(&mean_gap_s), "{mean_gap_s}");
    }

    #[test]
    fn even_gaps_do_not_drift() {
        let times: Vec<u64> = ArrivalTimes::pattern(ArrivalPattern::Deterministic, rng(0), 4, 3.0).collect();
        assert_eq!(times, [0, 333_333_333, 666_666_667, 1_000_000_000]);
        let last = ArrivalTimes::pattern(ArrivalPattern::Deterministic, rng(0), 3_000_001, 3.0).last();
        assert_eq!(last, Some(1_000_000 * NS_PER_S));
    }

    #[test]
    fn a_poisson_process_has_its_rate_and_its_variance() {
        let times: Vec<u64> = ArrivalTimes::pattern(ArrivalPattern::Poisson, rng(2), 100_000, 10.0).collect();
        let span_s = times[99_999] as f64 / 1e9;
        assert!((9_900.0..10_100.0).contains(&span_s), "{span_s}");
        let ratio = dispersion(&times, 9_500);
        assert!((0.94..1.06).contains(&ratio), "{ratio}");
    }

    #[test]
    fn burstiness_is_the_inverse_of_the_variance() {
        // Gamma gaps of shape s have variance / mean² = 1 / s.
        for (burstiness, expected) in [(0.25, 4.0), (1.0, 1.0), (4.0, 0.25)] {
            let pattern = ArrivalPattern::Gamma { burstiness };
            let times: Vec<u64> = ArrivalTimes::pattern(pattern, rng(4), 100_000, 50.0).collect();
            assert_eq!(times[99_999], 2_000 * NS_PER_S);
            let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let ratio = variance / (mean * mean) / expected;
            assert!((0.94..1.06).contains(&ratio), "shape {burstiness}: {ratio}");
        }
    }

    #[test]
    fn the_seed_fixes_every_time() {
        assert_eq!(constant(9, 10, 60), constant(9, 10, 60));
        assert_ne!(constant(9, 10, 60), constant(10, 10, 60));
        let poisson = |seed| ArrivalTimes::poisson_seconds(rng(seed), 100, 4.0).collect::<Vec<u64>>();
        assert_eq!(poisson(9), poisson(9));
        assert_ne!(poisson(9), poisson(10));
    }
}
