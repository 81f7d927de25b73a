//! Closed loops whose requests are others than the equal ones of a [`ClosedLoop`]: with the lengths that a client draws, or captured.
//!
//! Requests of equal length run in lockstep: those that are prefilled together finish together, and their successors queue behind each
//! other in every round. Servers that are measured with equal lengths behave so, too, SGLang's above all.
//!
//! Where steps are predicted too long, requests sent at their captured times pile up. A client that keeps a fixed number in flight would
//! send them later.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length, changed by a small share")]

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use ridgepoint::Result;
use ridgepoint_replay::workload::{ClosedLoop, FixedList, RequestShape, Workload, WorkloadRequest};

/// Lengths of InferenceX's client: whole numbers drawn evenly from this share of the nominal length up to it.
///
/// # Source
/// `utils/bench_serving/benchmark_serving.py` of InferenceX at 843c6254, whose scripts pass `--random-range-ratio 0.8`.
const LEAST_SHARE: f64 = 0.8;
/// Nominal prompts and outputs of its scenarios.
const INFERENCEX: [(u32, u32); 3] = [(1024, 1024), (1024, 8192), (8192, 1024)];

/// Time of one event loop that each request takes at the client, µs: InferenceX's client is one process, as is
/// vLLM's, from which it descends. A run begins with as many requests at once as are in flight.
///
/// # Source
/// Identified on open rows, to the nearest of 2, 4, 6 and 9 ms with the server's part: with 6 ms the TTFT of vLLM's closed loops on B200 has a median error of 17 %,
/// with none 29 %; on H100 both 3 and 6 ms have 8 to 15 % for each of three models.
const INFERENCEX_US: f64 = 5000.0;
/// The same of other tools.
///
/// # Source
/// Identified as [`INFERENCEX_US`]: with 2 ms the TTFT of SGLang's and TensorRT-LLM's rows on H100 has the smallest median error.
const OTHER_US: f64 = 1000.0;

/// A client that benchmarks at a number of requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopClient {
    /// InferenceX's: one event loop, and lengths of up to a fifth less than nominal.
    InferenceX,
    /// Any other tool: all requests have the nominal lengths.
    Other,
}

impl LoopClient {
    /// The client whose scenario these lengths are: those of other runs are of tools that send them as they are.
    pub fn by_scenario(isl: u32, osl: u32) -> Self {
        if INFERENCEX.contains(&(isl, osl)) { LoopClient::InferenceX } else { LoopClient::Other }
    }

    /// Time of an event loop that a request takes, µs.
    pub fn request_us(self) -> f64 {
        match self {
            LoopClient::InferenceX => INFERENCEX_US,
            LoopClient::Other => OTHER_US,
        }
    }
}

/// A closed loop that sends another request in place of each, at its time.
struct ChangedLoop<F> {
    times: ClosedLoop,
    change: F,
}

/// Returns a closed loop with the lengths that a client draws.
pub(super) fn varying(nominal: ClosedLoop, client: LoopClient, seed: u64) -> impl Workload + Send {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut varied = move |tokens: u32| match client {
        LoopClient::Other => tokens,
        LoopClient::InferenceX => {
            let least = (f64::from(tokens) * LEAST_SHARE).floor() as u32;
            rng.random_range(least.max(1)..=tokens)
        }
    };
    let change = move |mut request: WorkloadRequest| {
        request.num_prompt_tokens = varied(request.num_prompt_tokens);
        request.num_output_tokens = varied(request.num_output_tokens);
        Some(request)
    };
    ChangedLoop { times: nominal, change }
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

    fn about(concurrency: u32, num_requests: u64, client: LoopClient, seed: u64) -> impl Workload {
        let equal = ClosedLoop::new(concurrency, num_requests, RequestShape::new(1024, 2)).expect("a closed loop");
        varying(equal, client, seed)
    }

    fn lengths(client: LoopClient, seed: u64) -> Vec<(u32, u32)> {
        let mut load = about(1000, 1000, client, seed);
        std::iter::from_fn(|| load.next_request()).map(|r| (r.num_prompt_tokens, r.num_output_tokens)).collect()
    }

    #[test]
    fn lengths_are_those_that_the_client_draws() {
        let drawn = lengths(LoopClient::InferenceX, 1);
        assert_eq!(drawn.len(), 1000);
        // 0.8 · 1024 is 819.2; outputs of 1.6 to 2 tokens are 1 or 2.
        assert!(drawn.iter().all(|(isl, osl)| (819..=1024).contains(isl) && (1..=2).contains(osl)), "{drawn:?}");
        let mean = drawn.iter().map(|(isl, _)| f64::from(*isl)).sum::<f64>() / 1000.0;
        // The mean of 819 to 1,024 is 921.5; the spread of a draw is 205 / √12 = 59, that of the mean of a thousand 1.9.
        assert!((mean - 921.5).abs() < 8.0, "{mean}");
        assert_eq!(lengths(LoopClient::InferenceX, 1), drawn);
        assert_ne!(lengths(LoopClient::InferenceX, 2), drawn);
        assert!(lengths(LoopClient::Other, 1).iter().all(|lengths| *lengths == (1024, 2)));
        assert_eq!(LoopClient::by_scenario(8192, 1024), LoopClient::InferenceX);
        assert_eq!(LoopClient::by_scenario(4096, 1024), LoopClient::Other);
    }

    #[test]
    fn so_many_are_in_flight_and_no_more() {
        let mut load = about(2, 3, LoopClient::Other, 0);
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
