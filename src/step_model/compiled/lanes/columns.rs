//! Runs of plain decodes in columns of requests. Uses `request`.

use pulp::Simd;

use super::{BLOCK, Batch, LONG, Seen, earlier_tokens, few_computed_tokens, is_zero, kept, total};
use crate::model::Window;
use crate::request::{Request, RequestColumns};

/// The vector from value `first` on.
#[inline(always)]
fn vector<S: Simd>(simd: S, values: &[u32], first: usize) -> S::u32s {
    let vectors = S::as_simd_u32s(values.get(first..).unwrap_or_default()).0;
    vectors.first().copied().unwrap_or(simd.splat_u32s(0))
}

/// The vector that a block ends with, 0 where it is not `kept`.
#[inline(always)]
fn last<S: Simd>(simd: S, values: &[u32], kept: S::u32s) -> S::u32s {
    simd.and_u32s(vector(simd, values, values.len() - S::U32_LANES), kept)
}

/// Values less one each: the sum of the computed tokens, and all bits found.
struct Summed<S: Simd> {
    sum: S::u32s,
    computed: S::u32s,
    scheduled: S::u32s,
}

impl<S: Simd> Summed<S> {
    #[inline(always)]
    fn add(&mut self, simd: S, computed: S::u32s, scheduled: S::u32s, ones: S::u32s) {
        let computed = simd.sub_u32s(computed, ones);
        self.sum = simd.add_u32s(self.sum, computed);
        self.computed = simd.or_u32s(self.computed, computed);
        self.scheduled = simd.or_u32s(self.scheduled, simd.sub_u32s(scheduled, ones));
    }
}

/// Computed tokens of a block of at least one vector.
#[inline(always)]
fn block_computed_tokens<S: Simd>(simd: S, computed: &[u32], scheduled: &[u32]) -> Option<u64> {
    let (nothing, ones) = (simd.splat_u32s(0), simd.splat_u32s(1));
    let mut summed = Summed { sum: nothing, computed: nothing, scheduled: nothing };
    for (computed, scheduled) in S::as_simd_u32s(computed).0.iter().zip(S::as_simd_u32s(scheduled).0) {
        summed.add(simd, *computed, *scheduled, ones);
    }
    let left = computed.len() % S::U32_LANES;
    if left > 0 {
        let kept = vector(simd, kept(S::U32_LANES, left), 0);
        let ones = simd.and_u32s(ones, kept);
        summed.add(simd, last(simd, computed, kept), last(simd, scheduled, kept), ones);
    }
    let found = simd.or_u32s(simd.and_u32s(summed.computed, simd.splat_u32s(LONG)), summed.scheduled);
    if !is_zero::<S>(found) {
        return None;
    }
    Some(total::<S>(summed.sum) + computed.len() as u64)
}

/// Earlier tokens of a block of at least one vector.
#[inline(always)]
fn block_earlier_tokens<S: Simd>(simd: S, computed: &[u32], seen: Seen) -> u64 {
    let numbers = simd.splat_u32s(seen.number());
    let mut sum = simd.splat_u32s(0);
    for computed in S::as_simd_u32s(computed).0 {
        sum = simd.add_u32s(sum, seen.of_each(simd, *computed, numbers));
    }
    let left = computed.len() % S::U32_LANES;
    if left > 0 {
        let kept = vector(simd, kept(S::U32_LANES, left), 0);
        let computed = last(simd, computed, kept);
        sum = simd.add_u32s(sum, seen.of_each(simd, computed, numbers));
    }
    total::<S>(sum)
}

/// Whether no flag is 0.
#[inline(always)]
fn are_set<S: Simd>(simd: S, flags: &[u8]) -> bool {
    let Some(last) = flags.len().checked_sub(S::U8_LANES) else { return !flags.contains(&0) };
    let mut smallest = simd.splat_u8s(!0);
    for flags in S::as_simd_u8s(flags).0 {
        smallest = simd.min_u8s(smallest, *flags);
    }
    // Flags that it shares with others do no harm: the smallest stays the smallest.
    for flags in S::as_simd_u8s(flags.get(last..).unwrap_or_default()).0 {
        smallest = simd.min_u8s(smallest, *flags);
    }
    bytemuck::cast_slice::<S::u8s, u8>(std::slice::from_ref(&smallest)).iter().all(|flag| *flag != 0)
}

impl Batch for RequestColumns<'_> {
    #[inline(always)]
    fn len(self) -> usize {
        RequestColumns::len(&self)
    }

    #[inline(always)]
    fn get(self, index: usize) -> Option<Request> {
        RequestColumns::get(&self, index)
    }

    #[inline(always)]
    fn split(self, count: usize) -> (Self, Self) {
        self.split_at(count)
    }

    #[inline(always)]
    fn plain_computed_tokens<S: Simd>(self, simd: S) -> Option<u64> {
        let (computed, scheduled, samples) = self.parts();
        if samples.is_some_and(|samples| !are_set(simd, samples)) {
            return None;
        }
        let block = BLOCK * S::U32_LANES;
        let mut tokens = 0;
        for (computed, scheduled) in computed.chunks(block).zip(scheduled.chunks(block)) {
            tokens += if computed.len() < S::U32_LANES {
                few_computed_tokens(
                    computed
                        .iter()
                        .zip(scheduled)
                        .map(|(computed, scheduled)| Request::new(*computed, *scheduled, true)),
                )
            } else {
                block_computed_tokens(simd, computed, scheduled)
            }?;
        }
        Some(tokens)
    }

    #[inline(always)]
    fn plain_earlier_tokens<S: Simd>(self, simd: S, window: Window) -> u64 {
        let (computed, ..) = self.parts();
        let Some(seen) = Seen::under(window) else { return earlier_tokens(window, computed.iter().copied()) };
        let mut tokens = 0;
        for block in computed.chunks(BLOCK * S::U32_LANES) {
            tokens += if block.len() < S::U32_LANES {
                block.iter().map(|tokens| seen.of(*tokens)).sum()
            } else {
                block_earlier_tokens(simd, block, seen)
            };
        }
        tokens
    }
}
