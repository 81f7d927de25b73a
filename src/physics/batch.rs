//! A batch reduced to the few sums that the operators depend on, in one pass and without allocation.
//! Uses `request`, `model::Window`, `error` and the closed forms in `window`.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::model::Window;
use crate::request::Request;

use super::sums::BatchSums;
use super::window::{visible_pairs, visible_tokens};

/// Most kinds of window that one model may mix; known models mix two.
pub const MAX_WINDOWS: usize = 4;

/// What attention under one kind of window has to do for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WindowShape {
    /// The window.
    pub window: Window,
    /// Keys that decodes see, their own included, summed over requests.
    pub decode_kv_tokens: u64,
    /// Keys that the longest decode sees.
    pub max_decode_kv_tokens: u64,
    /// Visible (query, key) pairs per head, summed over prompt chunks; exact below 2⁵³.
    pub prefill_pairs: f64,
    /// Keys that chunks read at least once, their own included, summed over chunks.
    pub prefill_kv_tokens: u64,
}

impl WindowShape {
    const fn empty(window: Window) -> Self {
        WindowShape { window, decode_kv_tokens: 0, max_decode_kv_tokens: 0, prefill_pairs: 0.0, prefill_kv_tokens: 0 }
    }
}

/// The sums over a batch that a step's work depends on. Independent of the order of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BatchShape {
    /// Scheduled tokens of all requests: T.
    pub num_tokens: u64,
    /// Requests that sample a token in this step: S.
    pub num_sampled: u64,
    /// Requests with one scheduled token on top of a cache ([`Request::is_decode`]).
    pub num_decodes: u64,
    /// All other requests: prompt chunks.
    pub num_prefills: u64,
    /// Scheduled tokens of the prompt chunks.
    pub prefill_tokens: u64,
    /// Scheduled tokens of the longest prompt chunk.
    pub max_prefill_tokens: u64,
    /// Squares of the chunks' scheduled tokens, summed; exact below 2⁵³.
    pub prefill_squared_tokens: f64,
    /// Tokens in the cache before this step, summed over prompt chunks.
    pub prefill_context_tokens: u64,
    windows: [WindowShape; MAX_WINDOWS],
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
    /// `ErrorKind::EmptyStep` without requests; `ErrorKind::InvalidRequest` for the first request that schedules nothing or
    /// outgrows `max_model_len`; `ErrorKind::Invalid` for more than [`MAX_WINDOWS`] windows.
    pub fn new(requests: &[Request], windows: &[Window], max_model_len: u64) -> Result<Self> {
        if requests.is_empty() {
            return Err(Error::empty_step());
        }
        if windows.len() > MAX_WINDOWS {
            return Err(too_many_windows(windows.len()));
        }
        let mut shape = BatchShape {
            num_tokens: 0,
            num_sampled: 0,
            num_decodes: 0,
            num_prefills: 0,
            prefill_tokens: 0,
            max_prefill_tokens: 0,
            prefill_squared_tokens: 0.0,
            prefill_context_tokens: 0,
            windows: [WindowShape::empty(Window::Full); MAX_WINDOWS],
            num_windows: windows.len(),
        };
        for (slot, window) in shape.windows.iter_mut().zip(windows) {
            slot.window = *window;
        }
        match windows {
            [Window::Full] => shape.sum::<true>(requests, max_model_len)?,
            _ => shape.sum::<false>(requests, max_model_len)?,
        }
        Ok(shape)
    }

    pub(super) fn from_sums(sums: &BatchSums, windows: &[Window]) -> Self {
        let mean = |sum: u64, count: u64| sum.div_ceil(count.max(1));
        let mut shape = BatchShape {
            num_tokens: sums.num_tokens,
            num_sampled: sums.num_sampled,
            num_decodes: sums.num_decodes,
            num_prefills: sums.num_prefills,
            prefill_tokens: sums.prefill_tokens,
            max_prefill_tokens: mean(sums.prefill_tokens, sums.num_prefills),
            prefill_squared_tokens: sums.prefill_squared_tokens as f64,
            prefill_context_tokens: sums.prefill_context_tokens,
            windows: [WindowShape::empty(Window::Full); MAX_WINDOWS],
            num_windows: windows.len().min(MAX_WINDOWS),
        };
        for ((slot, window), sum) in shape.windows.iter_mut().zip(windows).zip(&sums.windows) {
            *slot = WindowShape {
                window: *window,
                decode_kv_tokens: sum.decode_kv_tokens,
                max_decode_kv_tokens: mean(sum.decode_kv_tokens, sums.num_decodes),
                prefill_pairs: sum.prefill_pairs as f64,
                prefill_kv_tokens: sum.prefill_kv_tokens,
            };
        }
        shape
    }

    /// Sums per kind of window, in the order in which they were asked for.
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

    /// `ONLY_FULL` keeps the common case, one full window, free of the loop over windows.
    fn sum<const ONLY_FULL: bool>(&mut self, requests: &[Request], max_model_len: u64) -> Result<()> {
        // Sums of up to 2³⁰ requests of 2³³ tokens fit; pairs are summed as integers so that order can't matter.
        let mut pairs = [0u128; MAX_WINDOWS];
        let mut squares = 0u128;
        let (mut tokens, mut sampled, mut decodes) = (0u64, 0u64, 0u64);
        let (mut decode_kv, mut longest_decode) = (0u64, 0u64);
        for (index, request) in requests.iter().enumerate() {
            let query = u64::from(request.num_scheduled_tokens);
            let computed = u64::from(request.num_computed_tokens);
            if query == 0 || query + computed > max_model_len {
                return Err(invalid_request(index, request, max_model_len));
            }
            tokens += query;
            sampled += u64::from(request.samples);
            if request.is_decode() {
                decodes += 1;
                if ONLY_FULL {
                    decode_kv += computed + 1;
                    longest_decode = longest_decode.max(computed + 1);
                } else {
                    self.add_decode(request);
                }
            } else {
                squares += u128::from(query) * u128::from(query);
                self.add_prefill(request, &mut pairs);
            }
        }
        self.num_tokens = tokens;
        self.num_sampled = sampled;
        self.num_decodes = decodes;
        self.prefill_squared_tokens = squares as f64;
        if ONLY_FULL {
            self.windows[0].decode_kv_tokens = decode_kv;
            self.windows[0].max_decode_kv_tokens = longest_decode;
        }
        for (slot, pairs) in self.windows.iter_mut().zip(pairs) {
            slot.prefill_pairs = pairs as f64;
        }
        Ok(())
    }

    fn add_decode(&mut self, request: &Request) {
        for slot in self.windows.iter_mut().take(self.num_windows) {
            let visible = visible_tokens(slot.window, 1, request.num_computed_tokens);
            slot.decode_kv_tokens += visible;
            slot.max_decode_kv_tokens = slot.max_decode_kv_tokens.max(visible);
        }
    }

    fn add_prefill(&mut self, request: &Request, pairs: &mut [u128; MAX_WINDOWS]) {
        let (query, computed) = (request.num_scheduled_tokens, request.num_computed_tokens);
        self.num_prefills += 1;
        self.prefill_tokens += u64::from(query);
        self.prefill_context_tokens += u64::from(computed);
        self.max_prefill_tokens = self.max_prefill_tokens.max(u64::from(query));
        for (slot, pairs) in self.windows.iter_mut().zip(pairs).take(self.num_windows) {
            *pairs += visible_pairs(slot.window, query, computed);
            slot.prefill_kv_tokens += visible_tokens(slot.window, query, computed);
        }
    }
}

#[cold]
fn too_many_windows(found: usize) -> Error {
    Error::invalid(
        "model",
        vec![format!("{found} kinds of attention window in one model; at most {MAX_WINDOWS} are supported")],
    )
}

#[cold]
fn invalid_request(index: usize, request: &Request, max_model_len: u64) -> Error {
    let (computed, scheduled) = (request.num_computed_tokens, request.num_scheduled_tokens);
    if scheduled == 0 {
        return Error::invalid_request(
            index,
            "num_scheduled_tokens",
            "0",
            "must be at least 1; leave requests that are not scheduled out of the batch",
        );
    }
    Error::invalid_request(
        index,
        "num_computed_tokens + num_scheduled_tokens",
        format!("{computed} + {scheduled} = {}", u64::from(computed) + u64::from(scheduled)),
        format!("is longer than max_model_len = {max_model_len}; shorten the request or raise max_model_len"),
    )
}

#[cfg(test)]
mod tests {
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
    fn the_fast_path_for_full_windows_gives_the_same_sums() {
        let batch = [Request::decode(9), Request::prefill(30, 5), Request::decode(70)];
        let one = BatchShape::new(&batch, &[Window::Full], 100).unwrap();
        let two = BatchShape::new(&batch, &BOTH, 100).unwrap();
        assert_eq!(one.windows()[0], two.windows()[1]);
    }

    #[test]
    fn an_empty_step_is_an_error() {
        assert!(
            matches!(BatchShape::new(&[], &BOTH, 10), Err(error) if error.kind() == crate::error::ErrorKind::EmptyStep)
        );
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
}
