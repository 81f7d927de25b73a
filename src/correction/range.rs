//! The sizes of the steps that a correction was fitted on: beyond them it is extrapolated. Uses `physics::BatchSums`.

use serde::{Deserialize, Serialize};

use crate::physics::BatchSums;

/// Relative standard deviation that a prediction gains for each doubling beyond the fitted steps (assumed).
const SD_PER_DOUBLING: f64 = 0.1;
/// The most that it gains.
const MAX_SD: f64 = 0.3;

/// Least and greatest size of the steps that a correction was fitted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedRange {
    /// Requests of a step.
    pub num_requests: [u64; 2],
    /// Scheduled tokens of a step.
    pub num_tokens: [u64; 2],
    /// KV tokens that a step sees, under the model's first kind of window.
    pub num_kv_tokens: [u64; 2],
}

/// A size of a step beyond those that were fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutsideFit {
    size: &'static str,
    value: u64,
    fitted: [u64; 2],
    factor: f64,
}

impl FittedRange {
    /// The range of some steps; `None` without any.
    pub fn of(steps: impl IntoIterator<Item = BatchSums>) -> Option<FittedRange> {
        let sizes = |step: BatchSums| sizes(&step).map(|size| [size, size]);
        let [num_requests, num_tokens, num_kv_tokens] = steps.into_iter().map(sizes).reduce(|mut all, one| {
            for ([least, most], [size, _]) in all.iter_mut().zip(one) {
                (*least, *most) = ((*least).min(size), (*most).max(size));
            }
            all
        })?;
        Some(FittedRange { num_requests, num_tokens, num_kv_tokens })
    }

    /// The size of a step that is furthest beyond the range; `None` within it.
    pub fn beyond(&self, step: &BatchSums) -> Option<OutsideFit> {
        let FittedRange { num_requests, num_tokens, num_kv_tokens } = *self;
        let ranges =
            [("requests", num_requests), ("scheduled tokens", num_tokens), ("visible KV tokens", num_kv_tokens)];
        let beyond = |((size, fitted), value): ((&'static str, [u64; 2]), u64)| {
            let [least, most] = fitted.map(|of| of.max(1) as f64);
            let factor = f64::max(value as f64 / most, least / value.max(1) as f64);
            (factor > 1.0).then_some(OutsideFit { size, value, fitted, factor })
        };
        let all = ranges.into_iter().zip(sizes(step)).filter_map(beyond);
        all.max_by(|a, b| a.factor.total_cmp(&b.factor))
    }
}

impl OutsideFit {
    /// Relative standard deviation that it adds: a tenth for each doubling, at most 0.3.
    pub fn sd(&self) -> f64 {
        (SD_PER_DOUBLING * self.factor.log2()).min(MAX_SD)
    }

    /// The sentence of a warning.
    pub fn in_words(&self, correction: &str) -> String {
        let OutsideFit { size, value, fitted: [least, most], .. } = self;
        format!(
            "{value} {size}: correction {correction} was fitted on steps of {least} to {most}; the interval is wider for it"
        )
    }
}

fn sizes(step: &BatchSums) -> [u64; 3] {
    let [window, ..] = &step.windows;
    [step.num_requests(), step.num_tokens, window.decode_kv_tokens.saturating_add(window.prefill_kv_tokens)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Window;
    use crate::request::Request;

    fn decodes(count: usize, computed: u32) -> BatchSums {
        BatchSums::new(&vec![Request::decode(computed); count], &[Window::Full], 1 << 20).expect("possible")
    }

    #[test]
    fn a_step_beyond_gains_a_tenth_for_each_doubling() {
        let range = FittedRange::of([decodes(4, 99), decodes(16, 99)]).expect("two steps");
        assert_eq!((range.num_requests, range.num_kv_tokens), ([4, 16], [400, 1600]));
        assert_eq!(range.beyond(&decodes(8, 99)), None);
        // 32 requests are twice as many, and see 6,400 tokens: four times as many.
        let beyond = range.beyond(&decodes(32, 199)).expect("beyond");
        assert!((beyond.sd() - 0.2).abs() < 1e-12 && beyond.in_words("mine").starts_with("6400 visible KV tokens"));
        // One request is a quarter of the least.
        assert!((range.beyond(&decodes(1, 399)).expect("below").sd() - 0.2).abs() < 1e-12);
        assert!((range.beyond(&decodes(4096, 99)).expect("far").sd() - 0.3).abs() < 1e-12);
        assert_eq!(FittedRange::of([]), None);
    }
}
