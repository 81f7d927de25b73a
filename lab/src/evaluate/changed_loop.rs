//! Closed loops whose requests are others than the equal ones of a [`ClosedLoop`]: a little different in length, or captured.
//!
//! Requests of equal length run in lockstep: those that are prefilled together finish together, and their successors queue behind each
//! other in every round. Measured servers do not behave so, because lengths and clients vary.
//!
//! Where steps are predicted too long, requests sent at their captured times pile up. A client that keeps a fixed number in flight would
//! send them later.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length, changed by a small share")]

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use ridgepoint::Result;
use ridgepoint_replay::workload::{ClosedLoop, FixedList, RequestShape, Workload, WorkloadRequest};

/// Lengths are drawn evenly from this share below the row's to this share above. Assumed: enough that rounds dissolve, and the
/// mean stays the row's.
const SPREAD: f64 = 0.1;

/// A closed loop that sends another request in place of each, at its time.
struct ChangedLoop<F> {
    times: ClosedLoop,
    change: F,
}

/// Returns a closed loop with the length of each request varied.
pub(super) fn varying(equal: ClosedLoop, seed: u64) -> impl Workload + Send {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut varied = move |tokens: u32| {
        let factor = rng.random_range(1.0 - SPREAD..=1.0 + SPREAD);
        ((f64::from(tokens) * factor).round() as u32).max(1)
    };
    let change = move |mut request: WorkloadRequest| {
        request.num_prompt_tokens = varied(request.num_prompt_tokens);
        request.num_output_tokens = varied(request.num_output_tokens);
        Some(request)
    };
    ChangedLoop { times: equal, change }
}

/// Returns the requests of `list` in their order, with `max_concurrency` of them in flight: each waits for the end of another, not for
/// its captured time.
///
/// # Errors
/// Those of [`ClosedLoop::new`].
pub(super) fn in_flight(max_concurrency: u32, mut list: FixedList) -> Result<impl Workload> {
    let number = list.requests().len() as u64;
    // Lengths are those of the list.
    let times = ClosedLoop::new(max_concurrency, number, RequestShape::new(1, 1))?;
    let change = move |sent: WorkloadRequest| {
        list.next_request().map(|captured| WorkloadRequest { arrival_ns: sent.arrival_ns, ..captured })
    };
    Ok(ChangedLoop { times, change })
}

/// The most tokens that a length can be varied to.
pub(super) fn longest(tokens: u32) -> u32 {
    (f64::from(tokens) * (1.0 + SPREAD)).ceil() as u32
}

impl<F: FnMut(WorkloadRequest) -> Option<WorkloadRequest>> Workload for ChangedLoop<F> {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.times.next_arrival_ns()
    }
    fn next_request(&mut self) -> Option<WorkloadRequest> {
        self.times.next_request().and_then(&mut self.change)
    }
    fn finished(&mut self, now_ns: u64, stage: u32, request: u32) {
        self.times.finished(now_ns, stage, request);
    }
    fn expected_requests(&self) -> Option<usize> {
        self.times.expected_requests()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(concurrency: u32, num_requests: u64, isl: u32, osl: u32, seed: u64) -> impl Workload {
        let equal = ClosedLoop::new(concurrency, num_requests, RequestShape::new(isl, osl)).expect("a closed loop");
        varying(equal, seed)
    }

    fn lengths(seed: u64) -> Vec<(u32, u32)> {
        let mut load = about(1000, 1000, 1024, 2, seed);
        std::iter::from_fn(|| load.next_request()).map(|r| (r.num_prompt_tokens, r.num_output_tokens)).collect()
    }

    #[test]
    fn lengths_stay_near_the_rows_and_keep_their_mean() {
        let drawn = lengths(1);
        assert_eq!(drawn.len(), 1000);
        // 1024 ± 102.4, rounded; outputs of 1.8 to 2.2 tokens are 2.
        assert!(drawn.iter().all(|(isl, osl)| (922..=longest(1024)).contains(isl) && *osl == 2), "{drawn:?}");
        assert_eq!(longest(1024), 1127);
        let mean = drawn.iter().map(|(isl, _)| f64::from(*isl)).sum::<f64>() / 1000.0;
        // The spread of a uniform draw is 204.8 / √12 = 59, that of the mean of a thousand 1.9.
        assert!((mean - 1024.0).abs() < 8.0, "{mean}");
        assert_eq!(lengths(1), drawn);
        assert_ne!(lengths(2), drawn);
    }

    #[test]
    fn so_many_are_in_flight_and_no_more() {
        let mut load = about(2, 3, 10, 10, 0);
        assert_eq!(std::iter::from_fn(|| load.next_request()).count(), 2);
        load.finished(50, 0, 0);
        assert_eq!(load.next_request().map(|request| request.arrival_ns), Some(50));
        load.finished(60, 0, 0);
        assert_eq!((load.next_arrival_ns(), load.expected_requests()), (None, Some(3)));
    }

    #[test]
    fn captured_requests_wait_for_others_to_end_and_keep_their_lengths() {
        let captured = [(0, 10), (0, 20), (7, 30), (9, 40)];
        let list = captured.map(|(at_ns, tokens)| WorkloadRequest::new(at_ns, tokens, tokens / 10));
        let mut load = in_flight(2, FixedList::new(list.to_vec()).unwrap()).unwrap();
        let mut next = || load.next_request().map(|of| (of.arrival_ns, of.num_prompt_tokens, of.num_output_tokens));
        assert_eq!([next(), next(), next()], [Some((0, 10, 1)), Some((0, 20, 2)), None]);
        load.finished(50, 0, 0);
        load.finished(60, 0, 0);
        assert_eq!((load.next_arrival_ns(), load.expected_requests()), (Some(50), Some(4)));
        let mut next = || load.next_request().map(|of| (of.arrival_ns, of.num_prompt_tokens, of.num_output_tokens));
        assert_eq!([next(), next(), next()], [Some((50, 30, 3)), Some((60, 40, 4)), None]);
        assert!(in_flight(0, FixedList::new(list.to_vec()).unwrap()).is_err());
    }
}
