//! The peak of the engine's profiling run: a forward pass of the largest step, then sampling for the most requests.

use crate::deployment::Deployment;
use crate::model::{Attention, DenseFfn, LayerGroup, Model};
use crate::physics::mla::latent_width;
use crate::physics::projection::kv_heads_per_rank;

/// Bytes per (request, vocabulary entry) at the fullest moment of sampling, which is inside the sort of top-p and top-k:
/// logits in 16 and in 32 bits (2 + 4), sorted values and their 64-bit indices (4 + 8), indices before the sort (8), and the
/// radix sort's second buffer of keys and indices (4 + 8).
///
/// # Source
/// vLLM 0.15, `apply_top_k_top_p` (`v1/sample/ops/topk_topp_sampler.py`), which the profiling run goes through; PyTorch,
/// `aten/src/ATen/native/cuda/Sort.cu`; CUB, `DeviceSegmentedRadixSort`.
pub const SAMPLING_BYTES_PER_LOGIT: f64 = 38.0;

/// Most tokens that the fused experts process at once (vLLM's `VLLM_FUSED_MOE_CHUNK_SIZE`).
const EXPERT_CHUNK_TOKENS: u64 = 16_384;
/// Most tokens of context that a latent attention projects up at once (vLLM, `MLACommonMetadataBuilder`).
const LATENT_CONTEXT_TOKENS: u64 = 65_536;

/// Returns the peak bytes of a forward pass of `max_num_batched_tokens` on a rank.
///
/// # Formula
/// `T·(2d + w)·b`: the residual stream, its normalised copy, and `w`, the widest pair of neighbouring intermediate results of
/// any layer. These are query, key and value with the attention's output; both halves of a gated feed-forward block with its
/// activation (`3f/t`); or those of the experts (`k·(max(2f, d) + f)` per token, for an expert's width `f` on the rank). A latent
/// attention also keeps `C` tokens of context, as latents and projected up.
///
/// ```
/// use ridgepoint::{Deployment, Model};
/// use ridgepoint::kv_capacity::forward_bytes;
/// let deployment = Deployment { max_num_batched_tokens: 2048, ..Deployment::default() };
/// let llama = Model::find("llama-2-7b")?;
/// assert_eq!(forward_bytes(&llama, &deployment, 4096), 2048.0 * (2.0 * 4096.0 + 3.0 * 11_008.0) * 2.0);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
pub fn forward_bytes(model: &Model, deployment: &Deployment, max_model_len: u64) -> f64 {
    let rank = Rank::new(deployment);
    let tokens = f64::from(deployment.max_num_batched_tokens);
    let stream = tokens * 2.0 * model.hidden_size as f64;
    let widest = |group: &LayerGroup| rank.attention(group).max(rank.feed_forward(group, model.hidden_size));
    let layer = model.layers.iter().map(widest).fold(0.0, f64::max);
    let context = model.layers.iter().map(|group| rank.latent_context(group, max_model_len)).fold(0.0, f64::max);
    (stream + layer + context) * model.dtype.bytes()
}

/// Returns the peak bytes of sampling on a rank. Every rank has the logits of the whole vocabulary.
///
/// # Formula
/// `min(S, T)·V·`[`SAMPLING_BYTES_PER_LOGIT`]` + 2·T·d·b`: the forward pass's hidden states and residual stream are still in memory.
///
/// ```
/// use ridgepoint::{Deployment, Model};
/// use ridgepoint::kv_capacity::sampling_bytes;
/// let deployment = Deployment { max_num_seqs: 128, max_num_batched_tokens: 2048, ..Deployment::default() };
/// let llama = Model::find("llama-2-7b")?;
/// assert_eq!(sampling_bytes(&llama, &deployment), 128.0 * 32_000.0 * 38.0 + 2.0 * 2048.0 * 4096.0 * 2.0);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
pub fn sampling_bytes(model: &Model, deployment: &Deployment) -> f64 {
    let tokens = f64::from(deployment.max_num_batched_tokens);
    let sampled = f64::from(deployment.max_num_seqs.min(deployment.max_num_batched_tokens));
    sampled * model.vocab_size as f64 * SAMPLING_BYTES_PER_LOGIT
        + 2.0 * tokens * model.hidden_size as f64 * model.dtype.bytes()
}

/// The sizes of a deployment that intermediate results depend on.
struct Rank {
    tensor: u64,
    expert_slices: u64,
    tokens: f64,
    expert_tokens: f64,
    context_tokens_by_seqs: u64,
}

impl Rank {
    fn new(deployment: &Deployment) -> Self {
        let tensor = u64::from(deployment.tensor_parallel_size.max(1));
        let replicas = u64::from(deployment.data_parallel_size.max(1));
        let tokens = u64::from(deployment.max_num_batched_tokens);
        Rank {
            tensor,
            expert_slices: if deployment.enable_expert_parallel { 1 } else { tensor * replicas },
            tokens: tokens as f64,
            expert_tokens: tokens.saturating_mul(replicas).min(EXPERT_CHUNK_TOKENS) as f64,
            context_tokens_by_seqs: u64::from(deployment.max_num_seqs)
                .saturating_mul(u64::from(deployment.block_size))
                .saturating_mul(4),
        }
    }

    /// Returns the elements of query, key, value and output.
    fn attention(&self, group: &LayerGroup) -> f64 {
        let width = match &group.attention {
            Attention::Gqa(gqa) => {
                let heads = gqa.num_heads / self.tensor;
                let kv_heads = kv_heads_per_rank(gqa.num_kv_heads, self.tensor);
                let query = heads * gqa.head_dim * if gqa.output_gate { 2 } else { 1 };
                query + kv_heads * (gqa.head_dim + gqa.v_head_dim) + heads * gqa.v_head_dim
            }
            Attention::Mla(mla) => {
                let heads = mla.num_heads / self.tensor;
                let key = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
                let latents = latent_width(mla.kv_lora_rank, mla.qk_rope_head_dim) + mla.q_lora_rank.unwrap_or(0);
                latents + heads * (2 * key + mla.qk_nope_head_dim + 2 * mla.v_head_dim)
            }
        };
        self.tokens * width as f64
    }

    /// Returns the elements of the feed-forward part. A dense block and experts in one layer run in turn.
    fn feed_forward(&self, group: &LayerGroup, hidden: u64) -> f64 {
        let dense = group.dense.as_ref().map_or(0.0, |dense| self.dense(dense));
        let experts = group.moe.as_ref().map_or(0.0, |moe| {
            let width = (moe.intermediate_size / self.expert_slices) as f64;
            let pairs = self.expert_tokens * moe.top_k as f64;
            let shared = moe.shared.as_ref().map_or(0.0, |shared| self.dense(shared));
            pairs * ((2.0 * width).max(hidden as f64) + width) + shared
        });
        dense.max(experts)
    }

    fn dense(&self, ffn: &DenseFfn) -> f64 {
        let width = ffn.intermediate_size / self.tensor;
        self.tokens * (width * if ffn.gated { 3 } else { 2 }) as f64
    }

    /// Returns the elements of the context that a latent attention gathers for a prefill chunk, as latents and as keys and
    /// values.
    fn latent_context(&self, group: &LayerGroup, max_model_len: u64) -> f64 {
        let Attention::Mla(mla) = &group.attention else { return 0.0 };
        let tokens = max_model_len.saturating_mul(8).max(self.context_tokens_by_seqs).min(LATENT_CONTEXT_TOKENS);
        let latent = latent_width(mla.kv_lora_rank, mla.qk_rope_head_dim);
        let projected = mla.num_heads / self.tensor * (mla.qk_nope_head_dim + mla.v_head_dim);
        tokens as f64 * (latent + projected) as f64
    }
}
