//! Fits latency and bandwidth of a direction to sums over many copies, as servers log them every few seconds.
#![expect(clippy::indexing_slicing, reason = "two parameters")]

use ridgepoint::Result;
use ridgepoint::correction::SDS_OF_90_PCT;
use ridgepoint::units::US_PER_S;

use super::fit::Estimate;
use crate::huber;
use crate::solver::{LeastSquares, NumericFit, Options, Parameter, minimise, slopes};
use crate::stats::non_negative_least_squares;

/// Fewest intervals that determine a latency and a bandwidth.
const FEWEST: usize = 5;
/// Scatter of one copy's time before the sums are seen, as a share.
const FIRST_SCATTER: f64 = 0.3;
/// Rounds of a fit; the scatter settles in a few.
const ROUNDS: u32 = 10;
const WIDE: f64 = 100.0;
const OPTIONS: Options = Options { max_iterations: 100, tolerance: 1e-12 };

/// Sums over the copies of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CopySums {
    /// Copies.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their time, from the start of each copy to its end, s.
    pub seconds: f64,
}

/// Latency, µs, and bytes per second of a direction; `None` where the sums do not determine both.
///
/// # Formula
/// `time = count · latency + bytes / bandwidth` for each interval. A residual is the error as a share of the time, in units of
/// `scatter / √count`; the scatter is that of the residuals. Intervals are Student's.
///
/// # Errors
/// Those of the solver.
pub fn fit_copies(sums: &[CopySums]) -> Result<Option<(Estimate, Estimate)>> {
    let rows: Vec<&CopySums> = sums.iter().filter(|of| of.count > 0 && of.bytes > 0 && of.seconds > 0.0).collect();
    if rows.len() < FEWEST {
        return Ok(None);
    }
    let terms: Vec<[f64; 2]> = rows.iter().map(|of| [of.count as f64, of.bytes as f64]).collect();
    let times_us: Vec<f64> = rows.iter().map(|of| of.seconds * US_PER_S).collect();
    let weights: Vec<f64> = terms.iter().zip(&times_us).map(|(row, time)| row[0] / (time * time)).collect();
    let Some([latency_us, byte_us]) = non_negative_least_squares(&terms, &times_us, &weights) else { return Ok(None) };
    let total = |of: fn(&CopySums) -> f64| rows.iter().map(|row| of(row)).sum::<f64>();
    let whole_us = total(|of| of.seconds) * US_PER_S;
    let (scale_us, byte_scale_us) = (whole_us / total(|of| of.count as f64), whole_us / total(|of| of.bytes as f64));
    let parameter = |name, unit, scale: f64| Parameter {
        prior: scale,
        prior_sd: WIDE * scale,
        ..Parameter::overhead(name, unit, 0.0, 1.0)
    };
    let parameters = vec![parameter("latency", "µs", scale_us), parameter("byte_time", "µs", byte_scale_us)];
    let (mut values, mut scatter) = (vec![latency_us, byte_us], FIRST_SCATTER);
    let dof = rows.len() as f64 - 2.0;
    let mut variances = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        let residuals = |values: &[f64]| {
            let residual = |(row, time): (&[f64; 2], &f64)| {
                ((values[0] * row[0] + values[1] * row[1]) / time - 1.0) * row[0].sqrt() / scatter
            };
            Ok(terms.iter().zip(&times_us).map(residual).collect())
        };
        let problem = NumericFit { residuals, parameters: parameters.clone(), difference: 1e-7 };
        values = minimise(&problem, &values, OPTIONS)?.values;
        let Some(cholesky) = slopes(&problem, &values)?.curvature.cholesky() else { return Ok(None) };
        let covariance = cholesky.inverse();
        let chi_square = huber::chi_square(problem.residuals(&values)?.into_iter().map(|r| (1.0, r)));
        let widened = (chi_square / dof).max(1e-6);
        variances = [0, 1].map(|at| covariance[(at, at)] * widened);
        if (widened - 1.0).abs() < 0.01 {
            break;
        }
        scatter *= widened.sqrt();
    }
    let reach = variances.map(|variance| student_90(dof) * variance.sqrt());
    // A slope that may be 0 determines no bandwidth.
    if values[1] <= reach[1] {
        return Ok(None);
    }
    let latency = Estimate { value: values[0], lower: (values[0] - reach[0]).max(0.0), upper: values[0] + reach[0] };
    let rate = |byte_us: f64| US_PER_S / byte_us;
    let bandwidth =
        Estimate { value: rate(values[1]), lower: rate(values[1] + reach[1]), upper: rate(values[1] - reach[1]) };
    Ok(Some((latency, bandwidth)))
}

/// Half the width of Student's 90 % interval, in standard deviations.
///
/// # Formula
/// The expansion of Cornish and Fisher in `1/ν`; off by 2 % at 3 degrees of freedom.
fn student_90(dof: f64) -> f64 {
    let z = SDS_OF_90_PCT;
    z + (z.powi(3) + z) / (4.0 * dof) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * dof * dof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;
    use rand_pcg::Pcg64;

    /// Sums of `count` copies of random sizes, 200 µs and 2 GB/s.
    fn sums(seed: u64, intervals: usize) -> Vec<CopySums> {
        let mut random = Pcg64::new(u128::from(seed), 3);
        let interval = |_| {
            let (count, size) = (random.random_range(5..30_u64), random.random_range(50_000..3_000_000_u64));
            let copy = |_| {
                let bytes = size + random.random_range(0..50_000_u64);
                (bytes, (200e-6 + bytes as f64 / 2e9) * random.random_range(0.8..1.2))
            };
            let copies: Vec<(u64, f64)> = (0..count).map(copy).collect();
            CopySums {
                count,
                bytes: copies.iter().map(|(bytes, _)| bytes).sum(),
                seconds: copies.iter().map(|(_, seconds)| seconds).sum(),
            }
        };
        (0..intervals).map(interval).collect()
    }

    #[test]
    fn student_is_that_of_the_tables() {
        for (dof, expected) in [(3.0, 2.353), (8.0, 1.860), (30.0, 1.697)] {
            assert!((student_90(dof) / expected - 1.0).abs() < 0.02, "{dof}: {}", student_90(dof));
        }
    }

    #[test]
    fn planted_rates_lie_within_their_intervals() {
        let mut covered = [0, 0];
        for seed in 0..100 {
            let (latency, bandwidth) = fit_copies(&sums(seed, 10)).unwrap().unwrap();
            covered[0] += usize::from((latency.lower..=latency.upper).contains(&200.0));
            covered[1] += usize::from((bandwidth.lower..=bandwidth.upper).contains(&2e9));
        }
        assert!(covered.iter().all(|of| *of >= 85), "{covered:?}");
    }

    #[test]
    fn sums_that_determine_no_rates_give_none() {
        assert_eq!(fit_copies(&sums(1, 4)).unwrap(), None);
        // All intervals have the same bytes per copy: the two are one number.
        let equal = [CopySums { count: 3, bytes: 3000, seconds: 0.5 }; 12];
        let scaled = (1..20).map(|n| CopySums {
            count: n,
            bytes: 1000 * n,
            seconds: 0.1 * n as f64 * (1.0 + 0.01 * (n % 3) as f64),
        });
        assert_eq!(fit_copies(&scaled.collect::<Vec<_>>()).unwrap(), None);
        assert_eq!(fit_copies(&equal).unwrap(), None);
        assert_eq!(fit_copies(&[]).unwrap(), None);
    }
}
