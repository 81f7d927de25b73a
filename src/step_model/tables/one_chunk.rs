//! Attention of a single prefill chunk as a table over its tokens and its context. Nearly all steps with a chunk have one. Uses
//! `efficiency`, `physics`.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a tile of 128 tokens, rows of a table")]

use serde::Serialize;

use crate::efficiency::kernel_model::QUERY_TILE;
use crate::efficiency::surface::{OctaveAxis, Surface};
use crate::units::real;

/// Longest chunk of the table.
pub(super) const MOST_TOKENS: u32 = 4096;

/// Query rows of a tile: a chunk's time jumps where it needs one more tile.
const TILE_TOKENS: u32 = QUERY_TILE as u32;

/// Knots per octave of the prompt length, as a power of two. Measured times are looked up by it, so that their kinks are knots.
const PROMPT_STEPS_LOG2: u32 = 4;

/// Time of one call for one chunk.
#[derive(Debug, Clone, Serialize)]
pub(super) struct OneChunk {
    call_us: Surface<PROMPT_STEPS_LOG2>,
    /// Row of a chunk's tokens and weight of the next one.
    rows: Vec<(u32, f32)>,
    #[serde(rename = "most_context_tokens")]
    most_context: u64,
}

/// Length of the prompt whose tokens see as many keys, on average, as those of a chunk after `context` cached tokens.
#[inline]
fn prompt_tokens(tokens: u64, context: u64) -> f64 {
    real(tokens + 2 * context)
}

impl OneChunk {
    /// Tabulates `call_us(tokens, prompt)` for chunks after up to `most_context` cached tokens; `prompt` is their
    /// [`prompt_tokens`].
    pub(super) fn new(most_context: u32, call_us: impl Fn(u32, f64) -> f64) -> Self {
        let lengths = lengths();
        let mut rows = vec![(0, 0.0)];
        for pair in lengths.windows(2) {
            let [low, high] = *pair else { continue };
            let span = (high - low) as f32;
            let row = lengths.partition_point(|known| *known < low) as u32;
            rows.extend((low..high).map(|tokens| (row, (tokens - low) as f32 / span)));
        }
        rows.push((lengths.len() as u32 - 1, 0.0));
        let most_context = u64::from(most_context);
        let longest = prompt_tokens(u64::from(MOST_TOKENS), most_context);
        let axis = OctaveAxis::covering(1.0, longest);
        let call_us = Surface::new(&lengths, axis, |tokens, index| call_us(tokens, axis.knot(index)));
        OneChunk { call_us, rows, most_context }
    }

    pub(super) fn is_finite(&self) -> bool {
        self.call_us.is_finite()
    }

    /// Time of a call, µs. Returns `None` for a chunk beyond the table.
    #[inline]
    pub(super) fn call_us(&self, tokens: u64, context: u64) -> Option<f64> {
        let (row, weight) = *self.rows.get(tokens as usize)?;
        if context > self.most_context {
            return None;
        }
        Some(self.call_us.at(row as usize, f64::from(weight), prompt_tokens(tokens, context)))
    }
}

/// Lengths of chunks with a row of their own: an eighth of an octave apart, and the first and the last of each tile.
fn lengths() -> Vec<u32> {
    let mut lengths: Vec<u32> = (1..=16).collect();
    let mut next = 16;
    while next < MOST_TOKENS {
        next += 1 << (next.ilog2() - 3);
        lengths.push(next.min(MOST_TOKENS));
    }
    for tile in 1..MOST_TOKENS / TILE_TOKENS {
        lengths.extend([tile * TILE_TOKENS, tile * TILE_TOKENS + 1]);
    }
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_begin_and_end_with_a_row() {
        let lengths = lengths();
        for tile in 1..32 {
            assert!(lengths.contains(&(128 * tile)) && lengths.contains(&(128 * tile + 1)));
        }
        assert_eq!((lengths.first(), lengths.last()), (Some(&1), Some(&MOST_TOKENS)));
        assert!(lengths.len() < 150, "{}", lengths.len());
    }

    #[test]
    fn jumps_between_tiles_are_kept() {
        let jumps = |tokens: u32, prompt: f64| f64::from(tokens.div_ceil(128)) * (1000.0 + prompt);
        let table = OneChunk::new(100_000, jumps);
        for (tokens, context) in [(1, 0), (128, 0), (129, 5), (200, 700), (2048, 3), (2049, 90_000), (4096, 0)] {
            let expected = jumps(tokens, f64::from(tokens + 2 * context));
            let found = table.call_us(u64::from(tokens), u64::from(context)).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-6, "{tokens}@{context}: {found} for {expected}");
        }
        assert_eq!((table.call_us(4097, 0), table.call_us(8, 100_001)), (None, None));
    }
}
