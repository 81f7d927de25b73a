//! Kernels of layers with a state over prefill chunks, whose time depends on tokens and on requests. Uses `efficiency`, `physics`.

use super::rows::Timed;
use crate::efficiency::Timer;
use crate::physics::{BatchSums, Kernel, Operator, Shape, StateHeads, StateKernel, StateShape, Work};
use crate::units::{real, real_wide};

/// The calls of one such kernel in a step.
#[derive(Debug, Clone)]
pub(super) struct StateScan {
    operator: Operator,
    kernel: StateKernel,
    heads: StateHeads,
    timer: Timer,
    /// Calls times the correction's factor.
    pub(super) weight: f64,
}

impl StateScan {
    /// The calls of `operator`, of any batch.
    pub(super) fn new(operator: &Operator, (kernel, heads): (StateKernel, StateHeads), timer: &Timer) -> Self {
        let weight = operator.count as f64;
        StateScan { operator: *operator, kernel, heads, timer: timer.clone(), weight }
    }

    /// Corrected time and bound of all calls over the chunks of a step. They are looked up as they are: a table over two counts would
    /// miss the steps at which their heads fill the chip.
    pub(super) fn total(&self, sums: &BatchSums) -> Timed {
        let StateScan { operator, kernel, heads, timer, weight } = self;
        let (num_requests, num_tokens) = (sums.num_prefills, sums.prefill_tokens);
        let shape =
            StateShape { kernel: *kernel, heads: *heads, requests: real(num_requests), tokens: real(num_tokens) };
        let Work { flops, bytes } = shape.work();
        let mean_query_tokens = real_wide(sums.prefill_squared_tokens) / shape.tokens;
        let kernel = Kernel::State { kernel: *kernel, heads: *heads, num_requests, num_tokens, mean_query_tokens };
        let call = timer.time(&Operator { flops, bytes, kernel, ..*operator });
        Timed { us: weight * call.time_us, bound_us: operator.count as f64 * call.bound_us }
    }
}
