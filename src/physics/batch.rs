//! A batch reduced to the few sums that operators depend on. [`BatchSums`] are integers, so that requests can be added and
//! removed in any order with the same result; a [`BatchShape`] is a batch as operators see it.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::model::Window;
use crate::request::Request;

use super::window::{visible_pairs, visible_tokens};

/// Most kinds of window that one model may mix; known models mix two.
pub const MAX_WINDOWS: usize = 4;
/// Requests of a refused batch that an error lists; the rest is counted.
const MAX_PROBLEMS: usize = 20;

/// Sums over the requests of a batch. Up to 2³⁰ requests of 2³³ tokens fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchSums {
    /// Scheduled tokens: T.
    pub num_tokens: u64,
    /// Requests that sample a token: S.
    pub num_sampled: u64,
    /// Requests with one scheduled token on top of a cache.
    pub num_decodes: u64,
    /// All others: prefill chunks.
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

/// Sums that attention under one kind of window depends on.
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
    #[inline]
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

    /// Removes requests that were added before.
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

    /// Returns the batch as operators see it. Sums do not tell the longest request, and no operator's time depends on it:
    /// the mean length takes its place.
    pub fn shape(&self, windows: &[Window]) -> BatchShape {
        let mean = |sum: u64, count: u64| sum.div_ceil(count.max(1));
        let mut shape = BatchShape {
            num_tokens: self.num_tokens,
            num_sampled: self.num_sampled,
            num_decodes: self.num_decodes,
            num_prefills: self.num_prefills,
            prefill_tokens: self.prefill_tokens,
            max_prefill_tokens: mean(self.prefill_tokens, self.num_prefills),
            prefill_squared_tokens: self.prefill_squared_tokens as f64,
            prefill_context_tokens: self.prefill_context_tokens,
            num_windows: windows.len().min(MAX_WINDOWS),
            ..BatchShape::default()
        };
        for ((slot, window), sum) in shape.windows.iter_mut().zip(windows).zip(&self.windows) {
            *slot = WindowShape {
                window: *window,
                decode_kv_tokens: sum.decode_kv_tokens,
                max_decode_kv_tokens: mean(sum.decode_kv_tokens, self.num_decodes),
                prefill_pairs: sum.prefill_pairs as f64,
                prefill_kv_tokens: sum.prefill_kv_tokens,
            };
        }
        shape
    }
}

/// The work of attention under one kind of window for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct WindowShape {
    /// The window.
    pub window: Window,
    /// Keys that decodes see, their own included, summed over requests.
    pub decode_kv_tokens: u64,
    /// Keys that the longest decode sees.
    pub max_decode_kv_tokens: u64,
    /// Visible (query, key) pairs per head, summed over prefill chunks; exact below 2⁵³.
    pub prefill_pairs: f64,
    /// Keys that chunks read at least once, their own included, summed over chunks.
    pub prefill_kv_tokens: u64,
}

/// The sums over a batch that a step's work depends on. Independent of the order of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct BatchShape {
    /// Scheduled tokens of all requests: T.
    pub num_tokens: u64,
    /// Requests that sample a token in this step: S.
    pub num_sampled: u64,
    /// Requests with one scheduled token on top of a cache ([`Request::is_decode`]).
    pub num_decodes: u64,
    /// All other requests: prefill chunks.
    pub num_prefills: u64,
    /// Scheduled tokens of the prefill chunks.
    pub prefill_tokens: u64,
    /// Scheduled tokens of the longest prefill chunk.
    #[serde(skip)]
    pub max_prefill_tokens: u64,
    /// Squares of the chunks' scheduled tokens, summed; exact below 2⁵³.
    #[serde(skip)]
    pub prefill_squared_tokens: f64,
    /// Tokens in the cache before this step, summed over prefill chunks.
    pub prefill_context_tokens: u64,
    #[serde(skip)]
    windows: [WindowShape; MAX_WINDOWS],
    #[serde(skip)]
    num_windows: usize,
}

impl BatchShape {
    /// Sums `requests` for a model with these kinds of window.
    ///
    /// ```
    /// use ridgepoint::Request;
    /// use ridgepoint::model::Window;
    /// use ridgepoint::physics::BatchShape;
    /// let batch = [Request::decode(99), Request::prefill(10, 0)];
    /// let shape = BatchShape::new(&batch, &[Window::Full], 4096)?;
    /// assert_eq!((shape.num_tokens, shape.num_decodes, shape.num_prefills), (11, 1, 1));
    /// assert_eq!(shape.windows()[0].decode_kv_tokens, 100);
    /// assert_eq!(shape.windows()[0].prefill_pairs, 55.0);
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::EmptyStep`](crate::ErrorKind) without requests; [`ErrorKind::InvalidRequest`](crate::ErrorKind) with every request that schedules nothing or
    /// outgrows `max_model_len`; [`ErrorKind::Invalid`](crate::ErrorKind) for more than [`MAX_WINDOWS`] windows.
    pub fn new(requests: &[Request], windows: &[Window], max_model_len: u64) -> Result<Self> {
        if requests.is_empty() {
            return Err(Error::empty_step());
        }
        if windows.len() > MAX_WINDOWS {
            return Err(too_many_windows(windows.len()));
        }
        let mut sums = BatchSums::default();
        let (mut culprits, mut problems) = (0, Vec::new());
        let (mut longest_chunk, mut longest_decodes) = (0, [0; MAX_WINDOWS]);
        for (index, request) in requests.iter().enumerate() {
            let (query, computed) = (request.num_scheduled_tokens, request.num_computed_tokens);
            if query == 0 || u64::from(query) + u64::from(computed) > max_model_len {
                if problems.len() < MAX_PROBLEMS {
                    problems.push((index, problem(request, max_model_len)));
                }
                culprits += 1;
                continue;
            }
            sums.add_request(request, windows);
            if !request.is_decode() {
                longest_chunk = longest_chunk.max(u64::from(query));
                continue;
            }
            for (longest, window) in longest_decodes.iter_mut().zip(windows) {
                *longest = visible_tokens(*window, 1, computed).max(*longest);
            }
        }
        if culprits > 0 {
            let error = Error::invalid_requests(&problems);
            let more = culprits - problems.len();
            return Err(if more == 0 { error } else { error.and(format!("and {more} more")) });
        }
        let mut shape = sums.shape(windows);
        shape.max_prefill_tokens = longest_chunk;
        for (slot, longest) in shape.windows.iter_mut().zip(longest_decodes) {
            slot.max_decode_kv_tokens = longest;
        }
        Ok(shape)
    }

    /// Sums per kind of window, in the order of the windows given.
    pub fn windows(&self) -> &[WindowShape] {
        &self.windows[..self.num_windows]
    }

    /// Requests in the batch.
    pub fn num_requests(&self) -> u64 {
        self.num_decodes + self.num_prefills
    }

    /// True where every request is a decode.
    pub fn is_decode_only(&self) -> bool {
        self.num_prefills == 0
    }
}

#[cold]
fn too_many_windows(found: usize) -> Error {
    let problem = format!("{found} kinds of attention window in one model; at most {MAX_WINDOWS} are supported");
    Error::invalid("model", vec![problem])
}

#[cold]
fn problem(request: &Request, max_model_len: u64) -> String {
    let (computed, scheduled) = (u64::from(request.num_computed_tokens), u64::from(request.num_scheduled_tokens));
    if scheduled == 0 {
        return "num_scheduled_tokens = 0 must be at least 1; leave requests that are not scheduled out of the batch"
            .to_owned();
    }
    format!(
        "num_computed_tokens + num_scheduled_tokens = {computed} + {scheduled} = {} is longer than max_model_len = \
         {max_model_len}; shorten the request or raise max_model_len",
        computed + scheduled
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOTH: [Window; 2] = [Window::Sliding(4), Window::Full];

    #[test]
    fn a_mixed_batch_is_summed_per_window() {
        let mut unfinished = Request::prefill(3, 5);
        unfinished.samples = false;
        let batch = [Request::decode(9), unfinished, Request::decode(1), Request::prefill(1, 0)];
        let shape = BatchShape::new(&batch, &BOTH, 100).unwrap();
        assert_eq!((shape.num_tokens, shape.num_sampled), (6, 3));
        assert_eq!((shape.num_decodes, shape.num_prefills, shape.num_requests()), (2, 2, 4));
        assert_eq!((shape.prefill_tokens, shape.max_prefill_tokens, shape.prefill_context_tokens), (4, 3, 5));
        assert_eq!(shape.prefill_squared_tokens as u64, 3 * 3 + 1);
        let [sliding, full] = shape.windows() else { panic!("two windows were asked for") };
        assert_eq!((sliding.decode_kv_tokens, sliding.max_decode_kv_tokens), (4 + 2, 4));
        assert_eq!((full.decode_kv_tokens, full.max_decode_kv_tokens), (10 + 2, 10));
        assert_eq!((sliding.prefill_pairs as u64, sliding.prefill_kv_tokens), (12 + 1, 6 + 1));
        assert_eq!((full.prefill_pairs as u64, full.prefill_kv_tokens), (6 + 7 + 8 + 1, 8 + 1));
    }

    #[test]
    fn an_empty_step_is_an_error() {
        let error = BatchShape::new(&[], &BOTH, 10).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::EmptyStep);
    }

    #[test]
    fn the_request_at_fault_is_named() {
        let batch = [Request::decode(4), Request::prefill(0, 4)];
        let message = BatchShape::new(&batch, &BOTH, 10).unwrap_err().to_string();
        assert!(message.starts_with("request 1: num_scheduled_tokens = 0 must be at least 1"), "{message}");
        let batch = [Request::prefill(7, 4)];
        let message = BatchShape::new(&batch, &BOTH, 10).unwrap_err().to_string();
        assert!(message.contains("4 + 7 = 11") && message.contains("max_model_len = 10"), "{message}");
        assert!(BatchShape::new(&[Request::prefill(6, 4)], &BOTH, 10).is_ok());
    }

    #[test]
    fn a_million_longest_requests_do_not_overflow() {
        let batch = vec![Request::prefill(u32::MAX, u32::MAX); 1_000_000];
        let windows = [Window::Full, Window::Sliding(128), Window::Chunked(8192)];
        let shape = BatchShape::new(&batch, &windows, u64::MAX).unwrap();
        assert_eq!(shape.num_tokens, 1_000_000 * u64::from(u32::MAX));
        let n = f64::from(u32::MAX);
        assert!((shape.windows()[0].prefill_pairs / (1e6 * 1.5 * n * n) - 1.0).abs() < 1e-9);
    }

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
