//! The sums over a batch as integers, so that requests can be added and taken away in any order and the same requests
//! always give the same sums. Uses `request`, `model::Window`, `window`, `batch`.

use crate::model::Window;
use crate::request::Request;

use super::batch::{BatchShape, MAX_WINDOWS};
use super::window::{visible_pairs, visible_tokens};

/// What the times of a step depend on, summed over its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchSums {
    /// Scheduled tokens: T.
    pub num_tokens: u64,
    /// Requests that sample a token: S.
    pub num_sampled: u64,
    /// Requests with one scheduled token on top of a cache.
    pub num_decodes: u64,
    /// All others: prompt chunks.
    pub num_prefills: u64,
    /// Scheduled tokens of the chunks.
    pub prefill_tokens: u64,
    /// Tokens in the cache before the step, of the chunks.
    pub prefill_context_tokens: u64,
    /// Squares of the chunks' scheduled tokens.
    pub prefill_squared_tokens: u128,
    /// Sums per kind of window, in the order of the plan's.
    pub windows: [WindowSums; MAX_WINDOWS],
}

/// What attention under one kind of window has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowSums {
    /// Keys that decodes see, their own included.
    pub decode_kv_tokens: u64,
    /// Keys that chunks read at least once.
    pub prefill_kv_tokens: u64,
    /// Visible (query, key) pairs per head of chunks.
    pub prefill_pairs: u128,
}

impl BatchSums {
    /// The sums of one request; all 0 where it schedules nothing.
    pub fn of(request: &Request, windows: &[Window]) -> Self {
        let mut sums = BatchSums::default();
        sums.add_request(request, windows);
        sums
    }

    /// Adds a request; nothing where it schedules nothing.
    pub fn add_request(&mut self, request: &Request, windows: &[Window]) {
        let (query, computed) = (request.num_scheduled_tokens, request.num_computed_tokens);
        if query == 0 {
            return;
        }
        self.num_tokens += u64::from(query);
        self.num_sampled += u64::from(request.samples);
        let is_decode = request.is_decode();
        if is_decode {
            self.num_decodes += 1;
        } else {
            self.num_prefills += 1;
            self.prefill_tokens += u64::from(query);
            self.prefill_context_tokens += u64::from(computed);
            self.prefill_squared_tokens += u128::from(query) * u128::from(query);
        }
        for (sum, window) in self.windows.iter_mut().zip(windows) {
            let seen = visible_tokens(*window, query, computed);
            if is_decode {
                sum.decode_kv_tokens += seen;
            } else {
                sum.prefill_kv_tokens += seen;
                sum.prefill_pairs += visible_pairs(*window, query, computed);
            }
        }
    }

    /// Adds other requests.
    pub fn add(&mut self, other: &BatchSums) {
        self.each(other, u64::wrapping_add, u128::wrapping_add);
    }

    /// Takes requests away that were added before.
    pub fn remove(&mut self, other: &BatchSums) {
        self.each(other, u64::wrapping_sub, u128::wrapping_sub);
    }

    fn each(&mut self, other: &BatchSums, narrow: fn(u64, u64) -> u64, wide: fn(u128, u128) -> u128) {
        let pairs = [
            (&mut self.num_tokens, other.num_tokens),
            (&mut self.num_sampled, other.num_sampled),
            (&mut self.num_decodes, other.num_decodes),
            (&mut self.num_prefills, other.num_prefills),
            (&mut self.prefill_tokens, other.prefill_tokens),
            (&mut self.prefill_context_tokens, other.prefill_context_tokens),
        ];
        for (mine, theirs) in pairs {
            *mine = narrow(*mine, theirs);
        }
        self.prefill_squared_tokens = wide(self.prefill_squared_tokens, other.prefill_squared_tokens);
        for (mine, theirs) in self.windows.iter_mut().zip(&other.windows) {
            mine.decode_kv_tokens = narrow(mine.decode_kv_tokens, theirs.decode_kv_tokens);
            mine.prefill_kv_tokens = narrow(mine.prefill_kv_tokens, theirs.prefill_kv_tokens);
            mine.prefill_pairs = wide(mine.prefill_pairs, theirs.prefill_pairs);
        }
    }

    /// The batch as operators see it. How long its longest request is no longer known; no operator's time depends on it, and
    /// the mean stands in.
    pub fn shape(&self, windows: &[Window]) -> BatchShape {
        BatchShape::from_sums(self, windows)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOWS: [Window; 3] = [Window::Full, Window::Sliding(100), Window::Chunked(64)];

    fn requests() -> impl Strategy<Value = Vec<Request>> {
        let request = (0u32..3000, 1u32..600, any::<bool>(), any::<bool>())
            .prop_map(|(computed, chunk, samples, one)| Request::new(computed, if one { 1 } else { chunk }, samples));
        proptest::collection::vec(request, 1..40)
    }

    fn sums(requests: &[Request]) -> BatchSums {
        let mut sums = BatchSums::default();
        requests.iter().for_each(|request| sums.add(&BatchSums::of(request, &WINDOWS)));
        sums
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_batch(requests in requests()) {
            let shape = BatchShape::new(&requests, &WINDOWS, u64::MAX).unwrap();
            let summed = sums(&requests).shape(&WINDOWS);
            prop_assert_eq!(
                (summed.num_tokens, summed.num_sampled, summed.num_decodes, summed.num_prefills),
                (shape.num_tokens, shape.num_sampled, shape.num_decodes, shape.num_prefills)
            );
            prop_assert_eq!(
                (summed.prefill_tokens, summed.prefill_context_tokens),
                (shape.prefill_tokens, shape.prefill_context_tokens)
            );
            prop_assert_eq!(summed.prefill_squared_tokens.to_bits(), shape.prefill_squared_tokens.to_bits());
            for (ours, theirs) in summed.windows().iter().zip(shape.windows()) {
                prop_assert_eq!(ours.window, theirs.window);
                prop_assert_eq!(ours.decode_kv_tokens, theirs.decode_kv_tokens);
                prop_assert_eq!(ours.prefill_kv_tokens, theirs.prefill_kv_tokens);
                prop_assert_eq!(ours.prefill_pairs.to_bits(), theirs.prefill_pairs.to_bits());
            }
        }

        #[test]
        fn what_was_added_can_be_taken_away(kept in requests(), gone in requests()) {
            let mut both = sums(&kept);
            both.add(&sums(&gone));
            for request in &gone {
                both.remove(&BatchSums::of(request, &WINDOWS));
            }
            prop_assert_eq!(both, sums(&kept));
        }
    }

    #[test]
    fn a_request_that_schedules_nothing_adds_nothing() {
        assert_eq!(BatchSums::of(&Request::new(70, 0, true), &WINDOWS), BatchSums::default());
    }
}
