//! Step times that scatter around those of a latency model, as measured ones do. A replay without it has no random number.

use std::sync::{Mutex, PoisonError};

use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;
use ridgepoint::latency::{HostTimes, LatencyModel, TransferDirection};
use ridgepoint::{Error, Result, Step};

use crate::workload::seed::{Stream, generator};

/// Largest standard deviation of the logarithm of a factor.
const MAX_SIGMA: f64 = 1.0;

/// A latency model whose steps are each multiplied by a random factor of mean 1; the host's delays stay.
///
/// It makes no promise of purity: each call draws the next factor, so that equal steps take different times. The order of calls and
/// the seed decide the draws, and a replay calls once for each step: equal replays with fresh models of one seed are equal.
///
/// # Formula
/// `exp(σ·z − σ²/2)` with a standard normal `z`: log-normal, mean 1, and `σ` is about the relative standard deviation.
///
/// ```
/// use ridgepoint::latency::{FixedLatency, LatencyModel};
/// use ridgepoint_replay::NoisySteps;
/// use ridgepoint::{Request, Step};
/// let fixed = FixedLatency { step_us: 1000.0, ..FixedLatency::default() };
/// let step = || NoisySteps::new(&fixed, 0.05, 7).map(|noisy| noisy.step_time_us(&Step::from(&[Request::decode(9)])));
/// assert_eq!(step()?, step()?);
/// assert!(step()? != 1000.0);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
pub struct NoisySteps<'a> {
    model: &'a dyn LatencyModel,
    sigma: f64,
    draws: Mutex<Pcg64>,
}

impl<'a> NoisySteps<'a> {
    /// Spreads the steps of `model` by `sigma`, with draws that follow from `seed`.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` unless `sigma` is from 0 to 1.
    pub fn new(model: &'a dyn LatencyModel, sigma: f64, seed: u64) -> Result<Self> {
        if !(0.0..=MAX_SIGMA).contains(&sigma) {
            return Err(Error::invalid_argument("noise", sigma.to_string(), "must be from 0 to 1"));
        }
        Ok(NoisySteps { model, sigma, draws: Mutex::new(generator(seed, Stream::StepTimes, 0)) })
    }
}

impl LatencyModel for NoisySteps<'_> {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        let z: f64 = StandardNormal.sample(&mut *self.draws.lock().unwrap_or_else(PoisonError::into_inner));
        self.model.step_time_us(step) * (self.sigma * z - 0.5 * self.sigma * self.sigma).exp()
    }

    fn host(&self) -> HostTimes {
        self.model.host()
    }

    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        self.model.kv_transfer_time_us(direction, bytes)
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::Request;
    use ridgepoint::latency::FixedLatency;

    use super::*;

    fn steps(sigma: f64, seed: u64, count: usize) -> Vec<f64> {
        let fixed = FixedLatency { step_us: 1000.0, ..FixedLatency::default() };
        let noisy = NoisySteps::new(&fixed, sigma, seed).expect("from 0 to 1");
        (0..count).map(|_| noisy.step_time_us(&Step::from(&[Request::decode(9)]))).collect()
    }

    #[test]
    fn the_mean_stays_and_the_spread_is_the_one_asked_for() {
        for (sigma, seed) in [(0.05, 1), (0.3, 2)] {
            let times = steps(sigma, seed, 40_000);
            let count = times.len() as f64;
            let mean = times.iter().sum::<f64>() / count;
            // A log-normal of mean 1 has the variance exp(σ²) − 1. Four standard errors hold but once in 16,000 seeds.
            let sd = 1000.0 * ((sigma * sigma).exp() - 1.0).sqrt();
            assert!((mean - 1000.0).abs() < 4.0 * sd / count.sqrt(), "{sigma}: {mean}");
            let logs: Vec<f64> = times.iter().map(|time| (time / 1000.0).ln()).collect();
            let centre = logs.iter().sum::<f64>() / count;
            let spread = (logs.iter().map(|log| (log - centre).powi(2)).sum::<f64>() / count).sqrt();
            assert!((spread / sigma - 1.0).abs() < 0.02, "{sigma}: {spread}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_draws_and_no_spread_changes_nothing() {
        assert_eq!(steps(0.05, 3, 10), steps(0.05, 3, 10));
        assert_ne!(steps(0.05, 3, 10), steps(0.05, 4, 10));
        assert!(steps(0.0, 3, 10).iter().all(|time| (time - 1000.0).abs() <= 0.0));
        for sigma in [-0.1, 1.1, f64::NAN] {
            assert!(NoisySteps::new(&FixedLatency::default(), sigma, 0).is_err(), "{sigma}");
        }
    }
}
