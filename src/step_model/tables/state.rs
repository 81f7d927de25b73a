//! Kernels of layers with a state over prefill chunks, whose time depends on tokens and on requests. Uses `efficiency`, `physics`.

use super::rows::Timed;
use crate::efficiency::kernel_time::StateTimes;
use crate::physics::{Shape, StateHeads, StateKernel, StateShape, Work};

/// The calls of one such kernel in a step.
#[derive(Debug, Clone)]
pub(super) struct StateScan {
    calls: f64,
    /// Calls times the correction's factor.
    pub(super) weight: f64,
    times: StateTimes,
    per_token: Work,
    per_request: Work,
}

impl StateScan {
    pub(super) fn new(kernel: StateKernel, heads: StateHeads, calls: f64, times: StateTimes) -> Self {
        let work = |requests: f64, tokens: f64| StateShape { kernel, heads, requests, tokens }.work();
        StateScan { calls, weight: calls, times, per_token: work(0.0, 1.0), per_request: work(1.0, 0.0) }
    }

    /// Corrected time and bound of all calls over chunks with so many requests and tokens.
    #[inline]
    pub(super) fn total(&self, requests: f64, tokens: f64) -> Timed {
        let (us, bound_us) = self.times.us(Work {
            flops: tokens * self.per_token.flops + requests * self.per_request.flops,
            bytes: tokens * self.per_token.bytes + requests * self.per_request.bytes,
        });
        Timed { us: self.weight * us, bound_us: self.calls * bound_us }
    }
}
