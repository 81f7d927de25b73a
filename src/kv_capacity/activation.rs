//! The peak of the engine's profiling run: a forward pass of the largest step, then sampling for the most requests.

use crate::deployment::Deployment;
use crate::dtype::DType;
use crate::engine::Engine;
use crate::model::{Attention, DenseFfn, LayerGroup, Model};
use crate::physics::Ranks;
use crate::physics::mla::latent_width;
use crate::physics::projection::kv_heads_per_rank;
use crate::physics::state_shape::StateHeads;
use crate::physics::truncation::Truncation;

/// Bytes per (request, vocabulary entry) at the fullest moment of sampling, which is inside the sort of top-p and top-k:
/// logits in 16 and in 32 bits (2 + 4), sorted values and their 64-bit indices (4 + 8), indices before the sort (8), and the
/// radix sort's second buffer of keys and indices (4 + 8).
///
/// # Source
/// vLLM 0.15, `apply_top_k_top_p` (`v1/sample/ops/topk_topp_sampler.py`), which the profiling run goes through; PyTorch,
/// `aten/src/ATen/native/cuda/Sort.cu`; CUB, `DeviceSegmentedRadixSort`.
const SAMPLING_BYTES_PER_LOGIT: f64 = 38.0;

/// The same where nothing is sorted: logits in 16 and in 32 bits, probabilities, and random numbers or masked logits (4 bytes each).
///
/// # Source
/// vLLM 0.18, `apply_top_k_top_p_triton` (`v1/sample/ops/topk_topp_triton.py`) masks in place, `forward_native`
/// (`topk_topp_sampler.py`) draws; vLLM 0.24, `flashinfer_sample`.
const UNSORTED_BYTES_PER_LOGIT: f64 = 14.0;

/// Most tokens that the fused experts process at once (vLLM's `VLLM_FUSED_MOE_CHUNK_SIZE`).
const EXPERT_CHUNK_TOKENS: f64 = 16_384.0;
/// Most tokens of context that a latent attention projects up at once (vLLM, `MLACommonMetadataBuilder`).
const LATENT_CONTEXT_TOKENS: u64 = 65_536;

/// Returns the peak bytes of a forward pass of `max_num_batched_tokens` on a rank.
///
/// # Formula
/// `T·(2d + w)·b`: the residual stream, its normalised copy, and `w`, the widest pair of neighbouring intermediate results of
/// any layer. These are query, key and value with the attention's output; both halves of a gated feed-forward block with its
/// activation (`3f/t`); or those of the experts (`k·(max(2f, d) + f)` per token, for an expert's width `f` on the rank). A latent
/// attention also keeps `C` tokens of context, as latents and projected up; a sparse one an indexer's scores and gathered keys.
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
    let ranks = Ranks::new(deployment);
    let tokens = f64::from(deployment.max_num_batched_tokens);
    let expert_tokens = (tokens * ranks.data as f64).min(EXPERT_CHUNK_TOKENS);
    let context_tokens = max_model_len
        .saturating_mul(8)
        .max(u64::from(deployment.max_num_seqs).saturating_mul(4 * u64::from(deployment.block_size)))
        .min(LATENT_CONTEXT_TOKENS);
    let hidden = model.hidden_size as f64;
    let widest = |group: &LayerGroup| {
        let attention = tokens * attention_width(&group.attention, model.dtype, ranks);
        attention.max(feed_forward(group, hidden, tokens, expert_tokens, ranks))
    };
    let layer = model.layers.iter().map(widest).fold(0.0, f64::max);
    let context = model.layers.iter().map(|group| context_width(&group.attention, ranks)).fold(0.0, f64::max);
    (tokens * 2.0 * hidden + layer + context_tokens as f64 * context) * model.dtype.bytes()
        + indexer_bytes(model, max_model_len)
}

/// Bytes of an indexer's scores at most: vLLM splits longer chunks (`VLLM_SPARSE_INDEXER_MAX_LOGITS_MB`).
const SCORE_BYTES: f64 = 512.0 * 1024.0 * 1024.0;
/// Bytes of gathered index keys per token of `max_model_len`: forty keys of 132 bytes.
const GATHERED_KEY_BYTES: f64 = 40.0 * 132.0;

/// Returns the bytes of an indexer's scores and gathered keys, which the profiling run reserves.
///
/// # Source
/// vLLM 0.24, `sparse_attn_indexer` (`vllm/model_executor/layers/sparse_attn_indexer.py`) and `get_max_prefill_buffer_size`
/// (`vllm/v1/attention/backends/mla/indexer.py`).
fn indexer_bytes(model: &Model, max_model_len: u64) -> f64 {
    let is_sparse = |group: &LayerGroup| matches!(&group.attention, Attention::Mla(mla) if mla.sparse.is_some());
    if model.layers.iter().any(is_sparse) { SCORE_BYTES + GATHERED_KEY_BYTES * max_model_len as f64 } else { 0.0 }
}

/// Returns the peak bytes of sampling on a rank. Every rank has the logits of the whole vocabulary.
///
/// # Formula
/// `min(S, T)·V·c + 2·T·d·b`: the forward pass's hidden states and residual stream are still in memory. `c` is
/// 38 where `engine` sorts for top-p, and 14 where it does not.
///
/// ```
/// use ridgepoint::{Deployment, Engine, Model};
/// use ridgepoint::kv_capacity::sampling_bytes;
/// let deployment = Deployment { max_num_seqs: 128, max_num_batched_tokens: 2048, ..Deployment::default() };
/// let llama = Model::find("llama-2-7b")?;
/// let bytes = |version| sampling_bytes(&llama, &deployment, &Engine::parse("vllm", Some(version)).expect("a version"));
/// assert_eq!(bytes("0.15.1"), 128.0 * 32_000.0 * 38.0 + 2.0 * 2048.0 * 4096.0 * 2.0);
/// assert_eq!(bytes("0.18.0"), 128.0 * 32_000.0 * 14.0 + 2.0 * 2048.0 * 4096.0 * 2.0);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
pub fn sampling_bytes(model: &Model, deployment: &Deployment, engine: &Engine) -> f64 {
    let bytes_per_logit = match Truncation::of(engine) {
        Truncation::Sort => SAMPLING_BYTES_PER_LOGIT,
        Truncation::Search | Truncation::Rejection | Truncation::JointRejection => UNSORTED_BYTES_PER_LOGIT,
    };
    let tokens = f64::from(deployment.max_num_batched_tokens);
    let sampled = f64::from(deployment.max_num_seqs.min(deployment.max_num_batched_tokens));
    sampled * model.vocab_size as f64 * bytes_per_logit + 2.0 * tokens * model.hidden_size as f64 * model.dtype.bytes()
}

/// Returns the width of query, key, value and output together.
fn attention_width(attention: &Attention, dtype: DType, ranks: Ranks) -> f64 {
    let width = match attention {
        Attention::Gqa(gqa) => {
            let heads = gqa.num_heads / ranks.tensor;
            let kv_heads = kv_heads_per_rank(gqa.num_kv_heads, ranks.tensor);
            let query = heads * gqa.head_dim * if gqa.output_gate { 2 } else { 1 };
            query + kv_heads * (gqa.head_dim + gqa.v_head_dim) + heads * gqa.v_head_dim
        }
        Attention::Mla(mla) => {
            let heads = mla.num_heads / ranks.tensor;
            let key = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
            let latents = latent_width(mla.kv_lora_rank, mla.qk_rope_head_dim) + mla.q_lora_rank.unwrap_or(0);
            match mla.sparse {
                None => latents + heads * (2 * key + mla.qk_nope_head_dim + 2 * mla.v_head_dim),
                // Queries, absorbed queries, the output in the latent space, and its projection to values.
                Some(_) => latents + heads * (key + 2 * mla.kv_lora_rank + mla.qk_rope_head_dim + mla.v_head_dim),
            }
        }
        // Inputs with their gate, convolved inputs, and the output.
        Attention::State(mixer) => {
            let heads = StateHeads::new(mixer, dtype, ranks);
            2 * (heads.conv_dim() + heads.value_dim())
        }
        Attention::None => 0,
    };
    width as f64
}

/// Returns the elements of the feed-forward part. A dense block and experts in one layer run in turn.
fn feed_forward(group: &LayerGroup, hidden: f64, tokens: f64, expert_tokens: f64, ranks: Ranks) -> f64 {
    let dense = |ffn: &DenseFfn| tokens * (ffn.intermediate_size / ranks.tensor * if ffn.gated { 3 } else { 2 }) as f64;
    let experts = group.moe.as_ref().map_or(0.0, |moe| {
        let width = (moe.intermediate_size / ranks.expert_slices()) as f64;
        let pairs = expert_tokens * moe.top_k as f64;
        let (up, hidden) =
            (if moe.gated { 2.0 } else { 1.0 } * width, moe.latent_size.map_or(hidden, |size| size as f64));
        pairs * (up.max(hidden) + width) + moe.shared.as_ref().map_or(0.0, dense)
    });
    group.dense.as_ref().map_or(0.0, dense).max(experts)
}

/// Returns the width of the context that a latent attention gathers for a prefill chunk: latents, keys and values.
fn context_width(attention: &Attention, ranks: Ranks) -> f64 {
    let Attention::Mla(mla) = attention else { return 0.0 };
    if mla.sparse.is_some() {
        return 0.0;
    }
    let projected = mla.num_heads / ranks.tensor * (mla.qk_nope_head_dim + mla.v_head_dim);
    (latent_width(mla.kv_lora_rank, mla.qk_rope_head_dim) + projected) as f64
}
