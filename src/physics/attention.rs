//! Attention over an explicit KV cache: multi-head, grouped-query and multi-query, prompt chunks and decodes.
//! Uses `model`, `dtype`, `operator`. FLOPs of the softmax are left out.

use crate::dtype::DType;
use crate::model::GqaAttention;

use super::operator::{AttentionHeads, OperatorGroup};
use super::projection::kv_heads_per_rank;
use super::ranks::Ranks;
use super::template::{Template, Work};

pub use super::window::{causal_pairs, chunked_pairs, sliding_pairs};

/// FLOPs of attention over `pairs` visible (query, key) pairs per head.
///
/// # Formula
/// `2·pairs·h·(e + e_v)`: scores `Q·Kᵀ` and the weighted sum of values.
///
/// # Source
/// Dao et al., FlashAttention-2 (2023), section 4.1, with exact causal pairs in place of half the square.
///
/// ```
/// use ridgepoint::DType;
/// use ridgepoint::model::Window;
/// use ridgepoint::physics::AttentionHeads;
/// use ridgepoint::physics::attention::attention_flops;
/// let heads = AttentionHeads {
///     num_heads: 4, num_kv_heads: 2, head_dim: 8, v_head_dim: 8,
///     kv_dtype: DType::Bfloat16, window: Window::Full, is_mla: false,
/// };
/// assert_eq!(attention_flops(&heads, 10.0), 4.0 * 10.0 * 4.0 * 8.0);
/// ```
pub fn attention_flops(heads: &AttentionHeads, pairs: f64) -> f64 {
    2.0 * pairs * heads.num_heads as f64 * (heads.head_dim + heads.v_head_dim) as f64
}

/// Bytes that one cached token costs a rank in one layer, written once and read by every step that sees it.
///
/// # Formula
/// `g·(e + e_v)·b_kv`; a latent (`is_mla`) holds its values inside its keys, so `e·b_kv`.
///
/// # Source
/// vLLM, `FullAttentionSpec` and `MLAAttentionSpec` (`page_size_bytes` over `block_size`).
///
/// ```
/// use ridgepoint::DType;
/// use ridgepoint::model::Window;
/// use ridgepoint::physics::AttentionHeads;
/// use ridgepoint::physics::attention::kv_bytes_per_token;
/// let latent = AttentionHeads {
///     num_heads: 128, num_kv_heads: 1, head_dim: 576, v_head_dim: 512,
///     kv_dtype: DType::Bfloat16, window: Window::Full, is_mla: true,
/// };
/// assert_eq!(kv_bytes_per_token(&latent), 1152.0);
/// ```
pub fn kv_bytes_per_token(heads: &AttentionHeads) -> f64 {
    let values = if heads.is_mla { 0 } else { heads.v_head_dim };
    (heads.num_kv_heads * (heads.head_dim + values)) as f64 * heads.kv_dtype.bytes()
}

/// Bytes that attention moves at least: visible keys and values read once per request, queries in, outputs out.
///
/// # Formula
/// `kv_tokens·g·(e + e_v)·b_kv + query_tokens·h·(e + e_v)·b_activation`
///
/// # Source
/// Compulsory traffic: a request's heads and queries share each read of its cache.
///
/// ```
/// use ridgepoint::DType;
/// use ridgepoint::model::Window;
/// use ridgepoint::physics::AttentionHeads;
/// use ridgepoint::physics::attention::attention_bytes;
/// let heads = AttentionHeads {
///     num_heads: 4, num_kv_heads: 2, head_dim: 8, v_head_dim: 8,
///     kv_dtype: DType::Fp8, window: Window::Full, is_mla: false,
/// };
/// // 100 cached tokens of 2·16 bytes; 3 queries and outputs of 4·8 bf16 values each.
/// assert_eq!(attention_bytes(&heads, 3, 100, DType::Bfloat16), 3200.0 + 384.0);
/// ```
pub fn attention_bytes(heads: &AttentionHeads, query_tokens: u64, kv_tokens: u64, activation: DType) -> f64 {
    kv_tokens as f64 * kv_bytes_per_token(heads) + query_tokens as f64 * query_bytes_per_token(heads, activation)
}

/// Bytes that a new token costs a rank in one layer's attention beside its cache: its query read and its output written.
///
/// # Formula
/// `h·(e + e_v)·b_activation`
///
/// ```
/// use ridgepoint::DType;
/// use ridgepoint::model::Window;
/// use ridgepoint::physics::AttentionHeads;
/// use ridgepoint::physics::attention::query_bytes_per_token;
/// let heads = AttentionHeads {
///     num_heads: 4, num_kv_heads: 2, head_dim: 8, v_head_dim: 8,
///     kv_dtype: DType::Fp8, window: Window::Full, is_mla: false,
/// };
/// assert_eq!(query_bytes_per_token(&heads, DType::Bfloat16), 128.0);
/// ```
pub fn query_bytes_per_token(heads: &AttentionHeads, activation: DType) -> f64 {
    (heads.num_heads * (heads.head_dim + heads.v_head_dim)) as f64 * activation.bytes()
}

/// What one rank holds of a layer's heads.
pub(super) fn gqa_heads(attention: &GqaAttention, kv_dtype: DType, ranks: Ranks) -> AttentionHeads {
    AttentionHeads {
        num_heads: attention.num_heads / ranks.tensor,
        num_kv_heads: kv_heads_per_rank(attention.num_kv_heads, ranks.tensor),
        head_dim: attention.head_dim,
        v_head_dim: attention.v_head_dim,
        kv_dtype,
        window: attention.window,
        is_mla: false,
    }
}

pub(super) fn prefill(heads: AttentionHeads, window_index: usize) -> Template {
    let work = Work::AttentionPrefill { heads, window_index };
    Template { name: "attention_prefill", group: OperatorGroup::AttentionPrefill, work, calls: 1 }
}

pub(super) fn decode(heads: AttentionHeads, window_index: usize) -> Template {
    let work = Work::AttentionDecode { heads, window_index };
    Template { name: "attention_decode", group: OperatorGroup::AttentionDecode, work, calls: 1 }
}
