//! Runs of plain decodes in a slice of requests. Uses `request`.
//!
//! A request is three words, so three vectors hold as many requests as a vector has lanes; a word keeps its place from one
//! group of three vectors to the next.

use pulp::{Simd, WithSimd};

use super::{BLOCK, Batch, LONG, MOST_WORDS, Seen, earlier_tokens, few_computed_tokens, is_zero, kept, total};
use crate::model::Window;
use crate::request::Request;

/// Words of a request, and vectors of a group.
const WORDS: usize = 3;

/// By place: bits that no plain decode has in its words less one each.
const FORBIDDEN: [u32; MOST_WORDS] = by_place([LONG, !0, !0]);

/// By place: the computed tokens.
const COMPUTED: [u32; MOST_WORDS] = by_place([!0, 0, 0]);

const fn by_place(request: [u32; WORDS]) -> [u32; MOST_WORDS] {
    let mut words = [0; MOST_WORDS];
    let mut index = 0;
    while index < words.len() {
        words[index] = request[index % WORDS];
        index += 1;
    }
    words
}

/// The three vectors that a group of requests lies in.
type Group<S> = [<S as Simd>::u32s; WORDS];

#[inline(always)]
fn and<S: Simd>(simd: S, a: &Group<S>, b: &Group<S>) -> Group<S> {
    [simd.and_u32s(a[0], b[0]), simd.and_u32s(a[1], b[1]), simd.and_u32s(a[2], b[2])]
}

/// The group from word `first` on.
#[inline(always)]
fn group<S: Simd>(simd: S, words: &[u32], first: usize) -> Group<S> {
    let groups: &[Group<S>] = groups::<S>(words.get(first..).unwrap_or_default());
    groups.first().copied().unwrap_or([simd.splat_u32s(0); WORDS])
}

#[inline(always)]
fn groups<S: Simd>(words: &[u32]) -> &[Group<S>] {
    S::as_simd_u32s(words).0.as_chunks().0
}

/// The group that a block ends with, of which the last `left` words are kept and the others 0; and which are kept.
#[inline(always)]
fn last_group<S: Simd>(simd: S, words: &[u32], left: usize) -> (Group<S>, Group<S>) {
    let group_words = WORDS * S::U32_LANES;
    let kept = group(simd, kept(group_words, left), 0);
    (and(simd, &group(simd, words, words.len() - group_words), &kept), kept)
}

/// Words less one each: their sums, and all bits found in them, by place.
struct Summed<S: Simd> {
    sums: Group<S>,
    seen: Group<S>,
}

impl<S: Simd> Summed<S> {
    #[inline(always)]
    fn add(&mut self, simd: S, words: &Group<S>, ones: &Group<S>) {
        for place in 0..WORDS {
            let beyond = simd.sub_u32s(words[place], ones[place]);
            self.sums[place] = simd.add_u32s(self.sums[place], beyond);
            self.seen[place] = simd.or_u32s(self.seen[place], beyond);
        }
    }

    #[inline(always)]
    fn total(&self, simd: S) -> u64 {
        total::<S>(simd.add_u32s(simd.add_u32s(self.sums[0], self.sums[1]), self.sums[2]))
    }
}

/// Computed tokens of a block of at least one group.
#[inline(always)]
fn block_computed_tokens<S: Simd>(simd: S, block: &[Request]) -> Option<u64> {
    let words = bytemuck::must_cast_slice::<Request, u32>(block);
    let ones = [simd.splat_u32s(1); WORDS];
    let nothing = [simd.splat_u32s(0); WORDS];
    let mut summed = Summed { sums: nothing, seen: nothing };
    for words in groups::<S>(words) {
        summed.add(simd, words, &ones);
    }
    let left = WORDS * (block.len() % S::U32_LANES);
    if left > 0 {
        let (words, kept) = last_group(simd, words, left);
        summed.add(simd, &words, &and(simd, &ones, &kept));
    }
    let found = and(simd, &summed.seen, &group(simd, &FORBIDDEN, 0));
    if !is_zero::<S>(simd.or_u32s(simd.or_u32s(found[0], found[1]), found[2])) {
        return None;
    }
    Some(summed.total(simd) + block.len() as u64)
}

/// Earlier tokens of a block of at least one group.
#[inline(always)]
fn block_earlier_tokens<S: Simd>(simd: S, block: &[Request], seen: Seen) -> u64 {
    let words = bytemuck::must_cast_slice::<Request, u32>(block);
    let numbers = and(simd, &[simd.splat_u32s(seen.number()); WORDS], &group(simd, &COMPUTED, 0));
    let mut sums = [simd.splat_u32s(0); WORDS];
    for words in groups::<S>(words) {
        for place in 0..WORDS {
            sums[place] = simd.add_u32s(sums[place], seen.of_each(simd, words[place], numbers[place]));
        }
    }
    let left = WORDS * (block.len() % S::U32_LANES);
    if left > 0 {
        let (words, _) = last_group(simd, words, left);
        for place in 0..WORDS {
            sums[place] = simd.add_u32s(sums[place], seen.of_each(simd, words[place], numbers[place]));
        }
    }
    total::<S>(simd.add_u32s(simd.add_u32s(sums[0], sums[1]), sums[2]))
}

/// How a number of requests is gone through.
enum Size {
    /// Fewer than a vector has lanes for.
    Few,
    /// One block.
    Block,
    /// More than 32 bits may hold the sum of.
    Blocks,
}

impl Size {
    #[inline(always)]
    fn of<S: Simd>(num_requests: usize) -> Self {
        if num_requests < S::U32_LANES {
            Size::Few
        } else if num_requests <= BLOCK * S::U32_LANES {
            Size::Block
        } else {
            Size::Blocks
        }
    }
}

impl Batch for &[Request] {
    #[inline(always)]
    fn len(self) -> usize {
        <[Request]>::len(self)
    }

    #[inline(always)]
    fn get(self, index: usize) -> Option<Request> {
        <[Request]>::get(self, index).copied()
    }

    #[inline(always)]
    fn split(self, count: usize) -> (Self, Self) {
        self.split_at_checked(count).unwrap_or((self, &[]))
    }

    #[inline(always)]
    fn plain_computed_tokens<S: Simd>(self, simd: S) -> Option<u64> {
        match Size::of::<S>(self.len()) {
            Size::Few => few_computed_tokens(self.iter().copied()),
            Size::Block => block_computed_tokens(simd, self),
            Size::Blocks => simd.vectorize(Blocks(self)),
        }
    }

    #[inline(always)]
    fn plain_earlier_tokens<S: Simd>(self, simd: S, window: Window) -> u64 {
        let Some(seen) = Seen::under(window) else {
            return earlier_tokens(window, self.iter().map(|request| request.num_computed_tokens));
        };
        let mut tokens = 0;
        for block in self.chunks(BLOCK * S::U32_LANES) {
            tokens += match Size::of::<S>(block.len()) {
                Size::Few => block.iter().map(|request| seen.of(request.num_computed_tokens)).sum(),
                _ => block_earlier_tokens(simd, block, seen),
            };
        }
        tokens
    }
}

/// Computed tokens of more than a block, in a function of their own: what a loop around blocks keeps in registers would be
/// in the way of the one block that most batches are.
struct Blocks<'a>(&'a [Request]);

impl WithSimd for Blocks<'_> {
    type Output = Option<u64>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<u64> {
        let mut tokens = 0;
        for block in self.0.chunks(BLOCK * S::U32_LANES) {
            tokens += match Size::of::<S>(block.len()) {
                Size::Few => few_computed_tokens(block.iter().copied()),
                _ => block_computed_tokens(simd, block),
            }?;
        }
        Some(tokens)
    }
}
