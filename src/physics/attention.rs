//! Attention over an explicit KV cache: multi-head, grouped-query and multi-query, prefill chunks and decodes. FLOPs of the
//! softmax are left out. `template` applies these formulas to the sums over a step's batch.

use crate::dtype::DType;
use crate::model::GqaAttention;

use super::operator::AttentionHeads;
use super::projection::kv_heads_per_rank;
use super::ranks::Ranks;
use super::sparse;
use super::work::{Shape, Work};

/// Heads of one rank, with sizes that need not be whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadShape {
    /// KV heads.
    pub kv_heads: f64,
    /// Query heads per KV head.
    pub group: f64,
    /// Width of a query and key head.
    pub head_dim: f64,
    /// Width of a value head.
    pub v_head_dim: f64,
    /// Bytes of a cached value.
    pub kv_bytes: f64,
    /// Bytes of a value of the queries and outputs.
    pub activation_bytes: f64,
    /// The cache holds values inside keys, as latents do.
    pub shares_kv: bool,
}

impl HeadShape {
    /// The heads of an operator, with queries and outputs in the `activation` format.
    pub fn new(heads: &AttentionHeads, activation: DType) -> Self {
        HeadShape {
            kv_heads: heads.num_kv_heads as f64,
            group: heads.num_heads as f64 / heads.num_kv_heads as f64,
            head_dim: heads.head_dim as f64,
            v_head_dim: heads.v_head_dim as f64,
            kv_bytes: sparse::kv_value_bytes(heads),
            activation_bytes: if heads.is_indexer() { DType::Fp8.bytes() } else { activation.bytes() },
            shares_kv: heads.is_mla,
        }
    }

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
    /// use ridgepoint::physics::attention::HeadShape;
    /// let heads = AttentionHeads {
    ///     num_heads: 4, num_kv_heads: 2, head_dim: 8, v_head_dim: 8,
    ///     kv_dtype: DType::Bfloat16, window: Window::Full, is_mla: false,
    /// };
    /// assert_eq!(HeadShape::new(&heads, DType::Bfloat16).flops(10.0), 4.0 * 10.0 * 4.0 * 8.0);
    /// ```
    pub fn flops(&self, pairs: f64) -> f64 {
        2.0 * pairs * self.kv_heads * self.group * (self.head_dim + self.v_head_dim)
    }

    /// Bytes that attention of `requests` equal requests moves at least: `keys` visible keys and values of each read once,
    /// `query` new queries of each in and outputs out.
    ///
    /// # Formula
    /// `requests·(keys·g·(e + e_v)·b_kv + query·h·(e + e_v)·b_activation)`; a latent holds its values inside its keys, so
    /// `e·b_kv` a key.
    ///
    /// # Source
    /// Compulsory traffic: a request's heads and queries share each read of its cache.
    ///
    /// ```
    /// use ridgepoint::DType;
    /// use ridgepoint::model::Window;
    /// use ridgepoint::physics::AttentionHeads;
    /// use ridgepoint::physics::attention::HeadShape;
    /// let heads = AttentionHeads {
    ///     num_heads: 4, num_kv_heads: 2, head_dim: 8, v_head_dim: 8,
    ///     kv_dtype: DType::Fp8, window: Window::Full, is_mla: false,
    /// };
    /// // 100 cached tokens of 2·16 bytes; 3 queries and outputs of 4·8 bf16 values each.
    /// assert_eq!(HeadShape::new(&heads, DType::Bfloat16).bytes(1.0, 3.0, 100.0), 3200.0 + 384.0);
    /// ```
    pub fn bytes(&self, requests: f64, query: f64, keys: f64) -> f64 {
        let width = self.head_dim + self.v_head_dim;
        let per_head = keys * self.kv_bytes + self.activation_bytes * query * self.group;
        let apart = requests * self.kv_heads * width * per_head;
        if self.shares_kv { apart - requests * self.kv_heads * self.v_head_dim * keys * self.kv_bytes } else { apart }
    }
}

/// Attention of `batch` equal requests, `query` new tokens each, `visible` keys per query on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Requests.
    pub batch: f64,
    /// New tokens per request.
    pub query: f64,
    /// Visible keys per new token, on average.
    pub visible: f64,
    /// Keys read per request.
    pub keys: f64,
    /// Heads of the rank.
    pub heads: HeadShape,
}

impl Shape for AttentionShape {
    /// See [`HeadShape::flops`] and [`HeadShape::bytes`].
    fn work(&self) -> Work {
        let AttentionShape { batch, query, visible, keys, heads } = self;
        Work { flops: heads.flops(batch * query * visible), bytes: heads.bytes(*batch, *query, *keys) }
    }
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
    HeadShape::new(heads, heads.kv_dtype).bytes(1.0, 0.0, 1.0)
}

/// The heads of a layer that one rank holds.
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
