//! Runs of plain decodes, as many at a time as the CPU has lanes for: what nearly all requests of nearly all steps are. Uses
//! `request`, `model::Window`.
//!
//! A plain decode samples, and has few enough tokens in its cache that 32 bits hold the sum of a block. Vectors of another
//! CPU hold other numbers of lanes, and sums of whole numbers are the same whatever the order.

mod columns;
mod slice;

use pulp::Simd;

use crate::model::Window;
use crate::physics::window::visible_tokens;
use crate::request::Request;

/// Steps of a loop over vectors between two sums of their lanes.
const BLOCK: usize = 128;

/// Bits that the computed tokens of a plain decode, less one, do not have.
const LONG: u32 = !((1 << 24) - 1);

/// Words in three of the widest vectors that CPUs have.
const MOST_WORDS: usize = 3 * 16;

/// Words to drop, then words to keep.
const KEPT: [u32; 2 * MOST_WORDS] = {
    let mut kept = [0; 2 * MOST_WORDS];
    let mut index = MOST_WORDS;
    while index < kept.len() {
        kept[index] = !0;
        index += 1;
    }
    kept
};

/// Requests of a step, whichever way they lie.
pub(in crate::step_model) trait Batch: Copy {
    fn len(self) -> usize;

    /// Request `index`, if there are so many.
    fn get(self, index: usize) -> Option<Request>;

    /// The first `count` requests, or all where there are fewer, and those after them.
    fn split(self, count: usize) -> (Self, Self);

    /// Tokens in the caches of plain decodes; `None` where a request is anything else.
    fn plain_computed_tokens<S: Simd>(self, simd: S) -> Option<u64>;

    /// Keys before their own that plain decodes see under a window that does not show them all.
    fn plain_earlier_tokens<S: Simd>(self, simd: S, window: Window) -> u64;
}

/// Whether a request is a plain decode.
#[inline(always)]
fn is_plain(request: &Request) -> bool {
    request.is_decode() && request.samples && (request.num_computed_tokens - 1) & LONG == 0
}

/// Computed tokens of plain decodes too few for a vector; `None` where one is anything else.
#[inline(always)]
fn few_computed_tokens(requests: impl Iterator<Item = Request>) -> Option<u64> {
    let mut tokens = 0;
    for request in requests {
        if !is_plain(&request) {
            return None;
        }
        tokens += u64::from(request.num_computed_tokens);
    }
    Some(tokens)
}

/// Keys before a decode's own as the smaller of its computed tokens and a number, or as some of their bits.
#[derive(Clone, Copy)]
enum Seen {
    AtMost(u32),
    Bits(u32),
}

impl Seen {
    /// `None` for a window that takes more to tell.
    fn under(window: Window) -> Option<Self> {
        let narrow = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        match window {
            Window::Sliding(tokens) => Some(Seen::AtMost(narrow(tokens.max(1) - 1))),
            Window::Chunked(tokens) if tokens.is_power_of_two() => Some(Seen::Bits(narrow(tokens - 1))),
            Window::Full | Window::Chunked(_) => None,
        }
    }

    #[inline(always)]
    fn number(self) -> u32 {
        let (Seen::AtMost(number) | Seen::Bits(number)) = self;
        number
    }

    #[inline(always)]
    fn of(self, computed_tokens: u32) -> u64 {
        u64::from(match self {
            Seen::AtMost(most) => computed_tokens.min(most),
            Seen::Bits(bits) => computed_tokens & bits,
        })
    }

    /// [`Seen::of`] for each lane, with a number of its own.
    #[inline(always)]
    fn of_each<S: Simd>(self, simd: S, computed_tokens: S::u32s, numbers: S::u32s) -> S::u32s {
        match self {
            Seen::AtMost(_) => simd.min_u32s(computed_tokens, numbers),
            Seen::Bits(_) => simd.and_u32s(computed_tokens, numbers),
        }
    }
}

/// Sum over requests one by one, for windows that are not [`Seen`] by lanes.
fn earlier_tokens(window: Window, computed_tokens: impl Iterator<Item = u32>) -> u64 {
    computed_tokens.map(|computed| visible_tokens(window, 0, computed)).sum()
}

/// All bits for the last `left` of `words` words, none for those before.
#[inline(always)]
fn kept(words: usize, left: usize) -> &'static [u32] {
    KEPT.get(MOST_WORDS + left - words..).unwrap_or_default()
}

/// Sum of all lanes.
#[inline(always)]
fn total<S: Simd>(vector: S::u32s) -> u64 {
    lanes::<S>(&vector).iter().map(|lane| u64::from(*lane)).sum()
}

#[inline(always)]
fn is_zero<S: Simd>(vector: S::u32s) -> bool {
    lanes::<S>(&vector).iter().fold(0, |all, lane| all | lane) == 0
}

#[inline(always)]
fn lanes<S: Simd>(vector: &S::u32s) -> &[u32] {
    bytemuck::cast_slice(std::slice::from_ref(vector))
}
