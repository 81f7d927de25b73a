//! Kernels that only move bytes: norms, rotary embedding, activation, cache write, quantisation, routing.
//! Bytes per token and launches per layer, fused as vLLM fuses them.

use crate::dtype::{DType, WeightFormat};
use crate::model::{DenseFfn, GqaAttention, MlaAttention, Moe};

use super::attention::kv_bytes_per_token;
use super::experts::Experts;
use super::matrix::Matrix;
use super::mla::{key_join_bytes, latent_width};
use super::operator::AttentionHeads;
use super::operator_id::OperatorKind::{self, *};
use super::projection::compute_dtype;
use super::ranks::Ranks;
use super::rows::Rows;
use super::template::Template;

/// Bytes per token of a layer's norms over the residual stream.
///
/// # Formula
/// The first two are fused with the residual addition, `4·d·b` (input and residual read and written); any further
/// ones, as in Gemma, are plain, `2·d·b`.
///
/// # Source
/// vLLM, `fused_add_rms_norm` and `rms_norm` kernels.
///
/// ```
/// use ridgepoint::physics::small::norm_bytes;
/// assert_eq!(norm_bytes(2, 100, 2.0), 1600.0);
/// assert_eq!(norm_bytes(4, 100, 2.0), 2400.0);
/// ```
pub fn norm_bytes(num_norms: u64, hidden_size: u64, activation_bytes: f64) -> f64 {
    let fused = num_norms.min(2);
    (4 * fused + 2 * (num_norms - fused)) as f64 * hidden_size as f64 * activation_bytes
}

/// Bytes per token of a kernel that reads and writes `width` values in place: rotary embedding, norms of heads.
///
/// ```
/// assert_eq!(ridgepoint::physics::small::in_place_bytes(100, 2.0), 400.0);
/// ```
pub fn in_place_bytes(width: u64, activation_bytes: f64) -> f64 {
    2.0 * width as f64 * activation_bytes
}

/// Bytes per token of the activation function between the projections of a feed-forward block.
///
/// # Formula
/// `3·f·b` where gate and up are multiplied (two read, one written), else `2·f·b`.
///
/// # Source
/// vLLM, `silu_and_mul` kernel.
///
/// ```
/// assert_eq!(ridgepoint::physics::small::activation_bytes_per_token(10, true, 2.0), 60.0);
/// ```
pub fn activation_bytes_per_token(intermediate_size: u64, gated: bool, activation_bytes: f64) -> f64 {
    intermediate_size as f64 * if gated { 3.0 } else { 2.0 } * activation_bytes
}

/// Bytes per token of quantising the inputs of a matrix multiplication; `None` where it takes them as they are.
///
/// # Formula
/// `k·(b_activation + b_operand)`.
///
/// # Source
/// vLLM, `scaled_fp8_quant`, `per_token_group_quant_fp8`, `scaled_int8_quant`, `scaled_fp4_quant` kernels.
///
/// ```
/// use ridgepoint::dtype::WeightFormat;
/// use ridgepoint::DType;
/// use ridgepoint::physics::small::quantisation_bytes;
/// assert_eq!(quantisation_bytes(100, WeightFormat::Fp8, DType::Bfloat16), Some(300.0));
/// assert_eq!(quantisation_bytes(100, WeightFormat::Mxfp4, DType::Bfloat16), None);
/// ```
pub fn quantisation_bytes(inputs: u64, weights: WeightFormat, activation: DType) -> Option<f64> {
    let operand = compute_dtype(weights, activation).bytes();
    let quantises = !matches!(weights, WeightFormat::Plain(_)) && operand < activation.bytes();
    quantises.then(|| inputs as f64 * (activation.bytes() + operand))
}

/// Bytes per token of choosing its experts.
///
/// # Formula
/// `E·4 + k·8`: router logits read as 32 bits, weights and indices of the chosen written.
///
/// # Source
/// vLLM, `topk_softmax` kernel.
///
/// ```
/// assert_eq!(ridgepoint::physics::small::routing_bytes(8, 2), 48.0);
/// ```
pub fn routing_bytes(num_experts: u64, top_k: u64) -> f64 {
    (4 * num_experts + 8 * top_k) as f64
}

/// Launches of the sort of tokens by expert.
const ALIGN_LAUNCHES: u64 = 2;

/// Bytes per token of sorting its (token, expert) pairs by expert: weights and indices of the chosen, read and written.
///
/// ```
/// assert_eq!(ridgepoint::physics::small::align_bytes(2), 32.0);
/// ```
pub fn align_bytes(top_k: u64) -> f64 {
    (16 * top_k) as f64
}

/// Bytes of summing the outputs of a token's experts.
///
/// # Formula
/// `(pairs + tokens)·d·b`.
///
/// # Source
/// vLLM, `moe_sum` kernel.
///
/// ```
/// assert_eq!(ridgepoint::physics::small::expert_sum_bytes(2.0, 1.0, 10, 2.0), 60.0);
/// ```
pub fn expert_sum_bytes(pairs: f64, tokens: f64, hidden_size: u64, activation_bytes: f64) -> f64 {
    (pairs + tokens) * hidden_size as f64 * activation_bytes
}

/// The layer's norms. Their weights give their number; two where the weights are not counted.
pub(super) fn norms(norm_params: u64, hidden: u64, activation: DType) -> Template {
    let num_norms = if norm_params == 0 { 2 } else { norm_params.div_ceil(hidden) };
    Template::elementwise(Norms, Rows::Padded, norm_bytes(num_norms, hidden, activation.bytes()), num_norms)
}

/// Kernels around grouped-query attention but the cache write: query and key norms, rotary embedding.
pub(super) fn before_gqa(attention: &GqaAttention, heads: &AttentionHeads, activation: DType) -> Vec<Template> {
    let bytes = |width: u64| in_place_bytes((heads.num_heads + heads.num_kv_heads) * width, activation.bytes());
    let norm = attention.qk_norm.then(|| Template::elementwise(QkNorm, Rows::Padded, bytes(heads.head_dim), 2));
    let rotary = Template::elementwise(Rotary, Rows::Padded, bytes(attention.rotary_dim), 1);
    norm.into_iter().chain((attention.rotary_dim > 0).then_some(rotary)).collect()
}

/// Norms of the latents, and the rotary embedding of the queries' and the shared key's rotary parts.
pub(super) fn before_mla(mla: &MlaAttention, activation: DType, ranks: Ranks) -> [Template; 2] {
    let latents = mla.kv_lora_rank + mla.q_lora_rank.unwrap_or(0);
    let norms = 1 + u64::from(mla.q_lora_rank.is_some());
    let rotary = (mla.num_heads / ranks.tensor + 1) * mla.qk_rope_head_dim;
    [
        Template::elementwise(LatentNorms, Rows::Padded, in_place_bytes(latents, activation.bytes()), norms),
        Template::elementwise(Rotary, Rows::Padded, in_place_bytes(rotary, activation.bytes()), 1),
    ]
}

/// Earlier latents gathered from the cache, and keys joined from their two parts.
pub(super) fn prefill_mla(mla: &MlaAttention, kv_dtype: DType, activation: DType, ranks: Ranks) -> [Template; 2] {
    let latent = latent_width(mla.kv_lora_rank, mla.qk_rope_head_dim) as f64;
    let gather = latent * (kv_dtype.bytes() + activation.bytes());
    let heads = mla.num_heads / ranks.tensor;
    let join = key_join_bytes(heads, mla.qk_nope_head_dim, mla.qk_rope_head_dim, activation.bytes());
    [
        Template::elementwise(KvContextGather, Rows::PrefillContext, gather, 1),
        Template::elementwise(KeyJoin, Rows::PrefillKv, join, 1),
    ]
}

/// New keys and values into the cache, real tokens only: padding has no slot.
pub(super) fn kv_cache_write(cache: &AttentionHeads, activation: DType) -> Template {
    let written = kv_bytes_per_token(cache);
    let read = written / cache.kv_dtype.bytes() * activation.bytes();
    Template::elementwise(KvCacheWrite, Rows::Scheduled, read + written, 1)
}

/// The gate on the attention's output: output and gate read, product written.
pub(super) fn attention_gate(heads: &AttentionHeads, activation: DType) -> Template {
    let bytes = (3 * heads.num_heads * heads.v_head_dim) as f64 * activation.bytes();
    Template::elementwise(AttentionGate, Rows::Padded, bytes, 1)
}

pub(super) fn activation_function(ffn: &DenseFfn, activation: DType, ranks: Ranks, shared: bool) -> Template {
    let width = ffn.intermediate_size / ranks.tensor;
    let bytes = activation_bytes_per_token(width, ffn.gated, activation.bytes());
    Template::elementwise(if shared { SharedActivation } else { Activation }, Rows::Padded, bytes, 1)
}

/// Quantisation of the inputs of all of a layer's matrices that ask for it, one launch each.
pub(super) fn quantisation(matrices: &[Matrix], activation: DType) -> Option<Template> {
    let padded = matrices.iter().filter(|m| m.rows == Rows::Padded);
    quantised(ActivationQuant, padded.filter_map(|m| quantisation_bytes(m.inputs, m.weights, activation)).collect())
}

/// Kernels that quantise these bytes per token, one launch each.
fn quantised(kind: OperatorKind, bytes: Vec<f64>) -> Option<Template> {
    (!bytes.is_empty()).then(|| Template::elementwise(kind, Rows::Padded, bytes.iter().sum(), bytes.len() as u64))
}

/// Routing before the experts, and after them the sum over each token's experts with the shared expert added.
pub(super) fn around_experts(
    moe: &Moe,
    experts: &Experts,
    hidden: u64,
    activation: DType,
) -> (Vec<Template>, Vec<Template>) {
    let replicas = experts.token_replicas as f64;
    let (pairs, width, bytes) = (experts.pairs_per_token(), experts.hidden_size, activation.bytes());
    let routing = replicas * routing_bytes(moe.num_experts, moe.top_k);
    let align = replicas * align_bytes(moe.top_k);
    let mut before = vec![
        Template::elementwise(MoeTopk, Rows::Padded, routing, 1),
        Template::elementwise(MoeAlign, Rows::Padded, align, ALIGN_LAUNCHES),
    ];
    let inputs = [
        quantisation_bytes(width, moe.weights, activation).map(|b| b * replicas),
        quantisation_bytes(experts.intermediate_size, moe.weights, activation).map(|b| b * pairs),
    ];
    before.extend(quantised(ExpertQuant, inputs.into_iter().flatten().collect()));
    // Adding the shared expert reads both sums and writes one; its gate reads and writes the shared one.
    let shared = u64::from(moe.shared.is_some());
    let gate = shared * u64::from(moe.shared_gate);
    let sum = expert_sum_bytes(pairs, replicas, width, bytes);
    let mut after = vec![Template::elementwise(MoeSum, Rows::Padded, sum, 1)];
    if shared > 0 {
        let extra = (3 * shared + 2 * gate) as f64 * hidden as f64 * bytes;
        after.push(Template::elementwise(SharedAdd, Rows::Padded, extra, shared + gate));
    }
    (before, after)
}
