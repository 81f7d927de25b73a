//! An operator before the batch is known: everything about it but the number of rows. Filling in the rows is a handful
//! of multiplications, all of them by the public formulas of the operator families. Uses those and `batch`.

use crate::dtype::{DType, WeightFormat};

use super::attention::{attention_bytes, attention_flops};
use super::batch::{BatchShape, WindowShape};
use super::communication::all_reduce_sent_bytes;
use super::moe::{Experts, expected_active_experts};
use super::operator::{AttentionHeads, Kernel, Operator, OperatorGroup};
use super::projection::{compute_dtype, gemm_bytes, gemm_flops};

/// A batch as the templates see it.
pub(crate) struct Step<'a> {
    pub batch: &'a BatchShape,
    /// Scheduled tokens, padded to the captured graph.
    pub padded_tokens: u64,
    /// Rows of projections that only decodes need: padded where the whole step is one graph.
    pub decode_rows: u64,
    pub activation: DType,
    pub expert_skew: f64,
}

/// What an operator's work is proportional to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rows {
    /// Tokens that run through the layers, padding included.
    Padded,
    /// Tokens that the scheduler put in.
    Scheduled,
    /// Tokens that are sampled from.
    Sampled,
    Decodes,
    /// Scheduled tokens of prompt chunks.
    Prefill,
    /// Tokens in the cache before the step, of prompt chunks.
    PrefillContext,
    /// Both together.
    PrefillKv,
}

impl Rows {
    fn of(self, step: &Step<'_>) -> u64 {
        match self {
            Rows::Padded => step.padded_tokens,
            Rows::Scheduled => step.batch.num_tokens,
            Rows::Sampled => step.batch.num_sampled,
            Rows::Decodes => step.decode_rows,
            Rows::Prefill => step.batch.prefill_tokens,
            Rows::PrefillContext => step.batch.prefill_context_tokens,
            Rows::PrefillKv => step.batch.prefill_tokens + step.batch.prefill_context_tokens,
        }
    }
}

/// A weight matrix of one rank and the rows that are multiplied with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Matrix {
    pub name: &'static str,
    pub rows: Rows,
    pub outputs: u64,
    pub inputs: u64,
    /// Matrices of this shape, each with inputs of its own (heads of a batched GEMM).
    pub copies: u64,
    pub weights: WeightFormat,
    /// False where another entry multiplies with the same weights, so that memory counts them once.
    pub stored: bool,
}

impl Matrix {
    pub fn new(name: &'static str, outputs: u64, inputs: u64, weights: WeightFormat) -> Self {
        Matrix { name, rows: Rows::Padded, outputs, inputs, copies: 1, weights, stored: true }
    }

    pub fn elements(&self) -> u64 {
        self.copies * self.outputs * self.inputs
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Work {
    Gemm(Matrix),
    AttentionPrefill { heads: AttentionHeads, window_index: usize },
    AttentionDecode { heads: AttentionHeads, window_index: usize },
    Experts(Experts),
    Elementwise { rows: Rows, bytes_per_row: f64, launches: u64 },
    AllReduce { bytes_per_row: f64, num_gpus: u64 },
    Exchange { rows: Rows, sent_bytes_per_row: f64, num_gpus: u64 },
}

/// An operator of one layer (or of the step, outside the layers).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Template {
    pub name: &'static str,
    pub group: OperatorGroup,
    pub work: Work,
    /// Calls per layer.
    pub calls: u64,
}

impl Template {
    pub fn gemm(matrix: Matrix) -> Self {
        Template { name: matrix.name, group: OperatorGroup::Projections, work: Work::Gemm(matrix), calls: 1 }
    }

    pub fn elementwise(name: &'static str, rows: Rows, bytes_per_row: f64, launches: u64) -> Self {
        let work = Work::Elementwise { rows, bytes_per_row, launches };
        Template { name, group: OperatorGroup::SmallKernels, work, calls: 1 }
    }
}

impl Work {
    /// The operator for this step; `None` where the step has no rows for it.
    pub fn operator(&self, step: &Step<'_>, name: &'static str, group: OperatorGroup, count: u64) -> Option<Operator> {
        let activation = step.activation;
        let (flops, bytes, compute_dtype, kernel) = match *self {
            Work::Gemm(matrix) => {
                let Matrix { outputs, inputs, copies, weights, .. } = matrix;
                let m = some_rows(matrix.rows.of(step))?;
                let flops = copies as f64 * gemm_flops(m, outputs, inputs);
                let bytes = copies as f64 * gemm_bytes(m, outputs, inputs, weights, activation);
                let kernel = Kernel::Gemm { m, n: copies * outputs, k: inputs, weights };
                (flops, bytes, compute_dtype(weights, activation), kernel)
            }
            Work::AttentionPrefill { heads, window_index } => {
                let num_requests = some_rows(step.batch.num_prefills)?;
                let WindowShape { prefill_pairs: pairs, prefill_kv_tokens: kv_tokens, .. } =
                    *step.batch.windows().get(window_index)?;
                let query_tokens = step.batch.prefill_tokens;
                let kernel = Kernel::AttentionPrefill {
                    heads,
                    num_requests,
                    query_tokens,
                    pairs,
                    kv_tokens,
                    max_query_tokens: step.batch.max_prefill_tokens,
                    mean_query_tokens: step.batch.prefill_squared_tokens / query_tokens as f64,
                };
                let bytes = attention_bytes(&heads, query_tokens, kv_tokens, activation);
                (attention_flops(&heads, pairs), bytes, activation, kernel)
            }
            Work::AttentionDecode { heads, window_index } => {
                let num_requests = some_rows(step.batch.num_decodes)?;
                let shape = step.batch.windows().get(window_index)?;
                let kv_tokens = shape.decode_kv_tokens;
                let max_kv_tokens = shape.max_decode_kv_tokens;
                let kernel = Kernel::AttentionDecode { heads, num_requests, kv_tokens, max_kv_tokens };
                let bytes = attention_bytes(&heads, num_requests, kv_tokens, activation);
                (attention_flops(&heads, kv_tokens as f64), bytes, activation, kernel)
            }
            Work::Experts(experts) => {
                let num_tokens = some_rows(step.padded_tokens)? * experts.token_replicas;
                let active = expected_active_experts(experts.num_experts, experts.top_k, num_tokens, step.expert_skew);
                let compute = compute_dtype(experts.weights, activation);
                let (flops, bytes) = experts.work(num_tokens, active, activation);
                (flops, bytes, compute, experts.kernel(num_tokens))
            }
            Work::Elementwise { rows, bytes_per_row, launches } => {
                let rows = some_rows(rows.of(step))?;
                (0.0, rows as f64 * bytes_per_row, activation, Kernel::Elementwise { launches })
            }
            Work::AllReduce { bytes_per_row, num_gpus } => {
                let message_bytes = some_rows(step.padded_tokens)? as f64 * bytes_per_row;
                let sent = all_reduce_sent_bytes(message_bytes, num_gpus);
                (0.0, sent, activation, Kernel::AllReduce { message_bytes, num_gpus })
            }
            Work::Exchange { rows, sent_bytes_per_row, num_gpus } => {
                let sent_bytes = some_rows(rows.of(step))? as f64 * sent_bytes_per_row;
                (0.0, sent_bytes, activation, Kernel::Exchange { sent_bytes, num_gpus })
            }
        };
        Some(Operator { name, group, count, flops, bytes, compute_dtype, kernel })
    }
}

fn some_rows(rows: u64) -> Option<u64> {
    (rows > 0).then_some(rows)
}
