//! What aggregates say of a step, for regressions that know no physics. Uses `ingest::StepRecord`.

use crate::ingest::StepRecord;

/// Number of features.
pub const NUM_FEATURES: usize = 8;

/// Names of the features, in their order.
pub const NAMES: [&str; NUM_FEATURES] = [
    "scheduled_tokens",
    "prefill_tokens",
    "decode_tokens",
    "num_prefill_requests",
    "num_decode_requests",
    "num_running",
    "kv_usage",
    "decode_tokens × kv_usage",
];

/// Position of `prefill_tokens`.
pub const PREFILL_TOKENS: usize = 1;
/// Position of `num_decode_requests`.
pub const DECODE_REQUESTS: usize = 4;

/// A step's features, or their means over a window; `None` where the trace does not say.
pub type Features = [Option<f64>; NUM_FEATURES];

/// Features of a step. `kv_usage` is the share of the GPU's KV blocks in use, from 0 to 1.
pub fn features(step: &StepRecord) -> Features {
    let (prefill_tokens, decode_tokens) = (step.prefill_tokens as f64, step.decode_tokens as f64);
    let kv_usage = match (step.kv_blocks_total, step.kv_blocks_free) {
        (Some(total), Some(free)) if total > 0 => Some(total.saturating_sub(free) as f64 / total as f64),
        _ => None,
    };
    [
        Some(prefill_tokens + decode_tokens),
        Some(prefill_tokens),
        Some(decode_tokens),
        Some(f64::from(step.num_prefill_requests)),
        Some(f64::from(step.num_decode_requests)),
        step.num_running.map(f64::from),
        kv_usage,
        kv_usage.map(|usage| usage * decode_tokens),
    ]
}

/// Means over steps; a feature that one of them lacks is lacking.
pub fn mean_features<'a>(steps: impl IntoIterator<Item = &'a StepRecord>) -> Features {
    let mut sums: Features = [Some(0.0); NUM_FEATURES];
    let mut count = 0u64;
    for step in steps {
        count += 1;
        for (sum, value) in sums.iter_mut().zip(features(step)) {
            *sum = sum.zip(value).map(|(sum, value)| sum + value);
        }
    }
    sums.map(|sum| sum.filter(|_| count > 0).map(|sum| sum / count as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_all_steps_or_not_there() {
        let step = |prefill_tokens, free: Option<u64>| StepRecord {
            num_prefill_requests: 1,
            num_decode_requests: 4,
            prefill_tokens,
            decode_tokens: 4,
            num_running: Some(5),
            kv_blocks_total: Some(200),
            kv_blocks_free: free,
            ..StepRecord::default()
        };
        let known = mean_features(&[step(10, Some(150)), step(30, Some(50))]);
        // Usage 0.25 and 0.75.
        assert_eq!(known, [24.0, 20.0, 4.0, 1.0, 4.0, 5.0, 0.5, 2.0].map(Some));
        let unknown = mean_features(&[step(10, Some(150)), step(30, None)]);
        assert_eq!((unknown[0], unknown[6], unknown[7]), (Some(24.0), None, None));
        assert_eq!(mean_features(&[]), [None; NUM_FEATURES]);
    }
}
