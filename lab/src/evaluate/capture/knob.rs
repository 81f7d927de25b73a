//! The latency knobs of llm-d-inference-sim: normal draws around a mean, which stay near it. Fitted to measured times.

use serde::Serialize;

use crate::stats::mean;

/// The largest standard deviation that the simulator accepts, as a share of the mean.
///
/// # Source
/// llm-d-inference-sim 0.9: `--time-to-first-token-std-dev` and `--inter-token-latency-std-dev` are at most 30 % of the mean.
pub const MAX_STD_DEV_SHARE: f64 = 0.3;

/// The least and the greatest draw, as shares of the mean. Draws beyond are moved there.
///
/// # Source
/// The same, whose draws are clamped to [0.3, 1.7] × mean.
const DRAWN_SHARES: [f64; 2] = [0.3, 1.7];

/// Halvings after which a quantile has all digits of an `f64`.
const HALVINGS: usize = 60;

/// A normal distribution, clamped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Knob {
    /// The mean, ms.
    pub mean_ms: f64,
    /// The standard deviation before draws are clamped, ms.
    pub std_dev_ms: f64,
    /// The measured standard deviation, ms.
    pub measured_std_dev_ms: f64,
    /// Whether the measured one is larger than the simulator accepts.
    pub is_capped: bool,
}

impl Knob {
    /// The knob with the mean and, as far as it is accepted, the standard deviation of measured times. `None` without a time above 0.
    ///
    /// ```
    /// use ridgepoint_lab::evaluate::capture::Knob;
    /// // The deviation is 5 ms, above 30 % of the mean.
    /// let knob = Knob::fit(&[5.0, 15.0]).unwrap();
    /// assert_eq!((knob.mean_ms, knob.std_dev_ms, knob.measured_std_dev_ms, knob.is_capped), (10.0, 3.0, 5.0, true));
    /// ```
    pub fn fit(times_ms: &[f64]) -> Option<Self> {
        let mean_ms = mean(times_ms)?;
        let variance = mean(&times_ms.iter().map(|time| (time - mean_ms).powi(2)).collect::<Vec<_>>())?;
        let (measured_std_dev_ms, most) = (variance.sqrt(), MAX_STD_DEV_SHARE * mean_ms);
        (mean_ms > 0.0 && variance.is_finite()).then(|| Knob {
            mean_ms,
            std_dev_ms: measured_std_dev_ms.min(most),
            measured_std_dev_ms,
            is_capped: measured_std_dev_ms > most,
        })
    }

    fn clamps_ms(&self) -> [f64; 2] {
        DRAWN_SHARES.map(|share| share * self.mean_ms)
    }

    /// The share of draws of at most `time_ms`.
    pub fn share_up_to(&self, time_ms: f64) -> f64 {
        let [least, most] = self.clamps_ms();
        match time_ms {
            _ if time_ms < least => 0.0,
            _ if time_ms >= most => 1.0,
            _ => self.normal_share(time_ms),
        }
    }

    /// The share of draws below `time_ms`: draws that are clamped are at the ends.
    pub fn share_below(&self, time_ms: f64) -> f64 {
        let [least, most] = self.clamps_ms();
        match time_ms {
            _ if time_ms <= least => 0.0,
            _ if time_ms > most => 1.0,
            _ if self.std_dev_ms <= 0.0 && time_ms <= self.mean_ms => 0.0,
            _ => self.normal_share(time_ms),
        }
    }

    fn normal_share(&self, time_ms: f64) -> f64 {
        if self.std_dev_ms <= 0.0 {
            return if time_ms >= self.mean_ms { 1.0 } else { 0.0 };
        }
        0.5 * libm::erfc((self.mean_ms - time_ms) / (self.std_dev_ms * std::f64::consts::SQRT_2))
    }

    /// The least time that at least `share` of the draws do not exceed, ms.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let [mut low, mut high] = self.clamps_ms();
        if self.share_up_to(low) >= share {
            return low;
        }
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if self.share_up_to(middle) >= share {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    }

    /// So many quantiles at even shares, ascending, ms.
    pub fn quantiles_ms(&self, count: usize) -> Vec<f64> {
        (0..count).map(|index| self.quantile_ms((index as f64 + 0.5) / count as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_normal_within_the_clamps() {
        // A deviation of 3 around 10: the clamps at 3 and 17 are 7/3 deviations away, where Φ(−2.3333) = 0.0098153.
        let knob = Knob::fit(&[5.0, 15.0]).unwrap();
        for (time_ms, below, up_to) in
            [(2.9, 0.0, 0.0), (3.0, 0.0, 0.009_815_3), (10.0, 0.5, 0.5), (13.0, 0.841_344_7, 0.841_344_7)]
        {
            assert!((knob.share_below(time_ms) - below).abs() < 1e-6, "{time_ms}");
            assert!((knob.share_up_to(time_ms) - up_to).abs() < 1e-6, "{time_ms}");
        }
        assert!((knob.share_below(17.0) - (1.0 - 0.009_815_3)).abs() < 1e-6);
        assert!((knob.share_up_to(17.0) - 1.0).abs() < 1e-12);
        for (share, clamp_ms) in [(0.001, 3.0), (0.999, 17.0)] {
            assert!((knob.quantile_ms(share) - clamp_ms).abs() < 1e-12, "{share}");
        }
        assert!((knob.quantile_ms(0.841_344_746) - 13.0).abs() < 1e-6);
    }

    #[test]
    fn a_deviation_that_is_accepted_stays() {
        let knob = Knob::fit(&[9.0, 11.0]).unwrap();
        assert_eq!((knob.std_dev_ms, knob.is_capped), (1.0, false));
        let constant = Knob::fit(&[4.0; 3]).unwrap();
        assert_eq!((constant.share_below(4.0), constant.share_up_to(4.0)), (0.0, 1.0));
        assert!((constant.quantile_ms(0.5) - 4.0).abs() < 1e-9);
        assert_eq!((Knob::fit(&[]), Knob::fit(&[0.0]), Knob::fit(&[f64::NAN])), (None, None, None));
    }
}
