//! A call of a kernel of a layer with a state, as a batch makes it.

use crate::units::{real, real_wide};

use super::batch::BatchSums;
use super::operator::Kernel;
use super::state_shape::{StateHeads, StateKernel, StateShape};
use super::work::{Shape, Work};

/// Work and shape of one call of `kernel` over a batch; `None` if the batch has no tokens for it. Padding has no state to read.
pub(crate) fn state_call(kernel: StateKernel, heads: StateHeads, batch: &BatchSums) -> Option<(Work, Kernel)> {
    let BatchSums { num_prefills, prefill_tokens, prefill_squared_tokens, num_decodes, .. } = *batch;
    let (num_requests, num_tokens, squared_tokens) = if kernel.is_prefill() {
        (num_prefills, prefill_tokens, real_wide(prefill_squared_tokens))
    } else {
        (num_decodes, num_decodes, real(num_decodes))
    };
    let num_tokens = Some(num_tokens).filter(|tokens| *tokens > 0)?;
    let shape = StateShape { kernel, heads, requests: real(num_requests), tokens: real(num_tokens) };
    let mean_query_tokens = squared_tokens / shape.tokens;
    Some((shape.work(), Kernel::State { kernel, heads, num_requests, num_tokens, mean_query_tokens }))
}
