//! Lookup tables that cache the sum over a step's operators. Uses `efficiency`, `physics`, `correction`.
//!
//! Every operator but attention depends on one count: tokens (padded to a captured graph), sampled tokens, and for latent attention
//! decodes, prefill tokens or cached tokens of prefill chunks. Times are summed by operator group into tables over that count;
//! attention has tables of its own, and so have the kernels of layers with a state over prefill chunks. A correction's coefficients are multiplied in last, so that changing the correction is cheap.
//! A batch beyond the tables is left to the operators.
#![expect(clippy::indexing_slicing, reason = "there is a value for every term")]
#![expect(clippy::cast_possible_truncation, reason = "a position beyond a table is not found")]

mod attention;
mod build;
mod export;
mod rows;
mod state;

use std::sync::Arc;

use serde::Serialize;

use crate::correction::{Correction, Term};
use crate::efficiency::fast_prefill::Chunks;
use crate::efficiency::surface::CountAxis;
use crate::physics::{BatchSums, MAX_WINDOWS};
use crate::units::{larger, real, real_wide};

use crate::step_model::launches::Launches;
use attention::{ChunkAttention, DecodeAttention};
use rows::{GroupTable, RowTable, Timed};
use state::StateScan;

/// Tables of operator times by group, before any correction.
#[derive(Debug)]
pub(in crate::step_model) struct OperatorTables {
    /// Operators of a step of decodes alone, by their number.
    decodes: GroupTable,
    /// Operators of a step with prefill chunks, by its tokens.
    tokens: GroupTable,
    /// Operators that decodes add to a step with prefill chunks, by their number.
    decodes_with_chunks: GroupTable,
    /// By sampled tokens.
    sampled: GroupTable,
    /// By prefill tokens, by their cached tokens, by both together.
    chunks: [GroupTable; 3],
    decode_attention: Vec<DecodeAttention>,
    chunk_attention: Vec<ChunkAttention>,
    /// Of layers with a state, with the term of the correction that weighs it.
    state_scans: Vec<(Term, StateScan)>,
    requests: CountAxis,
    most_decodes: u64,
    launches: Launches,
    layers: f64,
    /// Whether a step is launched as piecewise graphs, by its tokens: of decodes alone, and with prefill chunks.
    piecewise: [Vec<bool>; 2],
    penalised: f64,
}

/// [`OperatorTables`] with a correction's coefficients multiplied in, as they are exported.
#[derive(Debug, Clone, Serialize)]
pub(in crate::step_model) struct StepTables {
    #[serde(skip)]
    pub(in crate::step_model) operators: Arc<OperatorTables>,
    /// Steps in which all requests are decodes that sample, by their number, from 1 on.
    #[serde(skip)]
    decodes_that_sample: Vec<DecodeStep>,
    max_decodes: u64,
    request_us: f64,
    chunk_us: f64,
    prompt_token_us: f64,
    launches: Launches,
    by_decodes: RowTable,
    by_tokens: RowTable,
    #[serde(rename = "by_decodes_beside_chunks")]
    by_decodes_with_chunks: RowTable,
    by_sampled: RowTable,
    by_chunk_tokens: RowTable,
    by_chunk_context_tokens: RowTable,
    by_chunk_kv_tokens: RowTable,
    decode_knots: CountAxis,
    decode_attention: Vec<DecodeAttention>,
    chunk_attention: Vec<ChunkAttention>,
    /// Of layers with a state; the exported form has no room for them.
    #[serde(skip)]
    state_scans: Vec<StateScan>,
}

/// A step of decodes that sample, but for its attention, and where to look its attention up.
#[derive(Debug, Clone, Copy)]
struct DecodeStep {
    time: Timed,
    row: usize,
    row_weight: f64,
    per_request: f64,
    /// Time of the host to launch the step, µs.
    host_us: f64,
}

/// Sums over decodes that all sample.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DecodeBatch {
    pub(super) num_requests: u64,
    /// Keys that they see under each kind of window, their own included.
    pub(super) kv_tokens: [u64; MAX_WINDOWS],
}

impl DecodeBatch {
    pub(super) fn add_to(&self, sums: &mut BatchSums) {
        sums.num_tokens += self.num_requests;
        sums.num_decodes += self.num_requests;
        sums.num_sampled += self.num_requests;
        for (window, kv_tokens) in sums.windows.iter_mut().zip(self.kv_tokens) {
            window.decode_kv_tokens += kv_tokens;
        }
    }
}

impl StepTables {
    /// Multiplies a correction into the tables. Returns `None` if a time overflows.
    pub(in crate::step_model) fn new(operators: Arc<OperatorTables>, correction: Option<&Correction>) -> Option<Self> {
        let coefficients = correction.map_or(Correction::neutral().coefficients, |correction| correction.coefficients);
        let coefficient = |term: Term| coefficients[term.index()];
        // The first terms are those of operator groups. Steps with chunks have some of their own.
        let factors = std::array::from_fn(|group| coefficients[group]);
        let with_chunks = std::array::from_fn(|group| {
            let term = Term::ALL[group];
            coefficient(term.with_chunks().unwrap_or(term))
        });
        let step_us = coefficient(Term::Steps) + coefficient(Term::Layers) * operators.layers;
        let piecewise_us = coefficient(Term::PiecewiseLayers) * operators.layers;
        let sampled_us = coefficient(Term::PenalisedRequests) * operators.penalised;
        let request_us = coefficient(Term::Requests);
        let tokens_us = |is_piecewise: &[bool], tokens: u64| {
            let is_piecewise = is_piecewise.get(tokens as usize).copied().unwrap_or(false);
            step_us + if is_piecewise { piecewise_us } else { 0.0 }
        };
        let [alone, mixed] = &operators.piecewise;
        let by_decodes = operators.decodes.folded(&factors, |decodes| tokens_us(alone, decodes));
        let by_tokens = operators.tokens.folded(&with_chunks, |tokens| tokens_us(mixed, tokens));
        let by_sampled = operators.sampled.folded(&factors, |sampled| sampled_us * sampled as f64);
        let decodes_that_sample = (1..=operators.most_decodes).map(|count| {
            let mut time = by_decodes.at(count).unwrap_or_default();
            let sampled = by_sampled.at(count).unwrap_or_default();
            time.us = time.us + sampled.us + request_us * count as f64;
            time.bound_us += sampled.bound_us;
            let (row, row_weight) = operators.requests.position(count);
            let host_us = operators.launches.decodes_us(count);
            DecodeStep { time, row, row_weight, per_request: 1.0 / count as f64, host_us }
        });
        let [by_chunk_tokens, by_chunk_context_tokens, by_chunk_kv_tokens] =
            operators.chunks.each_ref().map(|table| table.folded(&with_chunks, |_| 0.0));
        let (mut decode_attention, mut chunk_attention) =
            (operators.decode_attention.clone(), operators.chunk_attention.clone());
        decode_attention.iter_mut().for_each(|of| of.calls.weight *= coefficient(Term::AttentionDecode));
        chunk_attention.iter_mut().for_each(|of| of.calls.weight *= coefficient(Term::AttentionPrefill));
        let state_scans = operators.state_scans.iter().map(|(term, scan)| {
            let mut scan = scan.clone();
            scan.weight *= coefficient(*term);
            scan
        });
        let state_scans = state_scans.collect();
        let tables = StepTables {
            decodes_that_sample: decodes_that_sample.collect(),
            max_decodes: operators.most_decodes,
            request_us,
            chunk_us: coefficient(Term::PrefillRequests),
            prompt_token_us: coefficient(Term::PromptTokens),
            launches: operators.launches,
            by_decodes,
            by_tokens,
            by_decodes_with_chunks: operators.decodes_with_chunks.folded(&with_chunks, |_| 0.0),
            by_sampled,
            by_chunk_tokens,
            by_chunk_context_tokens,
            by_chunk_kv_tokens,
            decode_knots: operators.requests.clone(),
            decode_attention,
            chunk_attention,
            state_scans,
            operators,
        };
        let rows = [
            &tables.by_decodes,
            &tables.by_tokens,
            &tables.by_decodes_with_chunks,
            &tables.by_sampled,
            &tables.by_chunk_tokens,
            &tables.by_chunk_context_tokens,
            &tables.by_chunk_kv_tokens,
        ];
        let is_finite = rows.into_iter().all(RowTable::is_finite);
        is_finite.then_some(tables)
    }

    /// Time of a step, µs. Returns `None` for a batch beyond the tables.
    #[inline]
    pub(super) fn time_us(&self, sums: &BatchSums) -> Option<f64> {
        match (sums.decode_rows(), sums.num_prefills) {
            (0, 0) => Some(0.0),
            (num_requests, 0) => self
                .decodes_us(num_requests, sums.num_sampled, |window| Some(sums.windows.get(window)?.decode_kv_tokens)),
            _ => self.mixed_us_of(sums),
        }
    }

    /// [`StepTables::mixed_us`] for callers that most often have decodes alone.
    #[inline(never)]
    fn mixed_us_of(&self, sums: &BatchSums) -> Option<f64> {
        self.mixed_us(sums)
    }

    /// Returns `None` for no decodes as for more than the tables hold.
    #[inline(always)]
    fn decode_step(&self, num_decodes: u64) -> Option<&DecodeStep> {
        self.decodes_that_sample.get((num_decodes as usize).wrapping_sub(1))
    }

    /// Time of a step of decodes alone, µs; `kv_tokens` are the keys that they see under a window, by its index. Returns `None`
    /// beyond the tables.
    #[inline(always)]
    pub(super) fn decodes_us(
        &self,
        num_requests: u64,
        num_sampled: u64,
        kv_tokens: impl Fn(usize) -> Option<u64>,
    ) -> Option<f64> {
        let step = self.decode_step(num_requests)?;
        let mut total = step.time;
        if num_sampled != num_requests {
            total = self.by_decodes.at(num_requests)?;
            let sampled = self.by_sampled.at(num_sampled)?;
            total.us += sampled.us + self.request_us * real(num_requests);
            total.bound_us += sampled.bound_us;
        }
        for attention in &self.decode_attention {
            let kv_tokens = kv_tokens(attention.calls.window_index)?;
            let call = attention.call(step, real(num_requests), kv_tokens)?;
            total.add(attention.calls.total(call));
        }
        Some(larger(total.bounded(), step.host_us))
    }

    /// Time of a step with prefill chunks, µs. Returns `None` beyond the tables.
    #[inline(always)]
    pub(super) fn mixed_us(&self, sums: &BatchSums) -> Option<f64> {
        let (num_decodes, num_chunks) = (sums.decode_rows(), sums.num_prefills);
        let mut total = self.by_tokens.at(sums.num_tokens)?;
        total.add(self.by_sampled.at(sums.num_sampled)?);
        let (tokens, context) = (sums.prefill_tokens, sums.prefill_context_tokens);
        for (table, count) in [
            (&self.by_decodes_with_chunks, num_decodes),
            (&self.by_chunk_tokens, tokens),
            (&self.by_chunk_context_tokens, context),
            (&self.by_chunk_kv_tokens, tokens + context),
        ] {
            if !table.is_empty() {
                total.add(table.at(count)?);
            }
        }
        total.us += self.request_us * real(num_decodes + num_chunks);
        total.us += self.chunk_us * real(num_chunks) + self.prompt_token_us * real(tokens);
        let mut spans = [None; MAX_WINDOWS];
        if num_decodes > 0 {
            let step = self.decode_step(num_decodes)?;
            for (attention, span) in self.decode_attention.iter().zip(&mut spans) {
                let kv_tokens = sums.windows.get(attention.calls.window_index)?.decode_kv_tokens;
                let call = attention.call(step, real(num_decodes), kv_tokens)?;
                *span = Some(attention.calls.span(call, real(num_decodes)));
                total.add(attention.calls.total(call));
            }
        }
        let (query_tokens, squared_tokens) = (real(tokens), real_wide(sums.prefill_squared_tokens));
        for scan in &self.state_scans {
            total.add(scan.total(sums));
        }
        for attention in &self.chunk_attention {
            let window = sums.windows.get(attention.calls.window_index)?;
            let (pairs, kv_tokens) = (real_wide(window.prefill_pairs), real(window.prefill_kv_tokens));
            let chunks = Chunks::new(query_tokens, squared_tokens, pairs, kv_tokens);
            let decodes = attention.shared_decode.and_then(|index| self.decode_attention.get(index));
            let read_us = match (&attention.fast, decodes) {
                (Some(fast), Some(decodes)) if chunks.cached_keys > 0.0 && fast.reads_cache => {
                    let (readers, keys) = fast.readers(&chunks, num_chunks);
                    decodes.read_us(self.decode_step(readers)?, keys)?
                }
                _ => 0.0,
            };
            let mut call = attention.call(&chunks, num_chunks, tokens, read_us);
            if let Some(Some(decodes)) = attention.shared_decode.and_then(|index| spans.get(index)) {
                call.us = attention.added(call, num_chunks, &chunks, decodes);
            }
            total.add(attention.calls.total(call));
        }
        Some(larger(total.bounded(), self.launches.chunks_us(sums.num_tokens)))
    }
}
