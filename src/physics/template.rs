//! An operator before the batch is known: everything about it but the number of rows. The formulas of the operator families
//! turn the rows into FLOPs and bytes.

use super::attention::HeadShape;
use super::batch::{BatchSums, WindowSums};
use super::communication::{Collective, ExchangeShape, RankGroup};
use super::experts::Experts;
use super::matrix::Matrix;
use super::operator::{AttentionHeads, Kernel, Operator};
use super::operator_id::{OperatorId, OperatorKind};
use super::projection::{self, GemmShape};
use super::rows::{PaddedStep, Rows};
use super::state_shape::{StateHeads, StateKernel, StateShape};
use super::work::{Shape, Work};
use crate::dtype::DType;
use crate::units::{real, real_wide};

/// The kernel of an operator, without its rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum KernelTemplate {
    Gemm(Matrix),
    AttentionPrefill {
        heads: AttentionHeads,
        window_index: usize,
    },
    AttentionDecode {
        heads: AttentionHeads,
        window_index: usize,
    },
    Experts(Experts),
    State {
        kernel: StateKernel,
        heads: StateHeads,
    },
    /// Kernels that only move bytes; `kernel` is their kind.
    Streaming {
        rows: Rows,
        bytes_per_row: f64,
        kernel: Kernel,
    },
    AllReduce {
        bytes_per_row: f64,
        num_gpus: u64,
        is_ring: bool,
    },
    Exchange {
        collective: Collective,
        rows: Rows,
        sent_bytes_per_row: f64,
        group: RankGroup,
    },
}

/// An operator of one layer (or of the step, outside the layers).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Template {
    pub kind: OperatorKind,
    pub kernel: KernelTemplate,
    /// Calls per layer.
    pub calls: u64,
}

impl Template {
    pub fn new(kind: OperatorKind, kernel: KernelTemplate) -> Self {
        Template { kind, kernel, calls: 1 }
    }

    pub fn gemm(matrix: Matrix) -> Self {
        Template::new(matrix.kind, KernelTemplate::Gemm(matrix))
    }

    pub fn elementwise(kind: OperatorKind, rows: Rows, bytes_per_row: f64, launches: u64) -> Self {
        Template::streaming(kind, rows, bytes_per_row, Kernel::Elementwise { launches })
    }

    pub fn streaming(kind: OperatorKind, rows: Rows, bytes_per_row: f64, kernel: Kernel) -> Self {
        Template::new(kind, KernelTemplate::Streaming { rows, bytes_per_row, kernel })
    }
}

impl KernelTemplate {
    /// Kernel launches of one call.
    pub fn launches(&self) -> u64 {
        match self {
            KernelTemplate::Streaming { kernel, .. } => kernel.launches(),
            KernelTemplate::State { kernel, heads } => kernel.launches(heads.recurrence),
            _ => 1,
        }
    }

    /// Whether it runs only where few tokens are sampled, in place of another.
    pub fn is_for_few_rows(&self) -> bool {
        matches!(self, KernelTemplate::Streaming { rows: Rows::FewSampled, .. })
    }

    /// Rows that alone determine the operator of a step; `None` where it has none, and for kernels that depend on more.
    pub fn rows(&self, step: &PaddedStep<'_>) -> Option<u64> {
        match self {
            KernelTemplate::Gemm(matrix) => matrix.rows.of(step),
            KernelTemplate::Experts(_) | KernelTemplate::AllReduce { .. } => Rows::Padded.of(step),
            KernelTemplate::Streaming { rows, .. } | KernelTemplate::Exchange { rows, .. } => rows.of(step),
            KernelTemplate::AttentionPrefill { .. }
            | KernelTemplate::AttentionDecode { .. }
            | KernelTemplate::State { .. } => None,
        }
    }

    /// The operator for this step; `None` where the step has no rows for it.
    pub fn operator(&self, step: &PaddedStep<'_>, id: OperatorId, name: &'static str, count: u64) -> Option<Operator> {
        let mut compute_dtype = step.activation;
        let (work, kernel) = match *self {
            KernelTemplate::Gemm(matrix) => {
                let Matrix { outputs, inputs, copies, weights, .. } = matrix;
                let m = matrix.rows.of(step)?;
                let one = GemmShape::new(m, outputs, inputs, weights, step.activation);
                let work = GemmShape { copies: copies as f64, ..one }.work();
                compute_dtype = projection::compute_dtype(weights, step.activation);
                (work, Kernel::Gemm { m, n: outputs, k: inputs, copies, weights })
            }
            KernelTemplate::AttentionPrefill { heads, window_index } => {
                let num_requests = Some(step.batch.num_prefills).filter(|number| *number > 0)?;
                let WindowSums { prefill_pairs, prefill_kv_tokens: kv_tokens, .. } =
                    *step.batch.windows.get(window_index)?;
                let pairs = prefill_pairs as f64;
                let query_tokens = step.batch.prefill_tokens;
                let kernel = Kernel::AttentionPrefill {
                    heads,
                    num_requests,
                    query_tokens,
                    pairs,
                    kv_tokens,
                    mean_query_tokens: step.batch.prefill_squared_tokens as f64 / query_tokens as f64,
                };
                compute_dtype = score_dtype(&heads, compute_dtype);
                (attention(step, &heads, query_tokens, kv_tokens, pairs), kernel)
            }
            KernelTemplate::AttentionDecode { heads, window_index } => {
                let num_requests = Some(step.batch.decode_rows()).filter(|number| *number > 0)?;
                let kv_tokens = step.batch.windows.get(window_index)?.decode_kv_tokens;
                let kernel = Kernel::AttentionDecode { heads, num_requests, kv_tokens };
                compute_dtype = score_dtype(&heads, compute_dtype);
                (attention(step, &heads, num_requests, kv_tokens, kv_tokens as f64), kernel)
            }
            KernelTemplate::Experts(experts) => {
                let num_tokens = Rows::Padded.of(step)? * experts.token_replicas;
                compute_dtype = projection::compute_dtype(experts.weights, step.activation);
                let shape = experts.shape(num_tokens as f64, compute_dtype.bytes(), step.activation.bytes());
                (shape.work(), Kernel::Moe { num_tokens, experts })
            }
            KernelTemplate::State { kernel, heads } => state_call(kernel, heads, step.batch)?,
            KernelTemplate::Streaming { rows, bytes_per_row, kernel } => {
                let bytes = rows.of(step)? as f64 * bytes_per_row;
                (Work { flops: 0.0, bytes }, kernel)
            }
            KernelTemplate::AllReduce { bytes_per_row, num_gpus, is_ring } => {
                let message_bytes = Rows::Padded.of(step)? as f64 * bytes_per_row;
                let shape = ExchangeShape::all_reduce(message_bytes, num_gpus as f64);
                (shape.work(), Kernel::AllReduce { message_bytes, num_gpus, is_ring })
            }
            KernelTemplate::Exchange { collective, rows, sent_bytes_per_row, group } => {
                let sent_bytes = rows.of(step)? as f64 * sent_bytes_per_row;
                (Work { flops: 0.0, bytes: sent_bytes }, Kernel::Exchange { collective, sent_bytes, group })
            }
        };
        let Work { flops, bytes } = work;
        Some(Operator { id, name, group: id.kind.group(), count, flops, bytes, compute_dtype, kernel })
    }
}

/// Format that attention computes in: an indexer scores in fp8, attention in the activations' format.
fn score_dtype(heads: &AttentionHeads, activation: DType) -> DType {
    if heads.is_indexer() { DType::Fp8 } else { activation }
}

/// The work of all requests of a step together.
fn attention(step: &PaddedStep<'_>, heads: &AttentionHeads, query_tokens: u64, kv_tokens: u64, pairs: f64) -> Work {
    let heads = HeadShape::new(heads, step.activation);
    Work { flops: heads.flops(pairs), bytes: heads.bytes(1.0, query_tokens as f64, kv_tokens as f64) }
}

/// Work and shape of one call of `kernel` over a batch; `None` if the batch has no tokens for it. Padding has no state to read.
pub(crate) fn state_call(kernel: StateKernel, heads: StateHeads, batch: &BatchSums) -> Option<(Work, Kernel)> {
    let BatchSums { num_prefills, prefill_tokens, prefill_squared_tokens, .. } = *batch;
    let decode_rows = batch.decode_rows();
    let (num_requests, num_tokens, squared_tokens) = if kernel.is_prefill() {
        (num_prefills, prefill_tokens, real_wide(prefill_squared_tokens))
    } else {
        (decode_rows, decode_rows, real(decode_rows))
    };
    let num_tokens = Some(num_tokens).filter(|tokens| *tokens > 0)?;
    let shape = StateShape { kernel, heads, requests: real(num_requests), tokens: real(num_tokens) };
    let mean_query_tokens = squared_tokens / shape.tokens;
    Some((shape.work(), Kernel::State { kernel, heads, num_requests, num_tokens, mean_query_tokens }))
}
