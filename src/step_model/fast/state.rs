//! A step's requests as sums that an event loop keeps up to date. Uses `physics`, `request`.

use crate::model::Window;
use crate::physics::{BatchSums, MAX_WINDOWS};
use crate::request::Request;

/// The requests of a step as sums. Adding or removing a request takes constant time.
///
/// [`StepModel::state`](crate::StepModel::state) makes an empty one, for that model alone. The same requests give the same time to
/// the last bit, whatever happened to the state before.
///
/// ```
/// use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};
///
/// let steps = StepModel::new(&Model::find("llama-3.1-8b")?, &Hardware::find("h100")?, &Deployment::default())?;
/// let mut state = steps.state();
/// let mut requests = vec![Request::decode(900), Request::prefill(512, 0)];
/// requests.iter().for_each(|request| state.add(request));
/// assert_eq!(steps.step_time_us(&state), steps.step_time_us(&requests));
///
/// // The step is over, and both requests decode next.
/// requests.iter_mut().for_each(|request| state.advance(request));
/// assert_eq!(requests, [Request::decode(901), Request::decode(512)]);
/// assert_eq!(steps.step_time_us(&state), steps.step_time_us(&requests));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepState {
    windows: [Window; MAX_WINDOWS],
    num_windows: usize,
    sums: BatchSums,
}

impl StepState {
    pub(super) fn new(of: &[Window]) -> Self {
        let mut windows = [Window::Full; MAX_WINDOWS];
        windows.iter_mut().zip(of).for_each(|(slot, window)| *slot = *window);
        StepState { windows, num_windows: of.len().min(MAX_WINDOWS), sums: BatchSums::default() }
    }

    pub(super) fn sums(&self) -> &BatchSums {
        &self.sums
    }

    fn windows(&self) -> &[Window] {
        self.windows.get(..self.num_windows).unwrap_or_default()
    }

    /// Adds a request; one that schedules nothing changes nothing.
    pub fn add(&mut self, request: &Request) {
        let windows = self.windows.get(..self.num_windows).unwrap_or_default();
        self.sums.add_request(request, windows);
    }

    /// Removes a request that was added. Removing any other request leaves a state that means nothing.
    pub fn remove(&mut self, request: &Request) {
        self.sums.remove(&BatchSums::of(request, self.windows()));
    }

    /// Replaces a request that was added by `next`.
    pub fn replace(&mut self, request: &Request, next: &Request) {
        self.remove(request);
        self.add(next);
    }

    /// Replaces `request`, which was added, by the decode that follows its step, here and in the caller's hands.
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
}
