//! The time that a prompt's prefill adds to an engine's steps.

use ridgepoint::latency::LatencyModel;
use ridgepoint::{Request, Step};

/// Time by which the prefill of a prompt's tokens lengthens steps of `decodes`, in chunks of at most `chunk` tokens, µs.
pub(super) fn prefill_time_us(
    latency: &dyn LatencyModel,
    decodes: &[Request],
    tokens: std::ops::Range<u32>,
    chunk: u32,
) -> f64 {
    let without_us = latency.step_time_us(&Step::from(decodes));
    let mut batch = decodes.to_vec();
    let (mut from, mut sum_us) = (tokens.start, 0.0);
    while from < tokens.end {
        let num_tokens = chunk.min(tokens.end - from);
        from += num_tokens;
        batch.truncate(decodes.len());
        batch.push(Request::new(from - num_tokens, num_tokens, from == tokens.end));
        sum_us += latency.step_time_us(&Step::from(&batch)) - without_us;
    }
    sum_us
}
