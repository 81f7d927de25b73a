//! The ends of steps, at which the ends of transfers are noticed, as far as the events of a capture report them.
#![expect(clippy::indexing_slicing, reason = "windows of two, and positions that a search found")]

use crate::stats::{mean, median};

/// Fewest consecutive steps that determine how much their lengths vary.
const FEWEST_STEPS: usize = 8;
/// Variation of the length of steps where it is not known, and the largest one, as a share.
const VARIATION: f64 = 0.4;
/// Gaps between batches without step numbers up to this many usual ones are a step each.
const ONE_STEP: f64 = 1.5;

/// A moment at which ended transfers are noticed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Notice {
    /// Its time, µs.
    pub at_us: f64,
    /// The number of its step.
    pub step: Option<u64>,
}

/// The moments that are known, in order.
#[derive(Debug, Clone, Default)]
pub struct Notices {
    moments: Vec<Notice>,
    /// Standard deviation of a step's length, as a share of it.
    variation: f64,
    /// Median time between two moments, µs.
    usual_us: f64,
}

impl Notices {
    /// Sorts moments. Those of the same step, or of the same time, are one: the earliest.
    pub fn new(mut moments: Vec<Notice>) -> Self {
        moments.sort_by(|one, other| one.at_us.total_cmp(&other.at_us));
        moments
            .dedup_by(|later, first| later.at_us <= first.at_us || (later.step.is_some() && later.step == first.step));
        let gaps = |of: &dyn Fn(&Notice, &Notice) -> bool| -> Vec<f64> {
            let pairs = moments.windows(2).filter(|pair| of(&pair[0], &pair[1]));
            pairs.map(|pair| pair[1].at_us - pair[0].at_us).collect()
        };
        let single = gaps(&|one, other| steps_between(one, other) == Some(1));
        let usual_us = median(gaps(&|_, _| true)).unwrap_or(0.0);
        let variation = mean(&single).filter(|_| single.len() >= FEWEST_STEPS).map_or(VARIATION, |mean_us| {
            let squares: Vec<f64> = single.iter().map(|gap| (gap - mean_us).powi(2)).collect();
            (mean(&squares).unwrap_or(0.0).sqrt() / mean_us).min(VARIATION)
        });
        Notices { moments, variation, usual_us }
    }

    /// Returns when the step before the one that noticed an end had ended, and the standard deviation of that, both µs. Where no earlier
    /// step is known, that is any time.
    ///
    /// # Formula
    /// Steps without an event leave no trace, so the last known moment may be `n` steps earlier. The step before then ended about
    /// `(n − 1) / n` of the way. To take the last known moment itself would make every end look too early, because an end in
    /// one of the steps between had left a trace.
    pub fn before(&self, noticed: Notice) -> (f64, f64) {
        let after = self.moments.partition_point(|of| of.at_us < noticed.at_us);
        let is_earlier = |of: &&Notice| of.step.is_none() || of.step != noticed.step;
        let Some(last) = self.moments[..after].iter().rev().find(is_earlier) else {
            return (f64::NEG_INFINITY, 0.0);
        };
        let gap_us = noticed.at_us - last.at_us;
        let steps = match steps_between(last, &noticed) {
            Some(steps) => steps as f64,
            None if gap_us <= ONE_STEP * self.usual_us => 1.0,
            None => gap_us / self.usual_us,
        };
        let length_us = gap_us / steps.max(1.0);
        let variation = if steps > 1.0 { self.variation * (1.0 - 1.0 / steps).sqrt() } else { 0.0 };
        (noticed.at_us - length_us, variation * length_us)
    }
}

/// Steps from one moment to another; `None` where a number is missing or does not rise.
fn steps_between(one: &Notice, other: &Notice) -> Option<u64> {
    other.step?.checked_sub(one.step?).filter(|steps| *steps > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(of: &[(f64, Option<u64>)]) -> Notices {
        Notices::new(of.iter().map(|(at_us, step)| Notice { at_us: *at_us, step: *step }).collect())
    }

    #[test]
    fn the_step_before_is_found_by_number() {
        let known = notices(&[(100.0, Some(1)), (101.0, Some(1)), (200.0, Some(2)), (600.0, Some(6))]);
        // Step 1 ends the interval of step 2, whichever of its stamps.
        assert_eq!(known.before(Notice { at_us: 200.0, step: Some(2) }), (100.0, 0.0));
        // Four steps of 100: the last of them began at 500; √(3/4) of the assumed 40 is its uncertainty.
        let (before_us, sd_us) = known.before(Notice { at_us: 600.0, step: Some(6) });
        assert!(
            (before_us - 500.0).abs() < 1e-9 && (sd_us - 40.0 * 0.75_f64.sqrt()).abs() < 1e-9,
            "{before_us} {sd_us}"
        );
    }

    #[test]
    fn without_numbers_the_usual_gap_is_a_step() {
        let known = notices(&[(0.0, None), (10.0, None), (20.0, None), (30.0, None), (90.0, None)]);
        assert_eq!(known.before(Notice { at_us: 30.0, step: None }), (20.0, 0.0));
        let (before_us, sd_us) = known.before(Notice { at_us: 90.0, step: None });
        assert!((before_us - 80.0).abs() < 1e-9 && sd_us > 3.0, "{before_us} {sd_us}");
        assert_eq!(notices(&[]).before(Notice { at_us: 5.0, step: None }), (f64::NEG_INFINITY, 0.0));
    }
}
