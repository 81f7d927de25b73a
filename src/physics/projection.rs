//! Matrix multiplications with weights: query/key/value, output, dense feed-forward, LM head.
//! Uses `model`, `dtype`; biases are left out (a bias adds one FLOP to the 2·k of its output).

use crate::dtype::{DType, WeightFormat};
use crate::model::{DenseFfn, GqaAttention};

use super::ranks::Ranks;
use super::template::{Matrix, Rows};

/// Vocabulary rows are padded to a multiple of this (vLLM's `DEFAULT_VOCAB_PADDING_SIZE`).
const VOCAB_PADDING: u64 = 64;

/// FLOPs of `y[m,n] = x[m,k] · W[k,n]`.
///
/// # Formula
/// `2·m·n·k`: a multiplication and an addition per term.
///
/// # Source
/// Definition of the matrix product.
///
/// ```
/// assert_eq!(ridgepoint::physics::projection::gemm_flops(2, 3, 5), 60.0);
/// ```
pub fn gemm_flops(m: u64, n: u64, k: u64) -> f64 {
    2.0 * m as f64 * n as f64 * k as f64
}

/// Bytes that `y[m,n] = x[m,k] · W[k,n]` moves at least: inputs and weights read once, outputs written once.
///
/// # Formula
/// `m·k·b_in + n·k·b_weight + m·n·b_activation`, where `b_in` is the size of the matrix unit's operand, since
/// activations are quantised by a kernel of their own before an 8-bit or 4-bit multiplication.
///
/// # Source
/// Compulsory traffic of the roofline model (Williams, Waterman and Patterson, 2009).
///
/// ```
/// use ridgepoint::{DType, WeightFormat};
/// use ridgepoint::physics::projection::gemm_bytes;
/// let bf16 = DType::Bfloat16;
/// assert_eq!(gemm_bytes(2, 3, 5, WeightFormat::Plain(bf16), bf16), 20.0 + 30.0 + 12.0);
/// assert_eq!(gemm_bytes(2, 3, 5, WeightFormat::Fp8, bf16), 10.0 + 15.0 + 12.0);
/// ```
pub fn gemm_bytes(m: u64, n: u64, k: u64, weights: WeightFormat, activation: DType) -> f64 {
    let (m, n, k) = (m as f64, n as f64, k as f64);
    let input = compute_dtype(weights, activation).bytes();
    m * k * input + n * k * weights.bytes_per_weight() + m * n * activation.bytes()
}

/// Format of the matrix unit's operands for weights stored as `weights`.
///
/// Weight-only formats (int4, 8-bit weight-only, mxfp4) are dequantised inside the kernel to `activation`.
///
/// ```
/// use ridgepoint::{DType, WeightFormat};
/// use ridgepoint::physics::projection::compute_dtype;
/// assert_eq!(compute_dtype(WeightFormat::Mxfp4, DType::Bfloat16), DType::Bfloat16);
/// assert_eq!(compute_dtype(WeightFormat::Fp8, DType::Bfloat16), DType::Fp8);
/// ```
pub fn compute_dtype(weights: WeightFormat, activation: DType) -> DType {
    match weights {
        WeightFormat::Plain(dtype) => dtype,
        WeightFormat::Fp8 | WeightFormat::Fp8Block { .. } => DType::Fp8,
        WeightFormat::Int8 => DType::Int8,
        WeightFormat::Int4 { .. } | WeightFormat::Int8WeightOnly { .. } | WeightFormat::Mxfp4 => activation,
        WeightFormat::Nvfp4 => DType::Fp4,
    }
}

/// KV heads that one rank holds: a share of them, or a copy of one where there are fewer heads than ranks.
///
/// # Formula
/// `max(G/t, 1)`.
///
/// # Source
/// vLLM, `QKVParallelLinear` (`num_kv_head_replicas`).
///
/// ```
/// use ridgepoint::physics::projection::kv_heads_per_rank;
/// assert_eq!(kv_heads_per_rank(8, 2), 4);
/// assert_eq!(kv_heads_per_rank(4, 8), 1);
/// ```
pub fn kv_heads_per_rank(num_kv_heads: u64, tensor_parallel_size: u64) -> u64 {
    (num_kv_heads / tensor_parallel_size.max(1)).max(1)
}

/// Vocabulary rows of the embedding and of the LM head on one rank.
///
/// # Formula
/// `⌈V/64⌉·64 / t`.
///
/// # Source
/// vLLM, `VocabParallelEmbedding` (`pad_vocab_size`).
///
/// ```
/// assert_eq!(ridgepoint::physics::projection::vocab_rows_per_rank(151_655, 4), 37_920);
/// ```
pub fn vocab_rows_per_rank(vocab_size: u64, tensor_parallel_size: u64) -> u64 {
    padded_vocab(vocab_size).div_ceil(tensor_parallel_size.max(1))
}

pub(super) fn padded_vocab(vocab_size: u64) -> u64 {
    vocab_size.next_multiple_of(VOCAB_PADDING)
}

/// Query, key and value in one matrix, and the output projection.
pub(super) fn gqa_matrices(hidden: u64, attention: &GqaAttention, ranks: Ranks) -> [Matrix; 2] {
    let heads = attention.num_heads / ranks.tensor;
    let kv_heads = kv_heads_per_rank(attention.num_kv_heads, ranks.tensor);
    let query = heads * attention.head_dim * if attention.output_gate { 2 } else { 1 };
    let value = if attention.k_eq_v { 0 } else { kv_heads * attention.v_head_dim };
    let outputs = query + kv_heads * attention.head_dim + value;
    [
        Matrix::new("qkv_proj", outputs, hidden, attention.qkv_weights),
        Matrix::new("o_proj", hidden, heads * attention.v_head_dim, attention.o_weights),
    ]
}

/// The two matrix multiplications of a feed-forward block, gate and up projection in one.
pub(super) fn ffn_matrices(hidden: u64, ffn: &DenseFfn, ranks: Ranks, shared: bool) -> [Matrix; 2] {
    let width = ffn.intermediate_size / ranks.tensor;
    let up = match (shared, ffn.gated) {
        (false, true) => "gate_up_proj",
        (false, false) => "up_proj",
        (true, true) => "shared_gate_up_proj",
        (true, false) => "shared_up_proj",
    };
    let down = if shared { "shared_down_proj" } else { "down_proj" };
    [
        Matrix::new(up, width * if ffn.gated { 2 } else { 1 }, hidden, ffn.weights),
        Matrix::new(down, hidden, width, ffn.weights),
    ]
}

/// The LM head, applied to sampled tokens only.
pub(super) fn lm_head_matrix(hidden: u64, vocab_size: u64, weights: WeightFormat, ranks: Ranks) -> Matrix {
    let rows = vocab_rows_per_rank(vocab_size, ranks.tensor);
    Matrix { rows: Rows::Sampled, ..Matrix::new("lm_head", rows, hidden, weights) }
}
