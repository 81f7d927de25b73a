//! What is exported, and the rule that turns a batch into a time. Uses `grid`, `judge`, `correction`, `request`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::grid::{Line, Sheet};
use super::judge::ExportError;
use crate::correction::{HostTimes, Used};
use crate::deployment::Deployment;
use crate::request::Request;

/// Prices of a step beside its operators, µs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PricesUs {
    /// Of each step.
    pub step_us: f64,
    /// Of each step with a prompt chunk, on top.
    pub step_with_chunks_us: f64,
    /// Of each request.
    pub request_us: f64,
    /// Of each scheduled token.
    pub token_us: f64,
    /// Of each prompt chunk.
    pub chunk_us: f64,
    /// Of each sampled token.
    pub sampled_us: f64,
}

/// A coefficient of the correction, as it was fitted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Coefficient {
    /// Value.
    pub value: f64,
    /// Standard deviation of its posterior.
    pub sd: f64,
    /// What it is a factor on, or a price of.
    pub unit: &'static str,
}

/// A step model as tables. All times in µs; [`Export::step_time_us`] is the rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Export {
    /// Version of the layout and of the rule: 1.
    pub version: u32,
    /// The model, by its short name.
    pub model: String,
    /// The GPU, by its short name.
    pub hardware: String,
    /// How it is served.
    pub deployment: Deployment,
    /// The correction that is in all times.
    pub correction: Used,
    /// Its coefficients by name; empty without one.
    pub coefficients: BTreeMap<&'static str, Coefficient>,
    /// What the host does around steps.
    pub host: HostTimes,
    /// A step of decodes alone, without attention, over their number.
    pub decode_only: Line,
    /// A step with prompt chunks, without attention and without what sampled tokens need, over its scheduled tokens.
    pub with_chunks: Line,
    /// What sampled tokens need in a step with prompt chunks, over their number.
    pub sampled: Line,
    /// Attention of decodes, over their number (rows) and their mean computed tokens (columns).
    pub decode_attention: Sheet,
    /// Attention of a step's first prompt chunk, over its scheduled (rows) and computed tokens (columns).
    pub chunk_attention: Sheet,
    /// What each further chunk like the first adds.
    pub further_chunk_attention: Sheet,
    /// What of it the chunks of a step do not pay where decodes run in it, µs.
    pub saved_beside_decodes_us: f64,
    /// Prices.
    pub prices: PricesUs,
    /// How far [`Export::step_time_us`] is from the model that it was compiled from.
    pub error: ExportError,
}

impl Export {
    /// Time of a step, µs; 0 for nothing to do. Requests that schedule nothing are left out.
    ///
    /// # Formula
    /// With n decodes (one scheduled token on top of a cache) of K computed tokens in all, N prompt chunks of qᵢ scheduled and cᵢ
    /// computed tokens, T scheduled and S sampled tokens. The chunks count as N equal ones of q scheduled and c computed tokens,
    /// q = Σqᵢ/N and c = (Σqᵢcᵢ + Σqᵢ²/2)/Σqᵢ − q/2, which have as many tokens and as many pairs of a query and a key:
    /// - operators: `decode_only(n)` without chunks, else `with_chunks(T) + sampled(S)`;
    /// - attention: `decode_attention(n, K/n)` where n > 0, plus where N > 0
    ///   `max(0, chunk_attention(q, c) + (N − 1)·further_chunk_attention(q, c) − saved_beside_decodes_us if n > 0)`;
    /// - prices: of the step, of chunks in it, of n + N requests, T tokens, N chunks, S sampled tokens.
    pub fn step_time_us(&self, requests: &[Request]) -> f64 {
        let (mut decodes, mut computed, mut chunks, mut tokens, mut sampled) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for request in requests.iter().filter(|request| request.num_scheduled_tokens > 0) {
            let (q, c) = (f64::from(request.num_scheduled_tokens), f64::from(request.num_computed_tokens));
            tokens += q;
            sampled += if request.samples { 1.0 } else { 0.0 };
            if request.is_decode() {
                decodes += 1.0;
                computed += c;
            } else {
                chunks += 1.0;
            }
        }
        if tokens == 0.0 {
            return 0.0;
        }
        let prices = &self.prices;
        let mut time_us = prices.step_us
            + prices.request_us * (decodes + chunks)
            + prices.token_us * tokens
            + prices.chunk_us * chunks
            + prices.sampled_us * sampled;
        if decodes > 0.0 {
            time_us += self.decode_attention.time_us(decodes, computed / decodes);
        }
        if chunks == 0.0 {
            return time_us + self.decode_only.time_us(decodes);
        }
        let beside_us = if decodes > 0.0 { self.saved_beside_decodes_us } else { 0.0 };
        let attention_us = (self.chunks_alone_us(requests) - beside_us).max(0.0);
        let sampled_us = if sampled > 0.0 { self.sampled.time_us(sampled) } else { 0.0 };
        time_us + prices.step_with_chunks_us + self.with_chunks.time_us(tokens) + sampled_us + attention_us
    }

    /// Attention of a batch's prompt chunks with no decodes beside them, µs.
    pub(super) fn chunks_alone_us(&self, requests: &[Request]) -> f64 {
        let (mut chunks, mut tokens, mut pairs) = (0.0, 0.0, 0.0);
        for request in requests.iter().filter(|request| request.num_scheduled_tokens > 0 && !request.is_decode()) {
            let (q, c) = (f64::from(request.num_scheduled_tokens), f64::from(request.num_computed_tokens));
            (chunks, tokens, pairs) = (chunks + 1.0, tokens + q, pairs + q * c + q * q / 2.0);
        }
        if tokens == 0.0 {
            return 0.0;
        }
        let q = tokens / chunks;
        let c = pairs / tokens - q / 2.0;
        self.chunk_attention.time_us(q, c) + (chunks - 1.0) * self.further_chunk_attention.time_us(q, c)
    }
}
