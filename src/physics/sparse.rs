//! Sparse attention by an indexer (DeepSeek-V3.2, GLM-5): a small scorer reads one key of all earlier tokens for each query and
//! picks some, and latent attention reads those alone.
//!
//! As vLLM runs it: `wq_b` projects the query's latent to index heads in the checkpoint's format, `wk` and `weights_proj` are one
//! 16-bit projection of the hidden state. Queries are rotated and quantised to fp8, keys normed, rotated and written as fp8 with a scale.
//! `fp8_mqa_logits` (chunks) or `fp8_paged_mqa_logits` (decodes) scores all earlier tokens, and a top-k kernel picks. Attention is absorbed
//! in decodes and chunks alike, because each query has keys of its own. The scores go through memory between the two kernels: their
//! bytes are not compulsory and so not counted.
//!
//! # Source
//! DeepSeek-V3.2-Exp (2025), section 2.1; vLLM 0.24 and 0.32, `Indexer` (`vllm/model_executor/models/deepseek_v2.py`) and
//! `sparse_attn_indexer` (`vllm/model_executor/layers/sparse_attn_indexer.py`).

use crate::dtype::DType;
use crate::model::{Indexer, MlaAttention, Window};

use super::attention::kv_bytes_per_token;
use super::matrix::Matrix;
use super::operator::AttentionHeads;
use super::operator_id::OperatorKind::{
    IndexCacheWrite, IndexerDecode, IndexerKProj, IndexerPrefill, IndexerQProj, IndexerQuant,
};
use super::rows::Rows;
use super::template::{KernelTemplate, Template};

/// Values of an index key that share an fp32 scale, as `Indexer.quant_block_size` in vLLM.
const KEYS_PER_SCALE: f64 = 128.0;

/// Bytes of a cached token's picked-from latent in fp8: 512 values, four fp32 scales, and 64 rotary values of 16 bits (`fp8_ds_mla`).
///
/// # Source
/// vLLM, `MLAAttentionSpec.real_page_size_bytes` (`vllm/v1/kv_cache_interface.py`): 656 bytes a token.
///
/// ```
/// assert_eq!(ridgepoint::physics::sparse::fp8_latent_bytes(512.0, 576.0), 656.0);
/// ```
pub fn fp8_latent_bytes(kv_lora_rank: f64, latent_width: f64) -> f64 {
    kv_lora_rank + kv_lora_rank / KEYS_PER_SCALE * 4.0 + (latent_width - kv_lora_rank) * 2.0
}

/// Bytes of a cached index key: one per value, and the scales.
///
/// # Source
/// vLLM, `DeepseekV32IndexerCache`: `head_dim + head_dim / 128 · 4`.
///
/// ```
/// assert_eq!(ridgepoint::physics::sparse::index_key_bytes(128.0), 132.0);
/// ```
pub fn index_key_bytes(head_dim: f64) -> f64 {
    head_dim + head_dim / KEYS_PER_SCALE * 4.0
}

/// Bytes per token of the kernels between the projections and the scores: the key normed and rotated, queries rotated and quantised to fp8,
/// the heads' weights scaled to fp32.
///
/// # Formula
/// `4·e·b` for the key, read and written twice; `h·e·(b + 1)` for the queries; `h·(b + 4)` for the weights.
///
/// # Source
/// vLLM, `fused_indexer_q_rope_quant` and `Indexer.forward`.
///
/// ```
/// // Two heads of 8 in 16 bits.
/// assert_eq!(ridgepoint::physics::sparse::indexer_quant_bytes(2, 8, 2.0), 64.0 + 48.0 + 12.0);
/// ```
pub fn indexer_quant_bytes(num_heads: u64, head_dim: u64, activation_bytes: f64) -> f64 {
    let (heads, width) = (num_heads as f64, head_dim as f64);
    4.0 * width * activation_bytes + heads * width * (activation_bytes + 1.0) + heads * (activation_bytes + 4.0)
}

/// Kernels of that step: norm and rotation of the key, and the fused kernel of the queries.
const QUANT_LAUNCHES: u64 = 3;

/// Bytes of a cached value, with its share of the scales.
pub(super) fn kv_value_bytes(heads: &AttentionHeads) -> f64 {
    let width = heads.head_dim as f64;
    match (heads.is_indexer(), heads.is_sparse() && heads.is_mla && heads.kv_dtype == DType::Fp8) {
        (true, _) => index_key_bytes(width) / width,
        (_, true) => fp8_latent_bytes(heads.v_head_dim as f64, width) / width,
        _ => heads.kv_dtype.bytes(),
    }
}

/// The indexer of a layer that has one of its own.
pub(super) fn indexer(mla: &MlaAttention) -> Option<&Indexer> {
    mla.sparse.as_ref()?.indexer.as_ref()
}

/// Heads of the scores, the same on every rank. The cache is fp8 whatever the format of the latents.
pub(super) fn indexer_heads(indexer: &Indexer) -> AttentionHeads {
    AttentionHeads {
        num_heads: indexer.num_heads,
        num_kv_heads: 1,
        head_dim: indexer.head_dim,
        v_head_dim: 0,
        kv_dtype: DType::Fp8,
        window: Window::Full,
        is_mla: false,
    }
}

/// Projections of the indexer, replicated on every rank.
pub(super) fn matrices(mla: &MlaAttention, indexer: &Indexer, hidden: u64) -> [Matrix; 2] {
    let queries = indexer.num_heads * indexer.head_dim;
    [
        Matrix::new(IndexerQProj, queries, mla.q_lora_rank.unwrap_or(hidden), indexer.query_weights),
        Matrix::new(IndexerKProj, indexer.head_dim + indexer.num_heads, hidden, indexer.key_weights),
    ]
}

/// Kernels of the indexer after its projections; `window_index` is that of the full window.
pub(super) fn templates(indexer: &Indexer, window_index: usize, activation: DType) -> [Template; 4] {
    let heads = indexer_heads(indexer);
    let quant = indexer_quant_bytes(indexer.num_heads, indexer.head_dim, activation.bytes());
    let write = indexer.head_dim as f64 * activation.bytes() + kv_bytes_per_token(&heads);
    [
        Template::elementwise(IndexerQuant, Rows::Padded, quant, QUANT_LAUNCHES),
        Template::elementwise(IndexCacheWrite, Rows::Scheduled, write, 1),
        Template::new(IndexerPrefill, KernelTemplate::AttentionPrefill { heads, window_index }),
        Template::new(IndexerDecode, KernelTemplate::AttentionDecode { heads, window_index }),
    ]
}
