//! Attention time tabulated by requests and context length, and its roofline bound as a few factors, for the dense step-time
//! tables.
#![expect(clippy::indexing_slicing, reason = "there is an entry for every number of keys")]

use serde::Serialize;

use super::super::curve::mean_attention;
use super::super::fast_prefill::FastPrefill;
use super::super::kernel_model::DecodeModel;
use super::super::residual_curve::ResidualCurve;
use super::super::surface::{OctaveAxis, Surface};
use super::{FamilyCurve, Timer};
use crate::physics::attention::{AttentionShape, HeadShape};
use crate::physics::{AttentionHeads, Kernel, Operator};
use crate::units::{larger, time_us};

/// Knots per octave of keys per request, as a power of two.
pub const KEY_STEPS_LOG2: u32 = 4;

/// The roofline bound of attention: linear in FLOPs and in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AttentionBound {
    us_per_pair: f64,
    us_per_kv_token: f64,
    us_per_query_token: f64,
}

impl AttentionBound {
    /// Bound of one call over `pairs` visible pairs per head, `kv_tokens` keys read and `query_tokens` new tokens, µs.
    #[inline]
    pub fn us(&self, pairs: f64, kv_tokens: f64, query_tokens: f64) -> f64 {
        larger(pairs * self.us_per_pair, kv_tokens * self.us_per_kv_token + query_tokens * self.us_per_query_token)
    }
}

/// Heads of an attention operator; `None` for any other.
pub fn heads_of(operator: &Operator) -> Option<AttentionHeads> {
    match operator.kernel {
        Kernel::AttentionPrefill { heads, .. } | Kernel::AttentionDecode { heads, .. } => Some(heads),
        _ => None,
    }
}

impl Timer {
    /// The roofline bound of an attention operator of these `heads`, for any batch.
    pub fn attention_bound(&self, operator: &Operator, heads: &AttentionHeads) -> AttentionBound {
        let heads = HeadShape::new(heads, operator.compute_dtype);
        AttentionBound {
            us_per_pair: time_us(heads.flops(1.0), self.peak_flop_per_s),
            us_per_kv_token: time_us(heads.bytes(1.0, 0.0, 1.0), self.bytes_per_s),
            us_per_query_token: time_us(heads.bytes(1.0, 1.0, 0.0), self.bytes_per_s),
        }
    }

    /// Time of one call of decode attention by number of requests and by keys per request, from 1 to at least `longest`, µs. The roofline
    /// bound is not applied: all values are 0 if it is the time.
    pub fn decode_surface(&self, heads: &AttentionHeads, requests: &[u64], longest: u64) -> Surface<KEY_STEPS_LOG2> {
        let axis = OctaveAxis::covering(1.0, longest.max(2) as f64);
        let FamilyCurve::Decode(decode) = &self.curve else { return Surface::new(requests, axis, |_, _| 0.0) };
        let ResidualCurve { coefficients, chip, residuals, .. } = &decode.curve;
        // The parts that depend on the requests alone, or on the keys alone, are computed once.
        let by_requests = requests.iter().map(|requests| {
            let batch = *requests as f64;
            (batch, residuals.place(1, batch * decode.batch_factor))
        });
        let by_keys = (0..axis.num_knots()).map(|index| {
            let keys = axis.knot(index);
            (keys, residuals.place(0, decode.knot(keys)), DecodeModel::split_us(coefficients, keys))
        });
        let (by_requests, by_keys): (Vec<_>, Vec<_>) = (by_requests.collect(), by_keys.collect());
        let one = decode.seen(&mean_attention(1.0, 1.0, 1.0, 1.0, heads));
        Surface::new(&by_requests, axis, |(batch, row), index| {
            let (keys, column, split_us) = by_keys[index];
            let shape = AttentionShape { batch, visible: keys, keys, ..one };
            let modelled_us = DecodeModel::tabulated_us(coefficients, &shape, chip, split_us);
            modelled_us * residuals.at(&[column, row]).0.exp()
        })
    }

    /// Time of one call for a prompt of `tokens` tokens under a full window without the roofline bound, µs; `None` if that is the time.
    pub fn prompt_us(&self, heads: &AttentionHeads, tokens: f64) -> Option<f64> {
        let FamilyCurve::Prefill(curve) = &self.curve else { return None };
        let pairs = 0.5 * tokens * (tokens + 1.0);
        Some(curve.own(&mean_attention(1.0, tokens, pairs, tokens, heads)).0)
    }

    /// Prefill attention tabulated for `heads`; `None` if its time is the roofline bound.
    pub fn fast_prefill(&self, heads: &AttentionHeads) -> Option<FastPrefill> {
        match &self.curve {
            FamilyCurve::Prefill(curve) => Some(FastPrefill::new(curve, heads)),
            _ => None,
        }
    }
}
