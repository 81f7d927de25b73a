//! A batch reduced to the few sums that operators depend on. They are integers, so that requests can be added and removed in
//! any order with the same result.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::input::MAX_PROBLEMS;
use crate::model::Window;
use crate::request::Request;

use super::window::{visible_pairs, visible_tokens};

/// Most kinds of window that one model may mix; known models mix two.
pub const MAX_WINDOWS: usize = 4;

/// Sums over the requests of a batch, on which a step's work depends. Up to 2³⁰ requests of 2³³ tokens fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchSums {
    /// Scheduled tokens: T.
    pub num_tokens: u64,
    /// Sampled tokens: one of each request that samples, and one behind each draft. S.
    pub num_sampled: u64,
    /// Requests with one scheduled token, and its drafts, on top of a cache.
    pub num_decodes: u64,
    /// Drafts that decodes verify.
    #[serde(skip_serializing_if = "crate::units::is_zero")]
    pub num_draft_tokens: u64,
    /// All others: prefill chunks.
    pub num_prefills: u64,
    /// Scheduled tokens of the chunks.
    pub prefill_tokens: u64,
    /// Tokens in the cache before the step, of the chunks.
    pub prefill_context_tokens: u64,
    /// Squares of the chunks' scheduled tokens.
    #[serde(skip)]
    pub prefill_squared_tokens: u128,
    /// Sums per kind of window, in the order of the plan's.
    #[serde(skip)]
    pub windows: [WindowSums; MAX_WINDOWS],
}

/// Sums that attention under one kind of window depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowSums {
    /// Keys that decodes see, their own included.
    pub decode_kv_tokens: u64,
    /// Of these, the keys that the drafts of a decode see again: all but those of its last token.
    pub draft_kv_tokens: u64,
    /// Keys that chunks read at least once.
    pub prefill_kv_tokens: u64,
    /// Visible (query, key) pairs per head of chunks.
    pub prefill_pairs: u128,
}

impl BatchSums {
    /// Sums `requests` for a model with these kinds of window.
    ///
    /// ```
    /// use ridgepoint::Request;
    /// use ridgepoint::model::Window;
    /// use ridgepoint::physics::BatchSums;
    /// let batch = [Request::decode(99), Request::prefill(10, 0)];
    /// let sums = BatchSums::new(&batch, &[Window::Full], 4096)?;
    /// assert_eq!((sums.num_tokens, sums.num_decodes, sums.num_prefills), (11, 1, 1));
    /// assert_eq!((sums.windows[0].decode_kv_tokens, sums.windows[0].prefill_pairs), (100, 55));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::EmptyStep`](crate::ErrorKind) without requests; [`ErrorKind::InvalidRequest`](crate::ErrorKind) with every
    /// request that schedules nothing or outgrows `max_model_len`.
    pub fn new(requests: &[Request], windows: &[Window], max_model_len: u64) -> Result<Self> {
        if requests.is_empty() {
            return Err(Error::empty_step());
        }
        let mut sums = BatchSums::default();
        let (mut culprits, mut problems) = (0, Vec::new());
        for (index, request) in requests.iter().enumerate() {
            let (query, computed) = (request.num_scheduled_tokens, request.num_computed_tokens);
            if query > 0 && u64::from(query) + u64::from(computed) <= max_model_len {
                sums.add_request(request, windows);
                continue;
            }
            if problems.len() < MAX_PROBLEMS {
                problems.push((index, problem(request, max_model_len)));
            }
            culprits += 1;
        }
        if culprits > 0 {
            let error = Error::invalid_requests(&problems);
            let more = culprits - problems.len();
            return Err(if more == 0 { error } else { error.and(format!("and {more} more")) });
        }
        Ok(sums)
    }

    /// Rows of decodes: one for each, and one for each draft.
    #[inline(always)]
    pub fn decode_rows(&self) -> u64 {
        self.num_decodes + self.num_draft_tokens
    }

    /// Requests in the batch.
    pub fn num_requests(&self) -> u64 {
        self.num_decodes + self.num_prefills
    }

    /// True where every request is a decode.
    pub fn is_decode_only(&self) -> bool {
        self.num_prefills == 0
    }

    /// The sums of one request; all 0 where it schedules nothing.
    pub fn of(request: &Request, windows: &[Window]) -> Self {
        BatchSums::unchecked(std::slice::from_ref(request), windows)
    }

    /// [`Self::new`] of requests that no scheduler would put into a step: those that schedule nothing are ignored.
    pub fn unchecked(requests: &[Request], windows: &[Window]) -> Self {
        let mut sums = BatchSums::default();
        requests.iter().for_each(|request| sums.add_request(request, windows));
        sums
    }

    /// Adds a request; nothing where it schedules nothing.
    #[inline(always)]
    pub fn add_request(&mut self, request: &Request, windows: &[Window]) {
        let (query, computed) = (request.num_scheduled_tokens, request.num_computed_tokens);
        if query == 0 {
            return;
        }
        self.num_tokens += u64::from(query);
        self.num_sampled += u64::from(request.samples);
        let is_decode = request.is_decode();
        if request.num_draft_tokens > 0 {
            self.add_drafts(request, windows);
        }
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
            if is_decode && query == 1 {
                sum.decode_kv_tokens += seen;
            } else if !is_decode {
                sum.prefill_kv_tokens += seen;
                sum.prefill_pairs += visible_pairs(*window, query, computed);
            }
        }
    }

    /// Adds what drafts add to a request: their samples, and to a decode the keys that each of its tokens sees.
    #[cold]
    fn add_drafts(&mut self, request: &Request, windows: &[Window]) {
        let (query, computed) = (request.num_scheduled_tokens, request.num_computed_tokens);
        if request.samples {
            self.num_sampled += u64::from(request.num_draft_tokens);
        }
        if !request.is_decode() {
            return;
        }
        self.num_draft_tokens += u64::from(request.num_draft_tokens);
        for (sum, window) in self.windows.iter_mut().zip(windows) {
            let last = visible_tokens(*window, 1, computed.saturating_add(query - 1));
            let earlier: u64 = (0..query - 1).map(|at| visible_tokens(*window, 1, computed.saturating_add(at))).sum();
            sum.decode_kv_tokens += last + earlier;
            sum.draft_kv_tokens += earlier;
        }
    }

    /// Removes requests that were added before.
    pub fn remove(&mut self, other: &BatchSums) {
        let pairs = [
            (&mut self.num_tokens, other.num_tokens),
            (&mut self.num_sampled, other.num_sampled),
            (&mut self.num_decodes, other.num_decodes),
            (&mut self.num_draft_tokens, other.num_draft_tokens),
            (&mut self.num_prefills, other.num_prefills),
            (&mut self.prefill_tokens, other.prefill_tokens),
            (&mut self.prefill_context_tokens, other.prefill_context_tokens),
        ];
        for (mine, theirs) in pairs {
            *mine = mine.wrapping_sub(theirs);
        }
        self.prefill_squared_tokens = self.prefill_squared_tokens.wrapping_sub(other.prefill_squared_tokens);
        for (mine, theirs) in self.windows.iter_mut().zip(&other.windows) {
            mine.decode_kv_tokens = mine.decode_kv_tokens.wrapping_sub(theirs.decode_kv_tokens);
            mine.draft_kv_tokens = mine.draft_kv_tokens.wrapping_sub(theirs.draft_kv_tokens);
            mine.prefill_kv_tokens = mine.prefill_kv_tokens.wrapping_sub(theirs.prefill_kv_tokens);
            mine.prefill_pairs = mine.prefill_pairs.wrapping_sub(theirs.prefill_pairs);
        }
    }
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
        let sums = BatchSums::new(&batch, &BOTH, 100).unwrap();
        assert_eq!((sums.num_tokens, sums.num_sampled), (6, 3));
        assert_eq!((sums.num_decodes, sums.num_prefills, sums.num_requests()), (2, 2, 4));
        assert_eq!((sums.prefill_tokens, sums.prefill_context_tokens), (4, 5));
        assert_eq!(sums.prefill_squared_tokens, 3 * 3 + 1);
        let [sliding, full, ..] = sums.windows;
        assert_eq!((sliding.decode_kv_tokens, full.decode_kv_tokens), (4 + 2, 10 + 2));
        assert_eq!((sliding.prefill_pairs, sliding.prefill_kv_tokens), (12 + 1, 6 + 1));
        assert_eq!((full.prefill_pairs, full.prefill_kv_tokens), (6 + 7 + 8 + 1, 8 + 1));
    }

    #[test]
    fn an_empty_step_is_an_error() {
        let error = BatchSums::new(&[], &BOTH, 10).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::EmptyStep);
    }

    #[test]
    fn the_request_at_fault_is_named() {
        let batch = [Request::decode(4), Request::prefill(0, 4)];
        let message = BatchSums::new(&batch, &BOTH, 10).unwrap_err().to_string();
        assert!(message.starts_with("request 1: num_scheduled_tokens = 0 must be at least 1"), "{message}");
        let batch = [Request::prefill(7, 4)];
        let message = BatchSums::new(&batch, &BOTH, 10).unwrap_err().to_string();
        assert!(message.contains("4 + 7 = 11") && message.contains("max_model_len = 10"), "{message}");
        assert!(BatchSums::new(&[Request::prefill(6, 4)], &BOTH, 10).is_ok());
    }

    #[test]
    fn a_million_longest_requests_do_not_overflow() {
        let batch = vec![Request::prefill(u32::MAX, u32::MAX); 1_000_000];
        let windows = [Window::Full, Window::Sliding(128), Window::Chunked(8192)];
        let sums = BatchSums::new(&batch, &windows, u64::MAX).unwrap();
        assert_eq!(sums.num_tokens, 1_000_000 * u64::from(u32::MAX));
        let n = f64::from(u32::MAX);
        assert!((sums.windows[0].prefill_pairs as f64 / (1e6 * 1.5 * n * n) - 1.0).abs() < 1e-9);
    }

    const WINDOWS: [Window; 3] = [Window::Full, Window::Sliding(100), Window::Chunked(64)];

    fn requests() -> impl Strategy<Value = Vec<Request>> {
        let request = (0u32..3000, 1u32..600, any::<bool>(), any::<bool>())
            .prop_map(|(computed, chunk, samples, one)| Request::new(computed, if one { 1 } else { chunk }, samples));
        proptest::collection::vec(request, 1..40)
    }

    fn sums(requests: &[Request]) -> BatchSums {
        let mut sums = BatchSums::default();
        requests.iter().for_each(|request| sums.add_request(request, &WINDOWS));
        sums
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_batch(requests in requests()) {
            prop_assert_eq!(BatchSums::new(&requests, &WINDOWS, u64::MAX).unwrap(), sums(&requests));
        }

        #[test]
        fn what_was_added_can_be_taken_away(kept in requests(), gone in requests()) {
            let mut both = sums(&kept);
            gone.iter().for_each(|request| both.add_request(request, &WINDOWS));
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
