//! Attention by lookup: decodes from a table over requests and keys per request, prefill chunks from a dozen multiplications, and
//! both in one call. Uses `efficiency`, `physics`.

use serde::Serialize;

use crate::efficiency::fast_prefill::{Chunks, FastPrefill};
use crate::efficiency::kernel_time::{AttentionBound, KEY_STEPS_LOG2};
use crate::efficiency::mixed::{Span, added_us, chunk_blocks};
use crate::efficiency::surface::Surface;
use crate::units::{larger, real};

use super::DecodeStep;
use super::rows::Timed;

/// The calls of one attention operator in a step.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Calls {
    pub(super) window_index: usize,
    pub(super) calls: f64,
    /// Calls times the correction's factor.
    pub(super) weight: f64,
    pub(super) launch_us: f64,
    /// Thread blocks per SM that a decode, or a tile of a chunk's query rows, has work for.
    pub(super) blocks_per_sm: f64,
    pub(super) bound: AttentionBound,
}

impl Calls {
    /// Corrected time and bound of all calls.
    #[inline(always)]
    pub(super) fn total(&self, call: Timed) -> Timed {
        Timed { us: self.weight * call.us, bound_us: self.calls * call.bound_us }
    }

    /// A call as part of one that decodes and chunks share. It has work for `blocks` times `blocks_per_sm`.
    #[inline(always)]
    pub(super) fn span(&self, alone: Timed, blocks: f64) -> Span {
        Span::new(alone.us, self.launch_us, blocks * self.blocks_per_sm)
    }
}

/// Attention of decodes under one kind of window.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DecodeAttention {
    #[serde(flatten)]
    pub(super) calls: Calls,
    /// Time of a call by requests and keys per request, µs, before the roofline bound is applied.
    pub(super) call_us: Surface<KEY_STEPS_LOG2>,
}

impl DecodeAttention {
    /// Time that reading `keys` keys of each request adds to a call, µs. Returns `None` for requests longer than the table.
    #[inline(always)]
    pub(super) fn read_us(&self, step: &DecodeStep, keys: f64) -> Option<f64> {
        let (row, weight) = (step.row, step.row_weight);
        // The first knot is one key.
        (keys <= self.call_us.axis.high)
            .then(|| self.call_us.at(row, weight, keys) - self.call_us.at_first(row, weight))
    }

    /// Time and bound of one call. Returns `None` for requests longer than the table.
    #[inline(always)]
    pub(super) fn call(&self, step: &DecodeStep, num_requests: f64, kv_tokens: u64) -> Option<Timed> {
        let kv_tokens = real(kv_tokens);
        let keys = kv_tokens * step.per_request;
        if keys > self.call_us.axis.high {
            return None;
        }
        let bound_us = self.calls.bound.us(kv_tokens, kv_tokens, num_requests);
        let us = self.call_us.at(step.row, step.row_weight, keys);
        Some(Timed { us: larger(us, bound_us), bound_us })
    }
}

/// Attention of prefill chunks under one kind of window.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ChunkAttention {
    #[serde(flatten)]
    pub(super) calls: Calls,
    /// `None` if the bound is the time.
    pub(super) fast: Option<FastPrefill>,
    /// Time of a call for one prompt by its tokens, µs; empty under windows, where a chunk's own keys depend on its context.
    pub(super) prompt_us: Vec<f64>,
    /// Blocks of threads for each query head that a cached key is worth.
    pub(super) splits_per_key: f64,
    /// Index of the decode attention that shares its call.
    #[serde(rename = "beside")]
    pub(super) shared_decode: Option<usize>,
}

impl ChunkAttention {
    /// Time and bound of one call without decodes. Reading the cached keys alone adds `read_us` to a decode.
    #[inline(always)]
    pub(super) fn call(&self, chunks: &Chunks, num_chunks: u64, tokens: u64, read_us: f64) -> Timed {
        let bound_us = self.calls.bound.us(chunks.pairs, chunks.kv_tokens, chunks.query_tokens);
        let us = self.fast.as_ref().map_or(bound_us, |fast| {
            let prompt_us = if num_chunks == 1 { self.prompt_us.get(tokens as usize) } else { None };
            prompt_us.map_or_else(|| fast.own_us(chunks), |us| *us) + fast.cached_us(chunks, read_us)
        });
        Timed { us: larger(us, bound_us), bound_us }
    }

    /// Time that the chunks add to the call of `decodes` that they share, µs.
    #[inline(always)]
    pub(super) fn added(&self, alone: Timed, num_chunks: u64, chunks: &Chunks, decodes: &Span) -> f64 {
        let splits = chunks.cached_keys * self.splits_per_key;
        let chunks = self.calls.span(alone, chunk_blocks(chunks.query_tokens, num_chunks, splits));
        larger(added_us(decodes, &chunks), alone.bound_us)
    }
}
