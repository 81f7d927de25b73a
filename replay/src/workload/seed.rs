//! Random streams of a load. Each use has its own stream, so that an additional draw in one does not change another.

use rand::SeedableRng;
use rand_pcg::Pcg64;

/// Use of a stream of random numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream {
    Arrivals,
    PromptOrder,
    InputLengths,
    OutputLengths,
    StepTimes,
    ThinkTimes,
    Routes,
}

/// Returns the generator of stream number `index` of a kind.
pub(crate) fn generator(seed: u64, stream: Stream, index: u32) -> Pcg64 {
    let name = ((stream as u64) << 32) | u64::from(index);
    Pcg64::seed_from_u64(mixed(seed ^ mixed(name)))
}

/// The increment of SplitMix64's state: 2⁶⁴ over the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function: neighbouring seeds give unrelated generators.
pub(crate) fn mixed(word: u64) -> u64 {
    mix(word.wrapping_add(GOLDEN))
}

/// The finaliser of SplitMix64. It is a bijection, so that different words stay different.
///
/// # Source
/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[inline]
pub(crate) fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn mixing_is_splitmix() {
        // The first output of SplitMix64 from state 0, as published with its reference code.
        assert_eq!(mixed(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn streams_differ_by_seed_kind_and_index() {
        let first = |seed, stream, index| generator(seed, stream, index).next_u64();
        let one = first(1, Stream::Arrivals, 0);
        assert_eq!(one, first(1, Stream::Arrivals, 0));
        assert_ne!(one, first(2, Stream::Arrivals, 0));
        assert_ne!(one, first(1, Stream::PromptOrder, 0));
        assert_ne!(one, first(1, Stream::Arrivals, 1));
    }
}
