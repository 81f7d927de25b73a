//! Matrix multiplications with weights: query/key/value, output, dense feed-forward, LM head. Biases are left out: a bias
//! adds one FLOP to the 2·k of its output.

use crate::dtype::{DType, WeightFormat};

use super::work::{Shape, Work};

/// Vocabulary rows are padded to a multiple of this (vLLM's `DEFAULT_VOCAB_PADDING_SIZE`).
const VOCAB_PADDING: u64 = 64;

/// A matrix product `y[m,n] = x[m,k] · W[k,n]`, or several of one shape in one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GemmShape {
    /// Rows of the activations: tokens.
    pub m: f64,
    /// Outputs.
    pub n: f64,
    /// Inputs.
    pub k: f64,
    /// Products in the call, each with inputs and weights of its own.
    pub copies: f64,
    /// Bytes of an activation as the matrix unit reads it: a kernel of its own quantises activations beforehand.
    pub input_bytes: f64,
    /// Bytes of a weight.
    pub weight_bytes: f64,
    /// Bytes of an output.
    pub output_bytes: f64,
}

impl GemmShape {
    /// The shape for weights stored as `weights` and outputs in the format of the activations.
    pub fn new(m: u64, n: u64, k: u64, weights: WeightFormat, activation: DType) -> Self {
        GemmShape {
            m: m as f64,
            n: n as f64,
            k: k as f64,
            copies: 1.0,
            input_bytes: compute_dtype(weights, activation).bytes(),
            weight_bytes: weights.bytes_per_weight(),
            output_bytes: activation.bytes(),
        }
    }
}

impl Shape for GemmShape {
    /// FLOPs, and bytes with inputs and weights read once and outputs written once.
    ///
    /// # Formula
    /// FLOPs `2·m·n·k`: a multiplication and an addition per term. Bytes `m·k·b_in + n·k·b_weight + m·n·b_out`. A call has
    /// `copies` such products.
    ///
    /// # Source
    /// Definition of the matrix product; compulsory traffic of the roofline model (Williams, Waterman and Patterson,
    /// 2009).
    ///
    /// ```
    /// use ridgepoint::physics::projection::GemmShape;
    /// use ridgepoint::physics::{Shape, Work};
    /// use ridgepoint::dtype::WeightFormat;
    /// use ridgepoint::DType;
    /// let bf16 = DType::Bfloat16;
    /// let plain = GemmShape::new(2, 3, 5, WeightFormat::Plain(bf16), bf16);
    /// assert_eq!(plain.work(), Work { flops: 60.0, bytes: 20.0 + 30.0 + 12.0 });
    /// let fp8 = GemmShape::new(2, 3, 5, WeightFormat::Fp8, bf16);
    /// assert_eq!(fp8.work().bytes, 10.0 + 15.0 + 12.0);
    /// let heads = GemmShape { copies: 4.0, ..plain };
    /// assert_eq!(heads.work(), Work { flops: 240.0, bytes: 4.0 * 62.0 });
    /// ```
    fn work(&self) -> Work {
        let GemmShape { m, n, k, copies, input_bytes, weight_bytes, output_bytes } = *self;
        let bytes = input_bytes * m * k + weight_bytes * n * k + output_bytes * m * n;
        Work { flops: copies * (2.0 * m * n * k), bytes: copies * bytes }
    }
}

/// Format of the matrix unit's operands for weights stored as `weights`.
///
/// Kernels dequantise weight-only formats (int4, 8-bit, mxfp4, nvfp4) to `activation`.
///
/// ```
/// use ridgepoint::dtype::WeightFormat;
/// use ridgepoint::DType;
/// use ridgepoint::physics::projection::compute_dtype;
/// assert_eq!(compute_dtype(WeightFormat::Mxfp4, DType::Bfloat16), DType::Bfloat16);
/// assert_eq!(compute_dtype(WeightFormat::Fp8, DType::Bfloat16), DType::Fp8);
/// ```
pub fn compute_dtype(weights: WeightFormat, activation: DType) -> DType {
    match weights {
        WeightFormat::Plain(dtype) => dtype,
        WeightFormat::Fp8 | WeightFormat::Fp8Block { .. } => DType::Fp8,
        WeightFormat::Int8 => DType::Int8,
        WeightFormat::Int4 { .. }
        | WeightFormat::Int8WeightOnly { .. }
        | WeightFormat::Mxfp4
        | WeightFormat::Nvfp4WeightOnly => activation,
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
