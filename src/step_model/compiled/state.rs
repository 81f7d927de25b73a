//! A batch that changes little from step to step, as its sums: what event loops keep instead of a list. Uses `physics`,
//! `request`.

use super::pass::Decodes;
use crate::model::Window;
use crate::physics::{BatchSums, MAX_WINDOWS};
use crate::request::Request;

/// The requests of a step as sums, to which requests are added, and from which they are taken, in constant time.
///
/// Made by [`StepModel::state`](crate::StepModel::state) for one model, and asked of that model alone. The same requests give
/// the same time to the last bit, whatever happened before and whichever way they are handed over.
///
/// ```
/// use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};
///
/// let steps = StepModel::new(&Model::find("llama-3.1-8b")?, &Hardware::find("h100")?, &Deployment::default())?;
/// let mut state = steps.state();
/// let mut requests = vec![Request::decode(900), Request::prefill(512, 0)];
/// requests.iter().for_each(|request| state.add(request));
/// assert_eq!(steps.step_time_us_of_state(&state), steps.step_time_us(&requests));
///
/// // The step is over: both decode next.
/// requests.iter_mut().for_each(|request| state.advance(request));
/// assert_eq!(requests, [Request::decode(901), Request::decode(512)]);
/// assert_eq!(steps.step_time_us_of_state(&state), steps.step_time_us(&requests));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepState {
    windows: [Window; MAX_WINDOWS],
    num_windows: usize,
    sums: BatchSums,
}

impl StepState {
    pub(in crate::step_model) fn new(of: &[Window]) -> Self {
        let mut windows = [Window::Full; MAX_WINDOWS];
        windows.iter_mut().zip(of).for_each(|(slot, window)| *slot = *window);
        StepState { windows, num_windows: of.len().min(MAX_WINDOWS), sums: BatchSums::default() }
    }

    /// Adds a request to the step; one that schedules nothing changes nothing.
    pub fn add(&mut self, request: &Request) {
        let windows = &self.windows[..self.num_windows];
        self.sums.add_request(request, windows);
    }

    /// Takes a request out of the step, as it was added. The state is meaningless after taking what was not there.
    pub fn remove(&mut self, request: &Request) {
        self.sums.remove(&BatchSums::of(request, &self.windows[..self.num_windows]));
    }

    /// Puts `next` in the place of a request that was added.
    pub fn replace(&mut self, request: &Request, next: &Request) {
        self.remove(request);
        self.add(next);
    }

    /// The step is over for `request`, which was added: it becomes the decode that follows, here and in the caller's hands.
    pub fn advance(&mut self, request: &mut Request) {
        let computed = request.num_computed_tokens.saturating_add(request.num_scheduled_tokens);
        let next = Request::decode(computed);
        self.replace(request, &next);
        *request = next;
    }

    /// Requests in the step.
    pub fn num_requests(&self) -> u64 {
        self.sums.num_decodes + self.sums.num_prefills
    }

    /// Tokens scheduled in the step.
    pub fn num_tokens(&self) -> u64 {
        self.sums.num_tokens
    }

    /// The state as a pass over its requests would have found it: decodes, and what chunks there are.
    ///
    /// Which requests sample is no longer known, and does not matter: the two parts are added up again.
    pub(in crate::step_model) fn passed(&self, chunks: &mut Option<BatchSums>) -> Decodes {
        let sums = &self.sums;
        if sums.num_prefills > 0 {
            let num_tokens = sums.num_tokens - sums.num_decodes;
            *chunks = Some(BatchSums { num_tokens, num_sampled: 0, num_decodes: 0, ..*sums });
        }
        let kv_tokens = sums.windows.map(|window| window.decode_kv_tokens);
        Decodes { num_requests: sums.num_decodes, num_sampled: sums.num_sampled, kv_tokens }
    }
}
