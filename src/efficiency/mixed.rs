//! Attention of a step that holds prefill chunks and decodes: engines give both to one variable-length call, while the
//! tables time each kind alone.

use crate::physics::{AttentionHeads, Kernel, Operator};
use crate::units::{larger, real, smaller};

use super::kernel_model::QUERY_TILE;
use super::provenance::OperatorTime;

/// One kind of attention in a step: its operator, its time alone, and the launch in it.
#[derive(Debug, Clone, Copy)]
pub struct Alone<'a> {
    /// The operator.
    pub operator: &'a Operator,
    /// Its time if it were a call of its own.
    pub time: OperatorTime,
    /// Launch and set-up within that time, µs.
    pub launch_us: f64,
}

/// Time that prefill chunks add to the decodes' attention when both are one call, µs; `None` where they are calls
/// of their own (other heads, or latent attention).
///
/// # Formula
/// With `s` a kind's time beyond its launch and `f` the share of the SMs that it fills, the call takes
/// `launch + max(s_d, s_p, f_d·s_d + f_p·s_p)`: the launch is paid once, and a kind that leaves SMs idle runs beside the other.
///
/// # Source
/// vLLM, `FlashAttentionImpl.forward` (`vllm/v1/attention/backends/flash_attn.py`): one `flash_attn_varlen_func` call for
/// all requests of a step. Step traces of Llama-2-70B and CodeLlama-34B (vLLM 0.15.1, H100): a chunk of some ten tokens
/// beside 20 to 100 decodes adds 0.1 to 0.5 ms to a step, not a launch per layer.
pub fn added_by_prefill_us(decode: Alone<'_>, prefill: Alone<'_>, sm_count: f64) -> Option<f64> {
    let (decode_heads, decode_blocks) = heads_and_blocks(decode.operator)?;
    let (prefill_heads, prefill_blocks) = heads_and_blocks(prefill.operator)?;
    if !share_a_call(&decode_heads, &prefill_heads) {
        return None;
    }
    let span = |kind: &Alone<'_>, blocks| Span::new(kind.time.time_us, kind.launch_us, blocks, sm_count);
    Some(added_us(&span(&decode, decode_blocks), &span(&prefill, prefill_blocks)))
}

/// Whether the attention of decodes and of prefill chunks with these heads is one call.
pub fn share_a_call(decodes: &AttentionHeads, chunks: &AttentionHeads) -> bool {
    decodes == chunks && !decodes.is_mla
}

/// Blocks of threads that decode attention has work for.
#[inline]
fn decode_blocks(num_requests: u64, heads: &AttentionHeads) -> f64 {
    real(num_requests) * real(heads.num_kv_heads)
}

/// Blocks of threads that the attention of `num_requests` chunks has work for.
#[inline]
fn prefill_blocks(query_tokens: f64, num_requests: u64, heads: &AttentionHeads) -> f64 {
    query_tiles(query_tokens, num_requests) * real(heads.num_heads)
}

/// Tiles of query rows that the chunks of a step have for each head.
#[inline]
pub fn query_tiles(query_tokens: f64, num_requests: u64) -> f64 {
    larger(query_tokens / QUERY_TILE, real(num_requests))
}

/// One kind of attention within a call: its time beyond the launch, and the share of the SMs that it fills.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    us: f64,
    filled: f64,
}

impl Span {
    /// Of a kind that would take `time_us` by itself, `launch_us` of it launch and set-up.
    pub fn new(time_us: f64, launch_us: f64, blocks: f64, sm_count: f64) -> Self {
        Span::filling(time_us, launch_us, blocks / sm_count)
    }

    /// [`Span::new`] of a kind with so many blocks of threads for each SM.
    #[inline]
    pub fn filling(time_us: f64, launch_us: f64, blocks_per_sm: f64) -> Self {
        Span { us: larger(time_us - launch_us, 0.0), filled: smaller(blocks_per_sm, 1.0) }
    }
}

/// Time that `chunks` add to a call of `decodes`, µs: the formula of [`added_by_prefill_us`].
#[inline]
pub fn added_us(decodes: &Span, chunks: &Span) -> f64 {
    let together = decodes.filled * decodes.us + chunks.filled * chunks.us;
    larger(larger(decodes.us, chunks.us), together) - decodes.us
}

fn heads_and_blocks(operator: &Operator) -> Option<(AttentionHeads, f64)> {
    match operator.kernel {
        Kernel::AttentionDecode { heads, num_requests, .. } => Some((heads, decode_blocks(num_requests, &heads))),
        Kernel::AttentionPrefill { heads, num_requests, query_tokens, .. } => {
            Some((heads, prefill_blocks(query_tokens as f64, num_requests, &heads)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::efficiency::{Bound, Provenance};
    use crate::model::Window;
    use crate::physics::{OperatorGroup, OperatorId, OperatorKind};

    fn heads() -> AttentionHeads {
        AttentionHeads {
            num_heads: 16,
            num_kv_heads: 2,
            head_dim: 128,
            v_head_dim: 128,
            kv_dtype: DType::Bfloat16,
            window: Window::Full,
            is_mla: false,
        }
    }

    fn operator(kernel: Kernel) -> Operator {
        Operator {
            id: OperatorId::first(OperatorKind::AttentionDecode),
            name: "attention",
            group: OperatorGroup::AttentionDecode,
            count: 1,
            flops: 1.0,
            bytes: 1.0,
            compute_dtype: DType::Bfloat16,
            kernel,
        }
    }

    fn time(time_us: f64) -> OperatorTime {
        OperatorTime { time_us, bound_us: 1.0, bound: Bound::Latency, provenance: Provenance::Measured }
    }

    fn added(chunk: u64, prefill_us: f64, requests: u64, decode_us: f64) -> f64 {
        let decode = operator(Kernel::AttentionDecode {
            heads: heads(),
            num_requests: requests,
            kv_tokens: 600 * requests,
            max_kv_tokens: 600,
        });
        let prefill = operator(Kernel::AttentionPrefill {
            heads: heads(),
            num_requests: 1,
            query_tokens: chunk,
            pairs: 1.0,
            kv_tokens: chunk,
            max_query_tokens: chunk,
            mean_query_tokens: chunk as f64,
        });
        let alone = |operator, time_us| Alone { operator, time: time(time_us), launch_us: 10.0 };
        added_by_prefill_us(alone(&decode, decode_us), alone(&prefill, prefill_us), 132.0).expect("one call")
    }

    #[test]
    fn a_tiny_chunk_runs_beside_the_decodes() {
        assert!(added(7, 17.0, 36, 18.0) < 1e-9);
    }

    #[test]
    fn full_kinds_add_up_but_for_one_launch() {
        // 8192 / 128 · 16 = 1024 blocks and 64 · 2 = 128 of 132 SMs: 90 + 0.97·190 beyond the launch, less the decodes' own 190.
        let expected = 90.0 + 128.0 / 132.0 * 190.0 - 190.0;
        assert!((added(8192, 100.0, 64, 200.0) - expected).abs() < 1e-9);
    }
}
