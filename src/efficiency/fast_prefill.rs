//! Prefill attention in a dozen multiplications: [`PrefillCurve`] with its powers and exponentials tabulated, for millions of
//! look-ups.
#![expect(clippy::indexing_slicing, reason = "a grid has its family's axes, and an axis a knot at least")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a position within a list")]

use serde::Serialize;

use crate::physics::AttentionHeads;
use crate::units::{US_PER_S, ceiling, larger, real, smaller};

use super::chip::ramp;
use super::curve::{PrefillCurve, mean_attention};
use super::grid::GridPosition;
use super::kernel_model::{CachedKeys, PrefillModel, QUERY_TILE, tiled_keys};
use super::residual_curve::ResidualCurve;
use super::surface::{OctaveAxis, Surface};

/// Knots per octave of the tabulated residuals, as a power of two.
const STEPS_LOG2: u32 = 4;

/// Intervals of the tabulated overlap.
const OVERLAP_STEPS: usize = 512;

/// [`PrefillCurve::time`] to about one in ten thousand: the sum of [`FastPrefill::own_us`] and [`FastPrefill::cached_us`].
#[derive(Debug, Clone, Serialize)]
pub struct FastPrefill {
    launch_us: f64,
    /// Time of a query tile over no keys, and per key.
    tile_us: f64,
    tile_us_per_key: f64,
    heads_per_sm: f64,
    kv_heads_per_sm: f64,
    group: f64,
    kv_bytes_per_token: f64,
    query_bytes_per_token: f64,
    memory_us_per_byte: f64,
    ramp_bytes: f64,
    overlap: Overlap,
    /// Measured over modelled time by the prompts' length and their number.
    residuals: Surface<STEPS_LOG2>,
    prompts: OctaveAxis<STEPS_LOG2>,
    #[serde(rename = "fewest_prompts")]
    fewest: f64,
    windowed: bool,
    /// Tokens of the model's window; 0 without one.
    window: u64,
    /// Cached keys take at least what they add to a decode.
    pub reads_cache: bool,
}

/// Chunks of a step as [`FastPrefill`] takes them: sums over them, and means over their tokens, which are divided once.
#[derive(Debug, Clone, Copy)]
pub struct Chunks {
    /// Scheduled tokens.
    pub query_tokens: f64,
    /// Visible (query, key) pairs per head.
    pub pairs: f64,
    /// Keys read at least once, summed over chunks.
    pub kv_tokens: f64,
    /// Keys that were cached before.
    pub cached_keys: f64,
    /// Tokens of the chunk that a token is in, on average over tokens.
    query: f64,
    /// Keys that a token sees, on average.
    visible: f64,
}

impl Chunks {
    /// Chunks of `query_tokens` scheduled tokens in all, whose squares are `squared_tokens`. They see `pairs` pairs of tokens and keys
    /// per head, and read `kv_tokens` keys.
    #[inline(always)]
    pub fn new(query_tokens: f64, squared_tokens: f64, pairs: f64, kv_tokens: f64) -> Self {
        Chunks {
            query_tokens,
            pairs,
            kv_tokens,
            cached_keys: larger(kv_tokens - query_tokens, 0.0),
            query: squared_tokens / query_tokens,
            visible: pairs / query_tokens,
        }
    }

    /// Keys of its own chunk that a token sees, on average.
    #[inline(always)]
    fn own_visible(&self) -> f64 {
        smaller(self.visible, 0.5 * (self.query + 1.0))
    }

    /// Pairs with keys that were cached before.
    #[inline(always)]
    fn cached_pairs(&self) -> f64 {
        self.pairs - self.query_tokens * self.own_visible()
    }
}

impl FastPrefill {
    /// Tabulates `curve` for `heads`.
    pub fn new(curve: &PrefillCurve, heads: &AttentionHeads) -> Self {
        let PrefillCurve { curve: ResidualCurve { coefficients: c, chip, residuals: grid, .. }, windowed, .. } = curve;
        let coefficient = |index: usize| c.get(index).copied().unwrap_or(0.0);
        let ends = |axis: usize| (grid.axes[axis][0], grid.axes[axis][grid.axes[axis].len() - 1]);
        let ((shortest, longest), (fewest, most)) = (ends(0), ends(1));
        let prompts = OctaveAxis::covering(shortest, longest);
        let batches = OctaveAxis::covering(fewest, most);
        let placed = |axis: usize, knots: &OctaveAxis<STEPS_LOG2>| -> Vec<GridPosition> {
            (0..knots.num_knots()).map(|index| grid.place(axis, knots.knot(index))).collect()
        };
        let columns = placed(1, &batches);
        let residuals =
            Surface::new(&placed(0, &prompts), batches, |row, index| grid.at(&[row, columns[index]]).0.exp());
        let shape = mean_attention(1.0, 1.0, 1.0, 1.0, heads).heads;
        let num_heads = heads.num_heads as f64;
        let tile_us_per_key = PrefillModel::tile_us_per_key(c, &shape, chip);
        FastPrefill {
            launch_us: coefficient(0),
            tile_us: tile_us_per_key * coefficient(6) + coefficient(1),
            tile_us_per_key,
            heads_per_sm: num_heads / chip.sm_count,
            kv_heads_per_sm: shape.kv_heads / chip.sm_count,
            group: shape.group,
            kv_bytes_per_token: shape.bytes(1.0, 0.0, 1.0),
            query_bytes_per_token: shape.bytes(1.0, 1.0, 0.0),
            memory_us_per_byte: US_PER_S / (chip.hbm_bytes_per_s * coefficient(2)),
            ramp_bytes: coefficient(4),
            overlap: Overlap::new(1.0 + coefficient(3)),
            residuals,
            prompts,
            fewest,
            windowed: *windowed,
            window: heads.window.size().unwrap_or(0),
            reads_cache: curve.decode.is_some(),
        }
    }

    /// Time of one call over the keys of the chunks themselves without the roofline bound, µs.
    pub fn own_us(&self, chunks: &Chunks) -> f64 {
        let Chunks { query_tokens, kv_tokens, query, .. } = *chunks;
        let own_visible = chunks.own_visible();
        let own_keys = smaller(kv_tokens, query_tokens);
        let prompts = query_tokens / query;
        let tile = |keys: f64| self.tile_us + self.tile_us_per_key * keys;
        let tiles_per_sm = prompts * self.heads_per_sm * ceiling(query / QUERY_TILE);
        let compute_us = larger(tiles_per_sm * tile(own_visible), tile(own_keys / prompts));
        let bytes = own_keys * self.kv_bytes_per_token + query_tokens * self.query_bytes_per_token;
        let memory_us = bytes * self.memory_us_per_byte * ramp(bytes, self.ramp_bytes);
        (self.launch_us + self.overlap.of(compute_us, memory_us)) * self.residual(query, prompts)
    }

    /// Time that the cached keys of the chunks add, µs. Reading them alone adds `read_us` to a decode.
    #[inline(always)]
    pub fn cached_us(&self, chunks: &Chunks, read_us: f64) -> f64 {
        let Chunks { query_tokens, cached_keys, query, visible, .. } = *chunks;
        if cached_keys < 0.5 {
            return 0.0;
        }
        let prompt = if self.windowed { query } else { larger(2.0 * visible - 1.0, query) };
        let tiled_keys = tiled_keys(chunks.cached_pairs(), cached_keys, self.group);
        let tiles_us = self.tile_us_per_key * self.kv_heads_per_sm * tiled_keys;
        larger(tiles_us * self.residual(prompt, query_tokens / prompt), read_us)
    }

    /// The chunks that cached keys are divided among for a look-up, and the keys of each.
    #[inline(always)]
    pub fn readers(&self, chunks: &Chunks, num_chunks: u64) -> (u64, f64) {
        let cached = CachedKeys {
            keys: chunks.cached_keys,
            pairs: chunks.cached_pairs(),
            query_tokens: chunks.query_tokens,
            query: chunks.query,
            window: Some(self.window).filter(|tokens| *tokens > 0),
        };
        if num_chunks == 1 {
            return (1, cached.of_one_chunk());
        }
        let (readers, keys) = cached.readers(real(num_chunks));
        (readers as u64, keys)
    }

    /// Measured over modelled time of `prompts` prompts of `prompt` tokens.
    #[inline(always)]
    fn residual(&self, prompt: f64, prompts: f64) -> f64 {
        let (row, weight) = self.prompts.position(prompt);
        self.residuals.at(row, weight, larger(prompts, self.fewest))
    }
}

/// `(1 + rᵖ)^(1/p)` for `r` from 0 to 1.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
struct Overlap {
    values: Vec<f64>,
}

impl Overlap {
    fn new(p: f64) -> Self {
        let value = |index: usize| {
            let ratio = (index as f64 / OVERLAP_STEPS as f64).min(1.0);
            (1.0 + ratio.powf(p)).powf(1.0 / p)
        };
        Overlap { values: (0..OVERLAP_STEPS + 2).map(value).collect() }
    }

    /// Smooth maximum of two positive times.
    #[inline]
    fn of(&self, a: f64, b: f64) -> f64 {
        let (large, small) = if a > b { (a, b) } else { (b, a) };
        let position = small / large * OVERLAP_STEPS as f64;
        let index = position as usize;
        let Some([low, high]) = self.values.get(index..index + 2) else { return large };
        large * (low + (position - index as f64) * (high - low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tabulated_overlap_is_the_smooth_maximum() {
        for p in [1.0, 1.08, 1.5, 2.0, 3.7] {
            let overlap = Overlap::new(p);
            for ratio in [0.0, 1e-4, 0.003, 0.1, 0.37, 0.9, 1.0] {
                let exact = 7.0 * (1.0 + f64::powf(ratio, p)).powf(1.0 / p);
                for (a, b) in [(7.0, 7.0 * ratio), (7.0 * ratio, 7.0)] {
                    assert!((overlap.of(a, b) / exact - 1.0).abs() < 2e-5, "{p} {ratio}");
                }
            }
        }
    }
}
