//! A batch as operators see it, and the rows of it that an operator's work is proportional to.

use crate::dtype::DType;

use super::batch::BatchSums;

/// A batch as operators see it.
pub(crate) struct PaddedStep<'a> {
    pub batch: &'a BatchSums,
    /// Scheduled tokens, padded to the captured graph.
    pub padded_tokens: u64,
    /// Rows of projections that only decodes need: padded where the whole step is one graph.
    pub decode_rows: u64,
    pub activation: DType,
}

/// Rows of logits from which on some versions of vLLM truncate them by another kernel.
///
/// # Source
/// vLLM 0.17.0 to 0.20.0, `apply_top_k_top_p` in `vllm/v1/sample/ops/topk_topp_sampler.py`.
pub(crate) const MANY_SAMPLED: u64 = 8;

/// The quantity that an operator's work is proportional to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rows {
    /// Tokens that run through the layers, padding included.
    Padded,
    /// The same, in steps of up to so many of them.
    PaddedUpTo(u64),
    /// Tokens that the scheduler put in.
    Scheduled,
    /// Tokens that are sampled from.
    Sampled,
    /// The same, in steps with fewer than [`MANY_SAMPLED`] of them.
    FewSampled,
    /// The same, in steps with so many or more.
    ManySampled,
    Decodes,
    /// Scheduled tokens of prefill chunks.
    Prefill,
    /// Tokens in the cache before the step, of prefill chunks.
    PrefillContext,
    /// Both together.
    PrefillKv,
}

impl Rows {
    /// Returns `None` where the step has none.
    pub fn of(self, step: &PaddedStep<'_>) -> Option<u64> {
        let rows = match self {
            Rows::Padded => step.padded_tokens,
            Rows::PaddedUpTo(most) => Some(step.padded_tokens).filter(|tokens| *tokens <= most)?,
            Rows::Scheduled => step.batch.num_tokens,
            Rows::Sampled => step.batch.num_sampled,
            Rows::FewSampled => Some(step.batch.num_sampled).filter(|rows| *rows < MANY_SAMPLED)?,
            Rows::ManySampled => Some(step.batch.num_sampled).filter(|rows| *rows >= MANY_SAMPLED)?,
            Rows::Decodes => step.decode_rows,
            Rows::Prefill => step.batch.prefill_tokens,
            Rows::PrefillContext => step.batch.prefill_context_tokens,
            Rows::PrefillKv => step.batch.prefill_tokens + step.batch.prefill_context_tokens,
        };
        (rows > 0).then_some(rows)
    }
}
