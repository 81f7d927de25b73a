//! Sums over plain decodes with as many vector lanes as the CPU has, and their scalar twin. Uses `request`, `physics`.
//!
//! A plain decode schedules one token, samples it, and has 1 to 2²⁴ tokens in its cache; nearly all requests of nearly all steps
//! are plain decodes. Integer sums do not depend on their order, so every number of lanes gives the same result.
#![expect(clippy::indexing_slicing, reason = "lanes are counted from the arrays' own length")]

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::model::Window;
use crate::physics::window::visible_tokens;
use crate::request::{Request, RequestColumns};

/// Requests per block and lane: 32 bits hold the sum of their computed tokens less one each.
const BLOCK: usize = 256;

/// The upper 8 bits. A plain decode has at most 2²⁴ computed tokens, so that the sum of a block fits in 32 bits.
const LONG: u32 = !0 << 24;

/// Words of a request in memory.
const WORDS: usize = 3;

/// Words in three of the widest vectors.
const MAX_WORDS: usize = WORDS * 16;

/// Mask by the place of a word in three vectors: a request is a plain decode if no bit of it is set in (word − 1).
const FORBIDDEN: [u32; MAX_WORDS] = {
    let mut words = [!0; MAX_WORDS];
    let mut index = 0;
    while index < MAX_WORDS {
        words[index] = LONG;
        index += WORDS;
    }
    words
};

/// The requests of a step in one of their two layouts: a slice, or columns.
pub(super) trait Layout: Copy {
    fn len(self) -> usize;

    /// Request `index`; `None` beyond the last one.
    fn get(self, index: usize) -> Option<Request>;

    fn part(self, range: Range<usize>) -> Self;

    /// Computed tokens of plain decodes, summed; `None` if a request is not a plain decode.
    fn plain_tokens<S: Simd>(self, simd: S) -> Option<u64>;

    /// Computed tokens of each request.
    fn computed(self) -> impl Iterator<Item = u32>;

    /// Cached keys that plain decodes see under `window`, summed. Not inlined: most models have full windows alone.
    fn plain_cached_keys<S: Simd>(self, simd: S, window: Window) -> u64 {
        simd.vectorize(VisibleKeys { window, computed: self.computed() })
    }
}

impl Layout for &[Request] {
    #[inline(always)]
    fn len(self) -> usize {
        <[Request]>::len(self)
    }

    #[inline(always)]
    fn get(self, index: usize) -> Option<Request> {
        <[Request]>::get(self, index).copied()
    }

    fn part(self, range: Range<usize>) -> Self {
        <[Request]>::get(self, range).unwrap_or_default()
    }

    #[inline(always)]
    fn plain_tokens<S: Simd>(self, simd: S) -> Option<u64> {
        if self.len() < S::U32_LANES {
            return scalar_tokens(self);
        }
        let mut tokens = 0;
        for block in self.chunks(BLOCK * S::U32_LANES) {
            tokens += vector_tokens(simd, block)?;
        }
        Some(tokens)
    }

    #[inline(always)]
    fn computed(self) -> impl Iterator<Item = u32> {
        self.iter().map(|request| request.num_computed_tokens)
    }
}

impl Layout for RequestColumns<'_> {
    #[inline(always)]
    fn len(self) -> usize {
        RequestColumns::len(&self)
    }

    #[inline(always)]
    fn get(self, index: usize) -> Option<Request> {
        RequestColumns::get(&self, index)
    }

    fn part(self, range: Range<usize>) -> Self {
        self.range(range)
    }

    /// The loops over columns are plain ones: compilers turn them into vector instructions.
    #[inline(always)]
    fn plain_tokens<S: Simd>(self, _: S) -> Option<u64> {
        let (computed, scheduled, samples) = self.parts();
        if samples.is_some_and(|samples| samples.iter().fold(u8::MAX, |least, flag| least.min(*flag)) == 0) {
            return None;
        }
        let mut tokens = 0;
        for (computed, scheduled) in computed.chunks(BLOCK).zip(scheduled.chunks(BLOCK)) {
            let (mut sum, mut odd) = (0u32, 0u32);
            for (computed, scheduled) in computed.iter().zip(scheduled) {
                let cached = computed.wrapping_sub(1);
                sum = sum.wrapping_add(cached);
                odd |= (cached & LONG) | scheduled.wrapping_sub(1);
            }
            if odd != 0 {
                return None;
            }
            tokens += u64::from(sum) + computed.len() as u64;
        }
        Some(tokens)
    }

    #[inline(always)]
    fn computed(self) -> impl Iterator<Item = u32> {
        self.parts().0.iter().copied()
    }
}

/// [`vector_tokens`], request by request.
#[inline(always)]
fn scalar_tokens(block: &[Request]) -> Option<u64> {
    let (mut sum, mut odd) = (0u64, 0u32);
    for request in block {
        let cached = request.num_computed_tokens.wrapping_sub(1);
        sum += u64::from(cached);
        odd |= (cached & LONG) | request.num_scheduled_tokens.wrapping_sub(1) | u32::from(!request.samples);
    }
    (odd == 0).then_some(sum + block.len() as u64)
}

/// Computed tokens of a block of plain decodes; `None` if a request is not one.
///
/// Three vectors hold as many requests as a vector has lanes, and a word has the same place in all such groups.
#[inline(always)]
fn vector_tokens<S: Simd>(simd: S, block: &[Request]) -> Option<u64> {
    let (groups, _) = S::as_simd_u32s(bytemuck::must_cast_slice(block)).0.as_chunks::<WORDS>();
    let (one, mut sums, mut seen) = (simd.splat_u32s(1), [simd.splat_u32s(0); WORDS], [simd.splat_u32s(0); WORDS]);
    for group in groups {
        for place in 0..WORDS {
            let less_one = simd.sub_u32s(group[place], one);
            sums[place] = simd.add_u32s(sums[place], less_one);
            seen[place] = simd.or_u32s(seen[place], less_one);
        }
    }
    let mut odd = simd.splat_u32s(0);
    for (seen, forbidden) in seen.iter().zip(S::as_simd_u32s(&FORBIDDEN).0) {
        odd = simd.or_u32s(odd, simd.and_u32s(*seen, *forbidden));
    }
    if lanes::<S>(&odd).iter().fold(0, |all, lane| all | lane) != 0 {
        return None;
    }
    let sum = simd.add_u32s(simd.add_u32s(sums[0], sums[1]), sums[2]);
    let in_groups = groups.len() * S::U32_LANES;
    let rest = scalar_tokens(block.get(in_groups..).unwrap_or_default())?;
    Some(lanes::<S>(&sum).iter().map(|lane| u64::from(*lane)).sum::<u64>() + in_groups as u64 + rest)
}

#[inline(always)]
fn lanes<S: Simd>(vector: &S::u32s) -> &[u32] {
    bytemuck::cast_slice(std::slice::from_ref(vector))
}

/// Keys of cached tokens that a decode sees under `window`, summed over requests by their computed tokens.
struct VisibleKeys<I> {
    window: Window,
    computed: I,
}

impl<I: Iterator<Item = u32>> WithSimd for VisibleKeys<I> {
    type Output = u64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> u64 {
        let narrow = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        let computed = self.computed;
        match self.window {
            Window::Sliding(tokens) | Window::Picked(tokens) => {
                let most = narrow(tokens.max(1) - 1);
                computed.map(|computed| u64::from(computed.min(most))).sum()
            }
            Window::Chunked(tokens) if tokens.is_power_of_two() => {
                let bits = narrow(tokens - 1);
                computed.map(|computed| u64::from(computed & bits)).sum()
            }
            window => computed.map(|computed| visible_tokens(window, 0, computed)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pulp::{Arch, Scalar, Scalar128b, Scalar256b, Scalar512b};

    use super::*;

    /// By each number of lanes that CPUs have, and by those of this one.
    fn by_all_lanes<Op: WithSimd + Copy>(op: Op) -> [Op::Output; 5] {
        [
            Scalar.vectorize(op),
            Scalar128b.vectorize(op),
            Scalar256b.vectorize(op),
            Scalar512b.vectorize(op),
            Arch::new().dispatch(op),
        ]
    }

    #[derive(Clone, Copy)]
    struct Tokens<L>(L);

    impl<L: Layout> WithSimd for Tokens<L> {
        type Output = Option<u64>;

        fn with_simd<S: Simd>(self, simd: S) -> Option<u64> {
            self.0.plain_tokens(simd)
        }
    }

    #[derive(Clone, Copy)]
    struct Keys<L>(L, Window);

    impl<L: Layout> WithSimd for Keys<L> {
        type Output = u64;

        fn with_simd<S: Simd>(self, simd: S) -> u64 {
            self.0.plain_cached_keys(simd, self.1)
        }
    }

    /// Lengths at which vectors or blocks are full, and one more or less.
    const LENGTHS: [usize; 24] =
        [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 127, 255, 256, 257, 2048, 2049, 4100];

    #[test]
    fn all_lanes_and_layouts_sum_what_the_scalar_twin_does() {
        // 255 is a true flag of other languages.
        let plain = [(1, 2u8), (1 << 24, 255), ((1 << 24) - 1, 1)];
        let odd =
            [(9, 1, 0u8), (9, 0, 1), (9, 2, 1), (9, u32::MAX, 1), (0, 1, 1), ((1 << 24) + 1, 1, 1), (u32::MAX, 1, 1)];
        for length in LENGTHS {
            let (mut computed, mut flags): (Vec<u32>, Vec<u8>) = (0..length).map(|at| plain[at % 3]).unzip();
            let tokens = computed.iter().map(|tokens| u64::from(*tokens)).sum();
            let mut scheduled = vec![1; length];
            let check = |computed: &[u32], scheduled: &[u32], flags: &[u8], expected: Option<u64>| {
                let columns = RequestColumns::new(computed, scheduled).unwrap().with_sample_bytes(flags).unwrap();
                let slice: Vec<Request> = columns.iter().collect();
                assert_eq!(scalar_tokens(&slice), expected, "{length}");
                assert_eq!(by_all_lanes(Tokens(&slice[..])), [expected; 5], "{length}");
                assert_eq!(by_all_lanes(Tokens(columns)), [expected; 5], "{length}");
            };
            check(&computed, &scheduled, &flags, Some(tokens));
            for at in [0, 1, 7, length / 2, length.saturating_sub(8), length.saturating_sub(1)] {
                for (odd_computed, odd_scheduled, odd_flag) in odd.into_iter().filter(|_| at < length) {
                    let usual = (computed[at], scheduled[at], flags[at]);
                    (computed[at], scheduled[at], flags[at]) = (odd_computed, odd_scheduled, odd_flag);
                    check(&computed, &scheduled, &flags, None);
                    (computed[at], scheduled[at], flags[at]) = usual;
                }
            }
        }
    }

    #[test]
    fn windows_of_any_size_show_decodes_what_the_formula_says() {
        let sizes = [0, 1, 2, 3, 100, 1 << 24, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, 1 << 40, u64::MAX];
        for length in LENGTHS {
            let computed: Vec<u32> = (0..length).map(|at| [1 << 24, 1, 2, 99, 100, 101][at % 6]).collect();
            let slice: Vec<Request> = computed.iter().map(|tokens| Request::decode(*tokens)).collect();
            let scheduled = vec![1; length];
            let columns = RequestColumns::new(&computed, &scheduled).unwrap();
            for window in
                sizes.into_iter().flat_map(|size| [Window::Sliding(size), Window::Chunked(size), Window::Picked(size)])
            {
                let expected = computed.iter().map(|tokens| visible_tokens(window, 0, *tokens)).sum::<u64>();
                assert_eq!(by_all_lanes(Keys(&slice[..], window)), [expected; 5], "{length} under {window:?}");
                assert_eq!(by_all_lanes(Keys(columns, window)), [expected; 5], "{length} under {window:?}");
            }
        }
    }
}
