//! Multi-head latent attention (DeepSeek V2/V3, Kimi-K2): projections through latents, absorbed decodes, prefill chunks
//! with keys and values projected up.
//!
//! As vLLM runs it: decodes attend in the latent space, with the key's up-projection absorbed into the query and the
//! value's applied to the output, both as batched matrix multiplications with one small matrix per head; chunks
//! project the latents of their own and of all earlier tokens up to full keys and values.
//! The two cost a decode `2·h·r·(e_nope + e_v)` FLOPs, `r` being `kv_lora_rank` (DeepSeek-V2, 2024, section 2.1).
//! A batched multiplication is a [`Kernel::Gemm`](super::Kernel) with one product per head.

use crate::dtype::DType;
use crate::model::{MlaAttention, Window};

use super::operator::AttentionHeads;
use super::ranks::Ranks;

/// Width of the cache per token: the latent and the shared rotary key.
///
/// ```
/// assert_eq!(ridgepoint::physics::mla::latent_width(512, 64), 576);
/// ```
pub fn latent_width(kv_lora_rank: u64, qk_rope_head_dim: u64) -> u64 {
    kv_lora_rank + qk_rope_head_dim
}

/// Bytes per key that a prefill chunk moves to join the per-head and the rotary part of the keys.
///
/// # Formula
/// `(h·e_nope + e_rope + h·(e_nope + e_rope))·b_activation`: both parts read, the whole written.
///
/// ```
/// assert_eq!(ridgepoint::physics::mla::key_join_bytes(2, 4, 2, 2.0), (8.0 + 2.0 + 12.0) * 2.0);
/// ```
pub fn key_join_bytes(num_heads: u64, qk_nope_head_dim: u64, qk_rope_head_dim: u64, activation_bytes: f64) -> f64 {
    let read = num_heads * qk_nope_head_dim + qk_rope_head_dim;
    let written = num_heads * (qk_nope_head_dim + qk_rope_head_dim);
    (read + written) as f64 * activation_bytes
}

/// The earlier tokens that a query attends to.
pub(super) fn window(mla: &MlaAttention) -> Window {
    mla.sparse.map_or(Window::Full, |sparse| Window::Picked(sparse.topk))
}

/// Heads of absorbed attention: of decodes, and of chunks too where attention is sparse.
pub(super) fn decode_heads(mla: &MlaAttention, kv_dtype: DType, ranks: Ranks) -> AttentionHeads {
    AttentionHeads {
        num_heads: mla.num_heads / ranks.tensor,
        num_kv_heads: 1,
        head_dim: latent_width(mla.kv_lora_rank, mla.qk_rope_head_dim),
        v_head_dim: mla.kv_lora_rank,
        kv_dtype,
        window: window(mla),
        is_mla: true,
    }
}

/// Heads of prefill chunks, whose keys and values are projected up and so in the activations' format.
pub(super) fn prefill_heads(mla: &MlaAttention, activation: DType, ranks: Ranks) -> AttentionHeads {
    let heads = mla.num_heads / ranks.tensor;
    AttentionHeads {
        num_heads: heads,
        num_kv_heads: heads,
        head_dim: mla.qk_nope_head_dim + mla.qk_rope_head_dim,
        v_head_dim: mla.v_head_dim,
        kv_dtype: activation,
        window: Window::Full,
        is_mla: false,
    }
}
