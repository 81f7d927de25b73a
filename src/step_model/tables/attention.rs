//! Attention by lookup: decodes from a table over requests and keys per request, prefill chunks from a dozen multiplications, and
//! both in one call. Uses `efficiency`, `physics`.

use serde::Serialize;

use crate::efficiency::fast_prefill::{Chunks, FastPrefill};
use crate::efficiency::kernel_time::AttentionBound;
use crate::efficiency::mixed::{Span, added_us, query_tiles};
use crate::efficiency::surface::{CountAxis, OctaveAxis, Surface};
use crate::physics::AttentionHeads;
use crate::units::{larger, real};

use super::one_chunk::OneChunk;
use super::rows::Timed;

/// Knots per octave of keys per request, as a power of two.
pub(super) const KEY_STEPS_LOG2: u32 = 4;

/// Attention of decodes under one kind of window.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DecodeAttention {
    pub(super) window_index: usize,
    #[serde(skip)]
    pub(super) heads: AttentionHeads,
    pub(super) calls: f64,
    /// Calls times the correction's factor.
    pub(super) weight: f64,
    pub(super) launch_us: f64,
    /// Thread blocks per SM that a request has work for.
    pub(super) blocks_per_sm: f64,
    /// Time of a call by requests and keys per request, µs, before it is held to the roofline bound.
    pub(super) call_us: Surface<KEY_STEPS_LOG2>,
    pub(super) bound: AttentionBound,
}

/// Where a number of decodes is looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub(super) row: usize,
    pub(super) row_weight: f64,
    pub(super) per_request: f64,
}

impl DecodeAttention {
    pub(super) fn surface(
        requests: &CountAxis,
        longest: u64,
        call_us: impl Fn(f64, f64) -> f64,
    ) -> Surface<KEY_STEPS_LOG2> {
        let axis = OctaveAxis::covering(1.0, longest.max(2) as f64);
        Surface::new(requests.knots(), axis, |requests, keys| call_us(requests as f64, requests as f64 * keys))
    }

    /// With a correction's factor.
    pub(super) fn scaled(&self, factor: f64) -> Self {
        DecodeAttention { weight: self.calls * factor, ..self.clone() }
    }

    /// Time and bound of one call. Returns `None` for requests longer than the table.
    #[inline(always)]
    pub(super) fn call(&self, placed: &Placed, num_requests: f64, kv_tokens: u64) -> Option<Timed> {
        let kv_tokens = real(kv_tokens);
        let keys = kv_tokens * placed.per_request;
        if keys > self.call_us.axis().high() {
            return None;
        }
        let bound_us = self.bound.us(kv_tokens, kv_tokens, num_requests);
        let us = self.call_us.at(placed.row, placed.row_weight, keys);
        Some(Timed { us: larger(us, bound_us), bound_us })
    }

    /// Corrected time and bound of a step's calls.
    #[inline(always)]
    pub(super) fn all_calls(&self, call: Timed) -> Timed {
        Timed { us: self.weight * call.us, bound_us: self.calls * call.bound_us }
    }

    /// A call as part of one that prefill chunks share.
    #[inline]
    pub(super) fn span(&self, alone: Timed, num_requests: f64) -> Span {
        Span::filling(alone.us, self.launch_us, num_requests * self.blocks_per_sm)
    }
}

/// Attention of prefill chunks under one kind of window.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ChunkAttention {
    pub(super) window_index: usize,
    pub(super) calls: f64,
    /// Calls times the correction's factor.
    pub(super) weight: f64,
    pub(super) launch_us: f64,
    /// Thread blocks per SM that a tile of query rows has work for.
    pub(super) blocks_per_sm: f64,
    /// `None` where the bound is the time.
    pub(super) fast: Option<FastPrefill>,
    /// A call for a single chunk; `None` under windows, where its time is not smooth in the context.
    pub(super) one: Option<OneChunk>,
    pub(super) bound: AttentionBound,
    /// Index of the decode attention that shares its call.
    pub(super) beside: Option<usize>,
    /// Least time that the host takes to launch a call, µs.
    pub(super) least_us: f64,
}

impl ChunkAttention {
    /// With a correction's factor.
    pub(super) fn scaled(&self, factor: f64) -> Self {
        ChunkAttention { weight: self.calls * factor, ..self.clone() }
    }

    /// Whether the table of single chunks holds this one.
    #[inline]
    pub(super) fn has_one(&self, tokens: u64, context: u64) -> bool {
        self.one.as_ref().is_some_and(|one| one.call_us(tokens, context).is_some())
    }

    /// Time and bound of one call for a single chunk. Returns `None` beyond its table.
    #[inline]
    pub(super) fn one_call(&self, tokens: u64, context: u64, chunk: &Chunks) -> Option<Timed> {
        let us = self.one.as_ref()?.call_us(tokens, context)?;
        let bound_us = self.bound.us(chunk.pairs, chunk.kv_tokens, chunk.query_tokens);
        Some(Timed { us: larger(us, bound_us), bound_us })
    }

    /// Time and bound of one call without decodes.
    pub(super) fn call(&self, chunks: &Chunks) -> Timed {
        let bound_us = self.bound.us(chunks.pairs, chunks.kv_tokens, chunks.query_tokens);
        let us = self.fast.as_ref().map_or(bound_us, |fast| fast.time_us(chunks));
        Timed { us: larger(us, bound_us), bound_us }
    }

    /// Time that the chunks add to the call of `decodes` that they share, µs.
    #[inline]
    pub(super) fn added(&self, alone: Timed, num_chunks: u64, query_tokens: f64, decodes: &Span) -> f64 {
        let tiles = query_tiles(query_tokens, num_chunks);
        let chunks = Span::filling(alone.us, self.launch_us, tiles * self.blocks_per_sm);
        larger(added_us(decodes, &chunks), alone.bound_us)
    }

    /// Corrected time and bound of a step's calls.
    #[inline]
    pub(super) fn all_calls(&self, call: Timed) -> Timed {
        Timed { us: self.weight * larger(call.us, self.least_us), bound_us: self.calls * call.bound_us }
    }
}
