//! Kernels of layers with a state over prefill chunks, whose time depends on tokens and on requests. Uses `efficiency`, `physics`.

use super::rows::Timed;
use crate::efficiency::Timer;
use crate::physics::{BatchSums, Operator, StateHeads, StateKernel, state_call};

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

    /// Corrected time and bound of all calls over the chunks of a step, looked up anew for each step. A table by chunks and tokens
    /// would be 0.5 % off where their heads begin another wave.
    pub(super) fn total(&self, sums: &BatchSums) -> Timed {
        let Some((work, kernel)) = state_call(self.kernel, self.heads, sums) else { return Timed::default() };
        let call = self.timer.time(&Operator { flops: work.flops, bytes: work.bytes, kernel, ..self.operator });
        Timed { us: self.weight * call.time_us, bound_us: self.operator.count as f64 * call.bound_us }
    }
}
