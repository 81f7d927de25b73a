//! How many tokens a query sees under each kind of window, in closed form: one or two divisions per request whatever
//! its length.

use crate::model::Window;

/// Visible (query, key) pairs per head of a chunk under full causal attention.
///
/// # Formula
/// `q·c + q·(q+1)/2` for `q` scheduled tokens after `c` computed ones; each query sees itself.
///
/// # Source
/// Counting: the query at position `p` sees the `p + 1` positions up to its own.
///
/// ```
/// use ridgepoint::physics::window::causal_pairs;
/// // Three queries after ten tokens see 11, 12 and 13.
/// assert_eq!(causal_pairs(3, 10), 36);
/// ```
#[inline]
pub fn causal_pairs(query_tokens: u32, computed_tokens: u32) -> u128 {
    let (q, c) = (u128::from(query_tokens), u128::from(computed_tokens));
    q * c + q * (q + 1) / 2
}

/// Visible pairs per head of a chunk whose queries see the last `window` tokens, their own included.
///
/// # Formula
/// `P(c + q) − P(c)` with `P(n) = Σ_{i=1..n} min(i, w)`, which is `n(n+1)/2` up to `w` and `w(w+1)/2 + (n−w)·w` after.
///
/// # Source
/// Counting, with the convention of Hugging Face's `sliding_window`: the window holds the query's own token.
///
/// ```
/// use ridgepoint::physics::window::sliding_pairs;
/// // Four queries from an empty cache under a window of two see 1, 2, 2 and 2.
/// assert_eq!(sliding_pairs(4, 0, 2), 7);
/// ```
pub fn sliding_pairs(query_tokens: u32, computed_tokens: u32, window_tokens: u64) -> u128 {
    let window = window_tokens.max(1);
    let up_to = |tokens: u64| {
        let inside = u128::from(tokens.min(window));
        inside * (inside + 1) / 2 + u128::from(tokens.saturating_sub(window)) * inside
    };
    let computed = u64::from(computed_tokens);
    up_to(computed + u64::from(query_tokens)) - up_to(computed)
}

/// Visible pairs per head of a chunk whose queries see their own block of `chunk` positions up to themselves.
///
/// # Formula
/// `P(c + q) − P(c)` with `P(n) = ⌊n/w⌋·w(w+1)/2 + r(r+1)/2`, `r = n mod w`.
///
/// # Source
/// Counting, with Llama-4's `attention_chunk_size`: position `p` sees `p mod w + 1` positions.
///
/// ```
/// use ridgepoint::physics::window::chunked_pairs;
/// // Positions 3, 4, 5, 6 in blocks of four see 4, 1, 2 and 3.
/// assert_eq!(chunked_pairs(4, 3, 4), 10);
/// ```
pub fn chunked_pairs(query_tokens: u32, computed_tokens: u32, chunk_tokens: u64) -> u128 {
    let chunk = chunk_tokens.max(1);
    let triangle = |n: u64| u128::from(n) * (u128::from(n) + 1) / 2;
    let up_to = |tokens: u64| {
        let blocks = tokens / chunk;
        let whole = if blocks == 0 { 0 } else { u128::from(blocks) * triangle(chunk) };
        whole + triangle(tokens % chunk)
    };
    let computed = u64::from(computed_tokens);
    up_to(computed + u64::from(query_tokens)) - up_to(computed)
}

/// Visible pairs per head of a chunk under `window`: one of [`causal_pairs`], [`sliding_pairs`], [`chunked_pairs`].
#[inline]
pub fn visible_pairs(window: Window, query_tokens: u32, computed_tokens: u32) -> u128 {
    match window {
        Window::Full => causal_pairs(query_tokens, computed_tokens),
        Window::Sliding(tokens) | Window::Picked(tokens) => sliding_pairs(query_tokens, computed_tokens, tokens),
        Window::Chunked(tokens) => chunked_pairs(query_tokens, computed_tokens, tokens),
    }
}

/// Keys that at least one query of a chunk sees, its own tokens included: the kernel reads each once.
///
/// # Formula
/// `q + c` (full), `q + min(c, w − 1)` (sliding), `q + c mod w` (chunked). Queries of a chunk pick different keys, so that the most they
/// can read counts: `q + min(c, q·(w − 1))` (picked).
///
/// # Source
/// Counting: the first query's visible tokens are the earliest that any query sees.
///
/// ```
/// use ridgepoint::model::Window;
/// use ridgepoint::physics::window::visible_tokens;
/// assert_eq!(visible_tokens(Window::Full, 4, 100), 104);
/// assert_eq!(visible_tokens(Window::Sliding(8), 4, 100), 11);
/// assert_eq!(visible_tokens(Window::Chunked(16), 4, 100), 8);
/// assert_eq!(visible_tokens(Window::Picked(8), 4, 100), 4 * 8);
/// assert_eq!(visible_tokens(Window::Picked(8), 40, 100), 140);
/// ```
#[inline]
pub fn visible_tokens(window: Window, query_tokens: u32, computed_tokens: u32) -> u64 {
    let computed = u64::from(computed_tokens);
    let earlier = match window {
        Window::Full => computed,
        Window::Sliding(tokens) => computed.min(tokens.max(1) - 1),
        Window::Chunked(tokens) => computed % tokens.max(1),
        // A decode picks as many as a sliding window holds; further queries pick others.
        Window::Picked(tokens) => computed.min(u64::from(query_tokens.max(1)).saturating_mul(tokens.max(1) - 1)),
    };
    u64::from(query_tokens) + earlier
}

/// Mean visible keys per query, and keys read, of a chunk under a sliding window (infinite for full attention). Lengths need
/// not be whole: measured batches have mean lengths.
///
/// # Formula
/// [`sliding_pairs`] over `q`, with `f = clamp(w − c, 0, q)` queries that the window does not limit:
/// `(f·c + f(f+1)/2 + (q − f)·w) / q`; and [`visible_tokens`].
///
/// ```
/// use ridgepoint::physics::window::mean_visible;
/// // Four queries from an empty cache under a window of three see 1, 2, 3 and 3.
/// assert_eq!(mean_visible(4.0, 0.0, 3.0), (9.0 / 4.0, 4.0));
/// assert_eq!(mean_visible(1.0, 99.5, f64::INFINITY), (100.5, 100.5));
/// ```
pub fn mean_visible(query_tokens: f64, computed_tokens: f64, window_tokens: f64) -> (f64, f64) {
    let (q, c, window) = (query_tokens, computed_tokens, window_tokens);
    let free = (window - c).clamp(0.0, q);
    let pairs = free * c + free * (free + 1.0) / 2.0 + (q - free) * window.min(c + q);
    (pairs / q, (c + q).min(window + q - 1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sees(window: Window, query: u64, key: u64) -> bool {
        key <= query
            && match window {
                Window::Full => true,
                Window::Sliding(w) | Window::Picked(w) => query - key < w,
                Window::Chunked(w) => query / w == key / w,
            }
    }

    fn any_window() -> impl Strategy<Value = Window> {
        prop_oneof![Just(Window::Full), (1u64..40).prop_map(Window::Sliding), (1u64..40).prop_map(Window::Chunked)]
    }

    proptest! {
        #[test]
        fn closed_forms_equal_counting_every_pair(window in any_window(), q in 1u32..70, c in 0u32..90) {
            let queries = u64::from(c)..u64::from(c + q);
            let pairs: usize =
                queries.clone().map(|p| (0..=p).filter(|k| sees(window, p, *k)).count()).sum();
            let read = (0..u64::from(c + q)).filter(|k| queries.clone().any(|p| sees(window, p, *k))).count();
            prop_assert_eq!(visible_pairs(window, q, c), pairs as u128);
            prop_assert_eq!(visible_tokens(window, q, c), read as u64);
        }

        #[test]
        fn means_are_those_of_the_closed_forms(window in prop_oneof![Just(Window::Full), (1u64..40).prop_map(Window::Sliding)], q in 1u32..70, c in 0u32..90) {
            let tokens = if let Window::Sliding(tokens) = window { tokens as f64 } else { f64::INFINITY };
            let (visible, keys) = mean_visible(f64::from(q), f64::from(c), tokens);
            prop_assert_eq!(visible.to_bits(), (visible_pairs(window, q, c) as f64 / f64::from(q)).to_bits());
            prop_assert_eq!(keys as u64, visible_tokens(window, q, c));
        }
    }

    #[test]
    fn longest_possible_lengths_do_not_overflow() {
        let max = u32::MAX;
        for window in [Window::Full, Window::Sliding(u64::MAX), Window::Chunked(u64::MAX)] {
            let n = u128::from(max);
            assert_eq!(visible_pairs(window, max, max), n * n + n * (n + 1) / 2, "{window:?}");
            assert_eq!(visible_tokens(window, max, max), 2 * u64::from(max), "{window:?}");
        }
    }

    #[test]
    fn a_window_of_zero_does_not_divide_by_zero() {
        assert_eq!(visible_pairs(Window::Chunked(0), 3, 5), 3);
        assert_eq!(visible_tokens(Window::Sliding(0), 3, 5), 3);
    }
}
