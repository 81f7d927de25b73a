//! A closed loop whose requests differ a little in length. Uses `workload`.
//!
//! With equal lengths, requests that were prefilled in one step finish in one step for ever after, and their successors queue
//! behind each other in every round: servers under a benchmark do not behave so, as lengths and clients vary.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length, changed by a small share")]

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use ridgepoint::workload::{ClosedLoop, Workload, WorkloadRequest};

/// Lengths are drawn evenly from this share below the row's to this share above. Assumed: enough that rounds dissolve, and the
/// mean stays the row's.
pub(super) const SPREAD: f64 = 0.1;

/// A closed loop with the length of each request varied.
#[derive(Debug, Clone)]
pub(super) struct VaryingLoop {
    equal: ClosedLoop,
    rng: Pcg64,
}

impl VaryingLoop {
    pub(super) fn new(equal: ClosedLoop, seed: u64) -> Self {
        VaryingLoop { equal, rng: Pcg64::seed_from_u64(seed) }
    }

    fn varied(&mut self, tokens: u32) -> u32 {
        let factor = self.rng.random_range(1.0 - SPREAD..=1.0 + SPREAD);
        ((f64::from(tokens) * factor).round() as u32).max(1)
    }
}

/// The most tokens that a length can be varied to.
pub(super) fn longest(tokens: u32) -> u32 {
    (f64::from(tokens) * (1.0 + SPREAD)).ceil() as u32
}

impl Workload for VaryingLoop {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.equal.next_arrival_ns()
    }
    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let mut request = self.equal.next_request()?;
        request.num_prompt_tokens = self.varied(request.num_prompt_tokens);
        request.num_output_tokens = self.varied(request.num_output_tokens);
        Some(request)
    }
    fn finished(&mut self, now_ns: u64, stage: u32, request: u32) {
        self.equal.finished(now_ns, stage, request);
    }
    fn expected_requests(&self) -> Option<usize> {
        self.equal.expected_requests()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::workload::RequestShape;

    fn varying(concurrency: u32, num_requests: u64, isl: u32, osl: u32, seed: u64) -> VaryingLoop {
        let equal = ClosedLoop::new(concurrency, num_requests, RequestShape::new(isl, osl)).expect("a closed loop");
        VaryingLoop::new(equal, seed)
    }

    fn lengths(seed: u64) -> Vec<(u32, u32)> {
        let mut load = varying(1000, 1000, 1024, 2, seed);
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
        let mut load = varying(2, 3, 10, 10, 0);
        assert_eq!(std::iter::from_fn(|| load.next_request()).count(), 2);
        load.finished(50, 0, 0);
        assert_eq!(load.next_request().map(|request| request.arrival_ns), Some(50));
        load.finished(60, 0, 0);
        assert_eq!((load.next_arrival_ns(), load.expected_requests()), (None, Some(3)));
    }
}
