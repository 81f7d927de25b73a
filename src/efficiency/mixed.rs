//! Attention of a step that holds prompt chunks and decodes: engines give both to one variable-length call, while the
//! tables time each kind alone. Uses `physics`, `provenance`.

use super::provenance::OperatorTime;
use crate::physics::{AttentionHeads, Kernel, Operator};

/// Query rows of a prompt chunk that one block of threads works on.
const QUERY_TILE: u64 = 128;

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

/// What the prompt chunks add to the time of the decodes' attention when both are one call, µs; `None` where they are calls
/// of their own (other heads, or latent attention).
///
/// # Formula
/// With `s` a kind's time beyond its launch and `f` the share of the SMs that it fills, the call takes
/// `launch + max(s_d, s_p, f_d·s_d + f_p·s_p)`: the launch is paid once, and what leaves SMs idle runs beside the other.
///
/// # Source
/// vLLM, `FlashAttentionImpl.forward` (`vllm/v1/attention/backends/flash_attn.py`): one `flash_attn_varlen_func` call for
/// all requests of a step. Step traces of Llama-2-70B and CodeLlama-34B (vLLM 0.15.1, H100): a chunk of some ten tokens
/// beside 20 to 100 decodes adds 0.1 to 0.5 ms to a step, not a launch per layer.
pub fn added_by_prefill_us(decode: Alone<'_>, prefill: Alone<'_>, sm_count: f64) -> Option<f64> {
    let (decode_heads, decode_blocks) = heads_and_blocks(decode.operator)?;
    let (prefill_heads, prefill_blocks) = heads_and_blocks(prefill.operator)?;
    if decode_heads != prefill_heads || decode_heads.is_mla {
        return None;
    }
    let span = |kind: &Alone<'_>| (kind.time.time_us - kind.launch_us).max(0.0);
    let filled = |blocks: f64| (blocks / sm_count).min(1.0);
    let (span_d, span_p) = (span(&decode), span(&prefill));
    let together = filled(decode_blocks) * span_d + filled(prefill_blocks) * span_p;
    Some(span_d.max(span_p).max(together) - span_d)
}

fn heads_and_blocks(operator: &Operator) -> Option<(AttentionHeads, f64)> {
    match operator.kernel {
        Kernel::AttentionDecode { heads, num_requests, .. } => {
            Some((heads, num_requests as f64 * heads.num_kv_heads as f64))
        }
        Kernel::AttentionPrefill { heads, num_requests, query_tokens, .. } => {
            let tiles = (query_tokens as f64 / QUERY_TILE as f64).max(num_requests as f64);
            Some((heads, tiles * heads.num_heads as f64))
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
    use crate::physics::OperatorGroup;

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
