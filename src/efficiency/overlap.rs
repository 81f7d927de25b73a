//! Kernels of two concurrent streams: shared and routed experts.

use super::kernel_time::STREAMING_EFFICIENCY;
use super::provenance::{OperatorTime, Provenance};
use crate::physics::{ExpertStream, Operator};

/// The calls of one stream in a step, one after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stream {
    /// Time that they take alone, µs.
    pub us: f64,
    /// Their roofline bounds, µs.
    pub bound_us: f64,
}

/// Time of two streams that start and end together, µs.
///
/// # Formula
/// `max(t₁, t₂, min(t₁ + t₂, (b₁ + b₂)/0.85))` for times `t` of the streams alone and their bounds `b`. Launches, tails and kernels that
/// leave memory idle hide behind the other stream; bytes and FLOPs of both share one chip, at the rate that large copies
/// reach.
///
/// ```text
/// 60 µs at a bound of 40 with 20 µs at a bound of 15: (40 + 15)/0.85 = 64.7 µs, where one after the other takes 80.
/// ```
pub fn together_us(first: Stream, second: Stream) -> f64 {
    let shared_us = (first.bound_us + second.bound_us) / STREAMING_EFFICIENCY;
    shared_us.min(first.us + second.us).max(first.us).max(second.us)
}

/// Shortens the calls of shared and routed experts in a step that runs them at the same time. Each keeps its bound and the same
/// share of what it takes beyond.
pub fn overlap(calls: &mut [(Operator, OperatorTime)]) {
    let mut streams = [Stream::default(); 2];
    for (operator, call) in &*calls {
        let Some(stream) = operator.id.kind.expert_stream() else { continue };
        let [shared, routed] = &mut streams;
        let stream = if stream == ExpertStream::Shared { shared } else { routed };
        stream.us += operator.count as f64 * call.time_us;
        stream.bound_us += operator.count as f64 * call.bound_us;
    }
    let [shared, routed] = streams;
    let bound_us = shared.bound_us + routed.bound_us;
    let beyond_us = shared.us + routed.us - bound_us;
    if shared.us <= 0.0 || routed.us <= 0.0 || beyond_us <= 0.0 {
        return;
    }
    let kept = (together_us(shared, routed) - bound_us).max(0.0) / beyond_us;
    for (operator, call) in calls {
        if operator.id.kind.expert_stream().is_some() {
            call.time_us = call.bound_us + kept * (call.time_us - call.bound_us);
            call.provenance = call.provenance.max(Provenance::Interpolated);
        }
    }
}

#[allow(clippy::float_cmp)]
#[cfg(test)]
mod tests {
    use super::*;

    fn together(first: (f64, f64), second: (f64, f64)) -> f64 {
        let stream = |(us, bound_us)| Stream { us, bound_us };
        together_us(stream(first), stream(second))
    }

    #[test]
    fn two_streams_take_what_the_chip_and_the_longer_one_need() {
        // Latency hides: 20 µs at a bound of 2 with 60 at 40 leave the longer one as it is.
        assert_eq!(together((60.0, 40.0), (20.0, 2.0)), 60.0);
        assert_eq!(together((20.0, 2.0), (60.0, 40.0)), 60.0);
        // Bytes do not: 55 µs at 85 % of the bandwidth.
        assert!((together((60.0, 40.0), (20.0, 15.0)) - 64.705_882).abs() < 1e-6);
        // Kernels at their bound run one after the other.
        assert_eq!(together((60.0, 58.0), (20.0, 19.0)), 80.0);
    }
}
