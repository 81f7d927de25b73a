//! Kernel models: the time of a call from its work and shape by a few physical coefficients per kernel family (launch, tile
//! and wave quantisation, bandwidth that rises with the bytes of a call). Coefficients are fitted once per GPU and number
//! format; tables store the residuals, so that shapes between and beyond the measured ones stay physical.
#![expect(clippy::indexing_slicing, reason = "lengths are the family's constants; readers check files for them")]

use super::chip::{Chip, overlapped_by_logs_us, overlapped_us, ramped_us};
use super::family::OUTPUT_BYTES;
use super::keys::{AttentionKey, HeadSize, MoeKey, operand_dtype, weight_bytes};
use crate::dtype::{DType, MatmulFormat};
use crate::physics::attention::{AttentionShape, HeadShape};
use crate::physics::moe::{MoeShape, experts_flops};
use crate::physics::window::mean_visible;
use crate::physics::{Shape, Work};
use crate::units::{larger, smaller, time_us};

/// Decode attention: launch + overlap(waves, memory, compute). The (request, KV head) pairs are spread over the SMs. Each
/// wave of them costs a fixed time however short the cache is: the per-request term of decode kernels.
#[derive(Debug, Clone, Copy)]
pub struct DecodeModel;

impl DecodeModel {
    /// Coefficients: name and starting value of the fit. The first is the launch, µs.
    pub const COEFFICIENTS: &'static [(&'static str, f64)] = &[
        ("launch_us", 9.0),
        ("unit_wave_us", 3.5),
        ("bandwidth_efficiency", 0.93),
        ("overlap_sharpness", 1.0),
        ("ramp_bytes", 1e7),
        ("split_us", 1.0),
    ];

    /// Modelled time, µs.
    pub fn time_us(c: &[f64], shape: &AttentionShape, chip: &Chip) -> f64 {
        let (waves_us, memory_us) = DecodeModel::parts_us(c, shape, chip);
        c[0] + DecodeModel::split_us(c, shape.keys) + overlapped_us(waves_us, memory_us, c[3])
    }

    /// The shape at a grid point of a series.
    pub fn shape(key: &AttentionKey, point: &[f64]) -> AttentionShape {
        attention_shape(key, point, (1.0, point[2] - 1.0), LATENT_DECODE)
    }
}

impl DecodeModel {
    /// Time to split the keys of a request and to merge the parts, µs.
    pub(super) fn split_us(c: &[f64], keys: f64) -> f64 {
        c[5] * (1.0 + keys / 256.0).ln()
    }

    /// Modelled time to fourteen digits, µs. `split_us` is [`DecodeModel::split_us`] of its keys.
    pub(super) fn tabulated_us(c: &[f64], shape: &AttentionShape, chip: &Chip, split_us: f64) -> f64 {
        let (waves_us, memory_us) = DecodeModel::parts_us(c, shape, chip);
        c[0] + split_us + overlapped_by_logs_us(waves_us, memory_us, c[3])
    }

    /// Waves of (request, KV head) pairs, and memory or compute, µs.
    fn parts_us(c: &[f64], shape: &AttentionShape, chip: &Chip) -> (f64, f64) {
        let Work { flops, bytes } = shape.work();
        let waves = (shape.batch * shape.heads.kv_heads / chip.sm_count).max(1.0);
        let memory_us = ramped_us(bytes, chip.hbm_bytes_per_s * c[2], c[4]);
        (c[1] * waves, memory_us.max(time_us(flops, 0.5 * chip.peak_flop_per_s)))
    }
}

/// Widths of keys and values of latent attention in decodes, whose values lie in their keys, and in prompts.
const LATENT_DECODE: (f64, f64, bool) = (576.0, 512.0, true);
const LATENT_PREFILL: (f64, f64, bool) = (192.0, 128.0, false);

/// Widths of an indexer's keys and values.
const INDEXER: (f64, f64, bool) = (128.0, 0.0, false);

/// Format that the kernels of a series compute in: indexers score in fp8.
pub(super) fn score_dtype(key: &AttentionKey) -> DType {
    if key.head_size == HeadSize::Indexer { DType::Fp8 } else { DType::Bfloat16 }
}

/// The shape at a point of an attention table: KV heads, query heads per KV head, tokens, requests with so many new tokens each
/// after so many cached ones. `latent` are the widths of latent attention.
fn attention_shape(
    key: &AttentionKey,
    point: &[f64],
    (query, past): (f64, f64),
    latent: (f64, f64, bool),
) -> AttentionShape {
    let (visible, keys) = mean_visible(query, past, key.window.map_or(f64::INFINITY, |w| w as f64));
    let (head_dim, v_head_dim, shares_kv) = match key.head_size {
        HeadSize::Plain(width) => (width as f64, width as f64, false),
        HeadSize::Latent => latent,
        HeadSize::Sparse => LATENT_DECODE,
        HeadSize::Indexer => INDEXER,
    };
    let heads = HeadShape {
        kv_heads: point[0],
        group: point[1],
        head_dim,
        v_head_dim,
        kv_bytes: key.kv_dtype.bytes(),
        activation_bytes: OUTPUT_BYTES,
        shares_kv,
    };
    AttentionShape { batch: point[3], query, visible, keys, heads }
}

/// Prefill attention: launch + overlap(compute, memory). Query tiles of 128 rows per head walk over their visible keys;
/// the chip is busy for the larger of the mean load per SM and the longest tile.
#[derive(Debug, Clone, Copy)]
pub struct PrefillModel;

/// Query rows of a prefill tile (FlashAttention-2 and -3 at head size 128).
pub const QUERY_TILE: f64 = 128.0;

/// Cached keys that the query tiles of a KV head walk over, summed over chunks. A tile holds the rows of all query heads of its KV
/// head, and all SMs share its keys, as those of a decode.
///
/// # Formula
/// `max(pairs·group/128 + keys/2, keys)` for `pairs` (query, cached key) pairs per head and `keys` cached keys: the last tile of a
/// chunk is half full on average, and a chunk has one at least. Assumed: no measured chunk has cached keys.
///
/// # Source
/// FlashAttention-3, `hopper/heuristics.h`: queries of unequal lengths are packed by KV head, and keys are split where tiles leave
/// SMs idle.
#[inline]
pub fn tiled_keys(pairs: f64, keys: f64, group: f64) -> f64 {
    larger(pairs * group / QUERY_TILE + 0.5 * keys, keys)
}

/// Largest distance below a whole number of chunks that rounds up: chunks that differ a little count as equal.
const ALIKE: f64 = 0.05;

/// Cached keys that chunks read in one call, and the tokens that see them.
#[derive(Debug, Clone, Copy)]
pub struct CachedKeys {
    /// Keys, summed over chunks.
    pub keys: f64,
    /// Visible pairs of tokens and cached keys per head.
    pub pairs: f64,
    /// Scheduled tokens.
    pub query_tokens: f64,
    /// Tokens of the chunk that a token is in, averaged over tokens.
    pub query: f64,
    /// Tokens of the model's window; `None` without one.
    pub window: Option<u64>,
}

impl CachedKeys {
    /// The number of chunks, at most `num_chunks`, that the keys are divided among for a look-up, and the keys of each.
    ///
    /// # Formula
    /// Keys over the cached keys that a token sees on average. A window hides keys from that average, so there it is the tokens over
    /// `query`, and at least the number of windows that the keys fill. Averages over tokens give a short chunk without cached keys
    /// little weight compared with a long one.
    #[inline]
    pub fn readers(&self, num_chunks: f64) -> (f64, f64) {
        let window = self.window_tokens();
        let spread = match self.window {
            Some(_) => self.query_tokens / self.query,
            None => self.keys * self.query_tokens / self.pairs,
        };
        let chunks = larger(larger((spread + ALIKE).floor(), (self.keys / window).floor()), 1.0);
        let chunks = smaller(chunks, num_chunks);
        (chunks, larger(smaller(self.keys / chunks, window), 1.0))
    }

    /// The keys of the only chunk: those of [`CachedKeys::readers`], without dividing.
    #[inline(always)]
    pub fn of_one_chunk(&self) -> f64 {
        larger(smaller(self.keys, self.window_tokens()), 1.0)
    }

    /// Tokens of the window; infinite without one.
    #[inline(always)]
    fn window_tokens(&self) -> f64 {
        self.window.map_or(f64::INFINITY, |tokens| tokens as f64)
    }
}

impl PrefillModel {
    /// Coefficients: name and starting value of the fit. The first is the launch, µs.
    pub const COEFFICIENTS: &'static [(&'static str, f64)] = &[
        ("launch_us", 10.0),
        ("tile_us", 1.0),
        ("bandwidth_efficiency", 0.8),
        ("overlap_sharpness", 1.0),
        ("ramp_bytes", 1e6),
        ("compute_efficiency", 0.7),
        ("diagonal_keys", 64.0),
    ];

    /// Modelled time, µs.
    pub fn time_us(c: &[f64], shape: &AttentionShape, chip: &Chip) -> f64 {
        let heads = shape.heads;
        let tiles_per_head = (shape.query / QUERY_TILE).ceil();
        let tiles = shape.batch * (heads.kv_heads * heads.group) * tiles_per_head;
        let tile_us = |keys: f64| PrefillModel::tile_us_per_key(c, &heads, chip) * (keys + c[6]) + c[1];
        let compute_us = (tiles / chip.sm_count * tile_us(shape.visible)).max(tile_us(shape.keys));
        let memory_us = ramped_us(shape.work().bytes, chip.hbm_bytes_per_s * c[2], c[4]);
        c[0] + overlapped_us(compute_us, memory_us, c[3])
    }

    /// The shape at a grid point of a series.
    pub fn shape(key: &AttentionKey, point: &[f64]) -> AttentionShape {
        attention_shape(key, point, (point[2], 0.0), LATENT_PREFILL)
    }
}

impl PrefillModel {
    /// Time of an SM to walk a query tile over one key, µs.
    pub(super) fn tile_us_per_key(c: &[f64], heads: &HeadShape, chip: &Chip) -> f64 {
        let sm_flop_per_s = chip.peak_flop_per_s / chip.sm_count * c[5];
        time_us(2.0 * QUERY_TILE * (heads.head_dim + heads.v_head_dim), sm_flop_per_s)
    }
}

/// Grouped expert GEMM: launch + per active expert + overlap(memory, padded compute). Each active expert's tokens are padded
/// to a tile that grows with their number.
#[derive(Debug, Clone, Copy)]
pub struct MoeModel;

impl MoeModel {
    /// Coefficients: name and starting value of the fit. The first is the launch, µs.
    pub const COEFFICIENTS: &'static [(&'static str, f64)] = &[
        ("launch_us", 20.0),
        ("expert_us", 0.05),
        ("bandwidth_efficiency", 0.7),
        ("overlap_sharpness", 1.0),
        ("ramp_bytes", 1e7),
        ("compute_efficiency", 0.5),
        ("tile_rows", 16.0),
        ("pair_us", 0.002),
    ];

    /// Modelled time, µs.
    pub fn time_us(c: &[f64], shape: &MoeShape, chip: &Chip) -> f64 {
        let active = shape.active_experts().max(1e-3);
        let rows = shape.pairs() / active;
        let padded_pairs = active * (rows * rows + c[6] * c[6]).sqrt();
        let flops = experts_flops(padded_pairs, shape.hidden, shape.intermediate, shape.gated);
        let memory_us = ramped_us(shape.work().bytes, chip.hbm_bytes_per_s * c[2], c[4]);
        let compute_us = time_us(flops, chip.peak_flop_per_s * c[5]);
        c[0] + c[1] * active + c[7] * shape.pairs() + overlapped_us(memory_us, compute_us, c[3])
    }

    /// The first version of vLLM whose `fused_moe/oracle/` chooses the kernels of a format. On H100 block-wise fp8 experts in groups run FlashInfer's
    /// kernels since then, and closed loops of gpt-oss before 0.19 have the times of 4-bit Marlin kernels.
    pub fn replaced_in(key: &MoeKey) -> Option<(u32, u32)> {
        match key.format {
            MatmulFormat::Bfloat16 | MatmulFormat::Fp8 | MatmulFormat::Fp8Block => Some((0, 16)),
            MatmulFormat::Mxfp4 | MatmulFormat::Mxfp4Mxfp8 => Some((0, 19)),
            MatmulFormat::Int4WeightOnly => Some((0, 20)),
            _ => None,
        }
    }

    /// The shape at a grid point of a series.
    pub fn shape(key: &MoeKey, point: &[f64]) -> MoeShape {
        MoeShape {
            tokens: point[2],
            hidden: key.hidden_size as f64,
            intermediate: key.intermediate_size as f64 / point[0],
            gated: true,
            top_k: key.top_k as f64,
            experts: key.num_experts as f64,
            local_experts: key.num_experts as f64 / point[1],
            weight_bytes: weight_bytes(key.format),
            input_bytes: operand_dtype(key.format).bytes(),
            output_bytes: OUTPUT_BYTES,
        }
    }
}

#[cfg(test)]
#[path = "kernel_model_tests.rs"]
mod tests;
