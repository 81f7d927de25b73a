//! Attention time for a fractional mean context length, and its roofline bound as a few factors. Used to fill the dense
//! step-time tables.

use serde::Serialize;

use super::super::decode_times::DecodeTimes;
use super::super::fast_prefill::FastPrefill;
use super::{Curve, Timer};
use crate::physics::attention::HeadShape;
use crate::physics::{AttentionHeads, Kernel, Operator};
use crate::units::{larger, time_us};

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

    /// Decode attention of `heads` between whole numbers of tokens too, without the roofline bound; `None` where its time
    /// is that bound.
    pub fn decode_times(&self, heads: &AttentionHeads) -> Option<DecodeTimes<'_>> {
        match &self.curve {
            Curve::Decode(curve) => Some(DecodeTimes::new(curve, *heads)),
            _ => None,
        }
    }

    /// Prefill attention tabulated for `heads`; `None` where its time is the roofline bound.
    pub fn fast_prefill(&self, heads: &AttentionHeads) -> Option<FastPrefill> {
        match &self.curve {
            Curve::Prefill(curve) => Some(FastPrefill::new(curve, heads)),
            _ => None,
        }
    }
}
