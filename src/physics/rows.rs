//! A batch as operators see it, and the rows of it that an operator's work is proportional to.

use crate::dtype::DType;

use super::batch::BatchSums;

/// A batch as operators see it.
pub(crate) struct Step<'a> {
    pub batch: &'a BatchSums,
    /// Scheduled tokens, padded to the captured graph.
    pub padded_tokens: u64,
    /// Rows of projections that only decodes need: padded where the whole step is one graph.
    pub decode_rows: u64,
    pub activation: DType,
}

/// The quantity that an operator's work is proportional to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rows {
    /// Tokens that run through the layers, padding included.
    Padded,
    /// Tokens that the scheduler put in.
    Scheduled,
    /// Tokens that are sampled from.
    Sampled,
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
    pub fn of(self, step: &Step<'_>) -> Option<u64> {
        let rows = match self {
            Rows::Padded => step.padded_tokens,
            Rows::Scheduled => step.batch.num_tokens,
            Rows::Sampled => step.batch.num_sampled,
            Rows::Decodes => step.decode_rows,
            Rows::Prefill => step.batch.prefill_tokens,
            Rows::PrefillContext => step.batch.prefill_context_tokens,
            Rows::PrefillKv => step.batch.prefill_tokens + step.batch.prefill_context_tokens,
        };
        (rows > 0).then_some(rows)
    }
}
