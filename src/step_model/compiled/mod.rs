//! A step model folded into dense tables: a step is one pass over its requests and a few loads. Uses `efficiency`, `physics`,
//! `correction`.
//!
//! All operators but attention depend on one count each: tokens (padded to a captured graph), sampled tokens, and for latent
//! attention decodes, chunk tokens or cached tokens of chunks. Their times are summed by group into tables over that count;
//! attention has tables of its own. A correction's coefficients are multiplied in last, so that another one costs little.
//! What lies beyond the tables is left to the operators one by one.

mod attention;
mod build;
mod lanes;
mod one_chunk;
mod pass;
mod rows;
mod state;

use std::sync::Arc;

use crate::correction::{Correction, Term};
use crate::efficiency::fast_prefill::Chunks;
use crate::efficiency::surface::CountAxis;
use crate::model::Window;
use crate::physics::BatchSums;
use crate::request::Request;
use crate::units::{larger, real, real_wide};

use attention::{ChunkAttention, DecodeAttention, Placed};
pub(in crate::step_model) use lanes::Batch;
pub(in crate::step_model) use pass::{Decodes, Run, pass};
use rows::{GroupTable, RowTable, Timed};
pub use state::StepState;

/// Tables of times as measured kernels have them, whatever the correction.
#[derive(Debug)]
pub(in crate::step_model) struct Tables {
    /// Operators of a step of decodes alone, by their number.
    decodes: GroupTable,
    /// Operators of a step with prompt chunks, by its tokens.
    tokens: GroupTable,
    /// What decodes need beside prompt chunks, by their number.
    decodes_beside: GroupTable,
    /// By sampled tokens.
    sampled: GroupTable,
    /// By tokens of prompt chunks, by their cached tokens, by both together.
    chunks: [GroupTable; 3],
    decode_attention: Vec<DecodeAttention>,
    chunk_attention: Vec<ChunkAttention>,
    requests: CountAxis,
    most_decodes: u64,
    layers: f64,
    /// Tokens up to which steps with prompt chunks are launched as piecewise graphs, of those that have a graph at all.
    piecewise_tokens: Vec<bool>,
    sorted_megalogits: f64,
    penalised: f64,
}

/// Tables with a correction's coefficients multiplied in.
#[derive(Debug, Clone)]
pub(in crate::step_model) struct Compiled {
    tables: Arc<Tables>,
    /// Steps in which all requests are decodes that sample, by their number, from 1 on.
    decodes_that_sample: Vec<DecodeStep>,
    decodes: RowTable,
    tokens: RowTable,
    decodes_beside: RowTable,
    sampled: RowTable,
    chunks: [RowTable; 3],
    request_us: f64,
    chunk_us: f64,
    decode_factor: f64,
    chunk_factor: f64,
    /// Most models have one kind of attention, under a full window: kept at hand.
    decode_attention: Option<DecodeAttention>,
    /// And that of chunks in the same call, where nothing else depends on chunks.
    chunk_attention: Option<ChunkAttention>,
}

/// All of a step of decodes that sample but its attention, and where its attention is found.
#[derive(Debug, Clone, Copy)]
struct DecodeStep {
    time: Timed,
    placed: Placed,
}

impl Tables {
    fn have_chunks_in_attention_alone(&self) -> bool {
        self.chunks.iter().chain([&self.decodes_beside]).all(GroupTable::is_empty)
    }
}

impl Compiled {
    /// `None` where times are beyond all numbers: the operators themselves know what that comes to.
    pub(in crate::step_model) fn new(tables: Arc<Tables>, correction: Option<&Correction>) -> Option<Self> {
        let neutral = Correction::neutral();
        let coefficient = |term: Term| correction.unwrap_or(&neutral).coefficient(term);
        let factors = [
            Term::Projections,
            Term::AttentionPrefill,
            Term::AttentionDecode,
            Term::Experts,
            Term::Communication,
            Term::SmallKernels,
        ]
        .map(coefficient);
        let step_us = coefficient(Term::Steps) + coefficient(Term::Layers) * tables.layers;
        let token_us = coefficient(Term::Tokens);
        let piecewise_us = coefficient(Term::PiecewiseLayers) * tables.layers;
        let sampled_us = coefficient(Term::SortedMegalogits) * tables.sorted_megalogits
            + coefficient(Term::PenalisedRequests) * tables.penalised;
        let request_us = coefficient(Term::Requests);
        let is_piecewise = |tokens: u64| tables.piecewise_tokens.get(tokens as usize).copied().unwrap_or(false);
        let decodes = tables.decodes.folded(&factors, |decodes| step_us + token_us * decodes as f64);
        let tokens = tables.tokens.folded(&factors, |tokens| {
            step_us + token_us * tokens as f64 + if is_piecewise(tokens) { piecewise_us } else { 0.0 }
        });
        let sampled = tables.sampled.folded(&factors, |sampled| sampled_us * sampled as f64);
        let nothing = Timed::default();
        let decodes_that_sample = (1..=tables.most_decodes).map(|count| {
            let (step, sampled) = (decodes.at(count).unwrap_or(nothing), sampled.at(count).unwrap_or(nothing));
            let (row, row_weight) = tables.requests.position(count);
            DecodeStep {
                time: Timed {
                    us: step.us + sampled.us + request_us * count as f64,
                    bound_us: step.bound_us + sampled.bound_us,
                },
                placed: Placed { row, row_weight, per_request: 1.0 / count as f64 },
            }
        });
        let compiled = Compiled {
            decodes_that_sample: decodes_that_sample.collect(),
            decodes,
            tokens,
            decodes_beside: tables.decodes_beside.folded(&factors, |_| 0.0),
            sampled,
            chunks: tables.chunks.each_ref().map(|table| table.folded(&factors, |_| 0.0)),
            request_us,
            chunk_us: coefficient(Term::PrefillRequests),
            decode_factor: coefficient(Term::AttentionDecode),
            chunk_factor: coefficient(Term::AttentionPrefill),
            decode_attention: match &tables.decode_attention[..] {
                [one] if one.heads.window == Window::Full => Some(one.clone()),
                _ => None,
            },
            chunk_attention: match &tables.chunk_attention[..] {
                [one] if one.heads.window == Window::Full && tables.have_chunks_in_attention_alone() => {
                    Some(one.clone())
                }
                _ => None,
            },
            tables,
        };
        let rows = [&compiled.decodes, &compiled.tokens, &compiled.decodes_beside, &compiled.sampled];
        let is_finite = rows.into_iter().chain(&compiled.chunks).all(RowTable::is_finite);
        is_finite.then_some(compiled)
    }

    /// The same tables under another correction.
    pub(in crate::step_model) fn corrected(&self, correction: Option<&Correction>) -> Option<Self> {
        Compiled::new(Arc::clone(&self.tables), correction)
    }

    /// Time of a step of decodes that sample and see all that was before them; `None` for any other.
    #[inline(always)]
    pub(in crate::step_model) fn run_us(&self, run: &Run) -> Option<f64> {
        let attention = self.decode_attention.as_ref()?;
        let num_requests = run.num_requests;
        let step = self.decode_step(num_requests)?;
        if run.num_sampled != num_requests {
            return None;
        }
        let call = attention.call(&step.placed, real(num_requests), run.computed_tokens + num_requests)?;
        let us = step.time.us + attention.calls * self.decode_factor * call.us;
        Some(larger(us, step.time.bound_us + attention.calls * call.bound_us))
    }

    /// Time of a step of decodes and a single chunk, each of which sees all that was before it; `None` for any other.
    #[inline(always)]
    pub(in crate::step_model) fn run_and_chunk_us(&self, run: &Run, chunk: &Request) -> Option<f64> {
        let (scheduled, computed) = (u64::from(chunk.num_scheduled_tokens), u64::from(chunk.num_computed_tokens));
        let attention = self.chunk_attention.as_ref().filter(|_| scheduled > 0 && !chunk.is_decode())?;
        let decode_attention = self.decode_attention.as_ref()?;
        let num_decodes = run.num_requests;
        let query_tokens = real(scheduled);
        let sees = Chunks {
            query_tokens,
            squared_tokens: query_tokens * query_tokens,
            // Exact: no chunk of the table has more than 2⁵³ pairs.
            pairs: query_tokens * real(computed) + 0.5 * query_tokens * real(scheduled + 1),
            kv_tokens: real(scheduled + computed),
        };
        let call = attention.one_call(scheduled, computed, &sees)?;
        let step = self.tokens.at(scheduled + num_decodes)?;
        let sampled = self.sampled.at(run.num_sampled + u64::from(chunk.samples))?;
        let mut us = step.us + sampled.us + self.request_us * real(num_decodes + 1) + self.chunk_us;
        let mut bound_us = step.bound_us + sampled.bound_us + attention.calls * call.bound_us;
        let mut chunk_us = call.us;
        if let Some(beside) = self.decode_step(num_decodes) {
            let kv_tokens = run.computed_tokens + num_decodes;
            let decodes = decode_attention.call(&beside.placed, real(num_decodes), kv_tokens)?;
            us += decode_attention.calls * self.decode_factor * decodes.us;
            bound_us += decode_attention.calls * decodes.bound_us;
            if attention.beside.is_some() {
                let span = decode_attention.span(decodes, real(num_decodes));
                chunk_us = attention.added(call, 1, query_tokens, &span);
            }
        } else if num_decodes > 0 {
            return None;
        }
        us += attention.calls * self.chunk_factor * larger(chunk_us, attention.least_us);
        Some(larger(us, bound_us))
    }

    /// Time of a step, µs; `None` for a batch beyond the tables.
    #[inline]
    pub(in crate::step_model) fn time_us(&self, decodes: &Decodes, chunks: Option<&BatchSums>) -> Option<f64> {
        match chunks {
            None => self.decodes_us(decodes),
            Some(chunks) => self.mixed_us(decodes, chunks),
        }
    }

    /// `None` for no decodes as for more than the tables hold.
    #[inline(always)]
    fn decode_step(&self, num_decodes: u64) -> Option<&DecodeStep> {
        self.decodes_that_sample.get((num_decodes as usize).wrapping_sub(1))
    }

    /// Time of a step of decodes alone.
    #[inline]
    fn decodes_us(&self, decodes: &Decodes) -> Option<f64> {
        if decodes.num_requests == 0 {
            return Some(0.0);
        }
        let step = self.decode_step(decodes.num_requests)?;
        let mut total = step.time;
        if decodes.num_sampled != decodes.num_requests {
            total = self.decodes.at(decodes.num_requests)?;
            let sampled = self.sampled.at(decodes.num_sampled)?;
            total.us += sampled.us + self.request_us * real(decodes.num_requests);
            total.bound_us += sampled.bound_us;
        }
        for attention in &self.tables.decode_attention {
            let kv_tokens = *decodes.kv_tokens.get(attention.window_index)?;
            let call = attention.call(&step.placed, real(decodes.num_requests), kv_tokens)?;
            total.us += attention.calls * self.decode_factor * call.us;
            total.bound_us += attention.calls * call.bound_us;
        }
        Some(larger(total.us, total.bound_us))
    }

    /// Time of a step with prompt chunks.
    fn mixed_us(&self, decodes: &Decodes, chunks: &BatchSums) -> Option<f64> {
        if chunks.num_prefills == 1
            && let Some(time_us) = self.run_and_chunk_us(&decodes.run(), &chunks.only_chunk())
        {
            return Some(time_us);
        }
        let num_decodes = decodes.num_requests;
        let mut total = self.tokens.at(chunks.num_tokens + num_decodes)?;
        let mut add = |time: Timed| {
            total.us += time.us;
            total.bound_us += time.bound_us;
        };
        add(self.sampled.at(chunks.num_sampled + decodes.num_sampled)?);
        if !self.decodes_beside.is_empty() {
            add(self.decodes_beside.at(num_decodes)?);
        }
        let counts = [
            chunks.prefill_tokens,
            chunks.prefill_context_tokens,
            chunks.prefill_tokens + chunks.prefill_context_tokens,
        ];
        for (table, count) in self.chunks.iter().zip(counts) {
            if !table.is_empty() {
                add(table.at(count)?);
            }
        }
        let num_chunks = chunks.num_prefills;
        add(Timed {
            us: self.request_us * real(num_decodes + num_chunks) + self.chunk_us * real(num_chunks),
            bound_us: 0.0,
        });
        let mut spans = [None; crate::physics::MAX_WINDOWS];
        if num_decodes > 0 {
            let beside = self.decode_step(num_decodes)?;
            for (attention, span) in self.tables.decode_attention.iter().zip(&mut spans) {
                let kv_tokens = *decodes.kv_tokens.get(attention.window_index)?;
                let call = attention.call(&beside.placed, real(num_decodes), kv_tokens)?;
                *span = Some(attention.span(call, real(num_decodes)));
                add(Timed {
                    us: attention.calls * self.decode_factor * call.us,
                    bound_us: attention.calls * call.bound_us,
                });
            }
        }
        let query_tokens = real(chunks.prefill_tokens);
        for attention in &self.tables.chunk_attention {
            let window = chunks.windows.get(attention.window_index)?;
            let sees = Chunks {
                query_tokens,
                squared_tokens: real_wide(chunks.prefill_squared_tokens),
                pairs: real_wide(window.prefill_pairs),
                kv_tokens: real(window.prefill_kv_tokens),
            };
            let alone = match num_chunks {
                1 => attention.one_call(chunks.prefill_tokens, chunks.prefill_context_tokens, &sees),
                _ => None,
            };
            let call = alone.unwrap_or_else(|| attention.call(&sees));
            let us = match attention.beside.and_then(|index| spans.get(index)) {
                Some(Some(decodes)) => attention.added(call, num_chunks, query_tokens, decodes),
                _ => call.us,
            };
            add(Timed {
                us: attention.calls * self.chunk_factor * larger(us, attention.least_us),
                bound_us: attention.calls * call.bound_us,
            });
        }
        Some(larger(total.us, total.bound_us))
    }
}
