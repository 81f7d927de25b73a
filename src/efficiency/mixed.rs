//! Attention of a step with prefill chunks and decodes: engines give both to one variable-length call, while the
//! tables time each kind alone.

use super::curve::{DecodeCurve, PrefillCurve};
use super::kernel_model::QUERY_TILE;
use crate::physics::{AttentionHeads, Kernel};
use crate::units::{larger, real, smaller};

/// Whether the attention of decodes and of prefill chunks with these heads is one call.
pub fn share_a_call(decodes: &AttentionHeads, chunks: &AttentionHeads) -> bool {
    decodes == chunks && !decodes.is_mla
}

/// Blocks of threads that attention has work for; 0 for any other kernel.
pub fn blocks(kernel: &Kernel) -> f64 {
    match *kernel {
        Kernel::AttentionDecode { heads, num_requests, .. } => real(num_requests) * real(heads.num_kv_heads),
        Kernel::AttentionPrefill { heads, num_requests, query_tokens, kv_tokens, .. } => {
            let splits = real(kv_tokens.saturating_sub(query_tokens)) * splits_per_key(&heads);
            chunk_blocks(real(query_tokens), num_requests, splits) * real(heads.num_heads)
        }
        _ => 0.0,
    }
}

/// Cached keys of a KV head that are worth a block of threads of their own. Assumed.
const KEYS_PER_SPLIT: f64 = 512.0;

/// Blocks of threads that the chunks of a step have for each query head: tiles of query rows, and `splits` for cached keys.
#[inline]
pub fn chunk_blocks(query_tokens: f64, num_requests: u64, splits: f64) -> f64 {
    larger(query_tokens / QUERY_TILE, real(num_requests)) + splits
}

/// Blocks of threads for each query head that a cached key of a chunk is worth.
pub fn splits_per_key(heads: &AttentionHeads) -> f64 {
    real(heads.num_kv_heads) / (KEYS_PER_SPLIT * real(heads.num_heads))
}

/// The time of one kind of attention within a call, launch and rest apart, and the share of the SMs that it fills.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    launch_us: f64,
    us: f64,
    filled: f64,
}

impl Span {
    /// A kind that takes `time_us` as a call of its own, `launch_us` of it launch and set-up. It has `blocks_per_sm` blocks of
    /// threads for each SM.
    #[inline]
    pub fn new(time_us: f64, launch_us: f64, blocks_per_sm: f64) -> Self {
        Span { launch_us, us: larger(time_us - launch_us, 0.0), filled: smaller(blocks_per_sm, 1.0) }
    }
}

/// Time that prefill chunks add to the attention of decodes that shares their call, µs.
///
/// # Formula
/// With `s` a kind's time beyond its launch and `f` the share of the SMs that it fills, the call takes
/// `launch_d + (max(s_d, s_p, f_d·s_d + f_p·s_p) + s_d + s_p) / 2`: the launch is paid once, and where a kind leaves SMs idle, half of the
/// other runs with it. It takes no less than the chunks alone.
///
/// # Source
/// vLLM, `FlashAttentionImpl.forward` (`vllm/v1/attention/backends/flash_attn.py`): one `flash_attn_varlen_func` call for
/// all requests of a step. Step traces of Llama-2-70B and CodeLlama-34B (vLLM 0.15.1, H100): a chunk of some ten tokens
/// with 20 to 100 decodes adds 0.1 to 0.5 ms to a step, not a launch per layer. FlashAttention 3 of vLLM 0.24 on an H100 and an H200
/// (`bench_data/measured/`, `attention_mixed.csv` and the kinds alone): 3.9 and 5.7 % median error, where none with the other
/// leaves 4.7 and 6.5 and all of it 4.9 and 7.7.
#[inline]
pub fn added_us(decodes: &Span, chunks: &Span) -> f64 {
    let together = decodes.filled * decodes.us + chunks.filled * chunks.us;
    let beside_us = larger(larger(decodes.us, chunks.us), together) - decodes.us;
    let beyond_launch_us = 0.5 * (beside_us + chunks.us);
    larger(beyond_launch_us, chunks.launch_us + chunks.us - decodes.launch_us - decodes.us)
}

/// Predicts a call of both kinds from their curves, on a chip with `sm_count` SMs, µs; `None` for kernels of other kinds.
pub fn time_us(
    prefill: &PrefillCurve,
    decode: &DecodeCurve,
    chunks: &Kernel,
    decodes: &Kernel,
    sm_count: f64,
) -> Option<f64> {
    let Kernel::AttentionPrefill { heads, num_requests, query_tokens, pairs, kv_tokens, mean_query_tokens } = *chunks
    else {
        return None;
    };
    let query = (query_tokens, mean_query_tokens);
    let (chunks_us, _) = prefill.time_of(&heads, num_requests, query, pairs, kv_tokens);
    let Kernel::AttentionDecode { heads, num_requests, kv_tokens } = *decodes else { return None };
    let (decodes_us, _) = decode.time_of(&heads, num_requests, kv_tokens);
    let span = |time_us, launch_us, of: &Kernel| Span::new(time_us, launch_us, blocks(of) / sm_count);
    let chunks = span(chunks_us, prefill.curve.launch_us(), chunks);
    Some(decodes_us + added_us(&span(decodes_us, decode.curve.launch_us(), decodes), &chunks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::model::Window;

    fn added(chunk: u64, prefill_us: f64, requests: u64, decode_us: f64) -> f64 {
        let heads = AttentionHeads {
            num_heads: 16,
            num_kv_heads: 2,
            head_dim: 128,
            v_head_dim: 128,
            kv_dtype: DType::Bfloat16,
            window: Window::Full,
            is_mla: false,
        };
        let kv_tokens = 600 * requests;
        let decodes = Kernel::AttentionDecode { heads, num_requests: requests, kv_tokens };
        let chunks = Kernel::AttentionPrefill {
            heads,
            num_requests: 1,
            query_tokens: chunk,
            pairs: 1.0,
            kv_tokens: chunk,
            mean_query_tokens: chunk as f64,
        };
        let span = |kernel, time_us| Span::new(time_us, 10.0, blocks(&kernel) / 132.0);
        added_us(&span(decodes, decode_us), &span(chunks, prefill_us))
    }

    #[test]
    fn half_of_a_tiny_chunk_runs_beside_the_decodes() {
        // Half of what the chunk takes beyond its launch.
        assert!((added(7, 17.0, 36, 18.0) - 3.5).abs() < 1e-9);
    }

    #[test]
    fn a_call_takes_no_less_than_its_chunks_alone() {
        let (decodes, chunks) = (Span::new(5.0, 3.0, 0.1), Span::new(40.0, 12.0, 0.5));
        assert!((5.0 + added_us(&decodes, &chunks) - 40.0).abs() < 1e-9);
    }

    #[test]
    fn full_kinds_add_up_but_for_one_launch() {
        // 8192 / 128 · 16 = 1024 blocks and 64 · 2 = 128 of 132 SMs: 90 + 0.97·190 beyond the launch, less the decodes' own 190.
        let expected = 0.5 * (90.0 + 128.0 / 132.0 * 190.0 - 190.0 + 90.0);
        assert!((added(8192, 100.0, 64, 200.0) - expected).abs() < 1e-9);
    }
}
