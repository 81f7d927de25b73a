//! Captured requests as the closed loop that they were: each waits for the end of another, not for its captured time.
//!
//! At captured times, a predicted step that is 10 % too long lets requests pile up, which no closed loop does: its client sends later.

use ridgepoint::Result;
use ridgepoint::workload::{ClosedLoop, FixedList, RequestShape, Workload, WorkloadRequest};

/// The requests of a list in their order, a fixed number of them in flight.
#[derive(Debug, Clone)]
pub(super) struct InFlight {
    times: ClosedLoop,
    requests: FixedList,
}

impl InFlight {
    /// Returns the requests of `list` with `max_concurrency` of them in flight.
    ///
    /// # Errors
    /// Those of [`ClosedLoop::new`].
    pub(super) fn new(max_concurrency: u32, list: FixedList) -> Result<Self> {
        let number = list.requests().len() as u64;
        // Lengths are those of the list.
        Ok(InFlight { times: ClosedLoop::new(max_concurrency, number, RequestShape::new(1, 1))?, requests: list })
    }
}

impl Workload for InFlight {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.times.next_arrival_ns()
    }
    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let sent = self.times.next_request()?;
        let captured = self.requests.next_request()?;
        Some(WorkloadRequest { arrival_ns: sent.arrival_ns, ..captured })
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

    #[test]
    fn captured_requests_wait_for_others_to_end_and_keep_their_lengths() {
        let captured = [(0, 10), (0, 20), (7, 30), (9, 40)];
        let list = captured.map(|(at_ns, tokens)| WorkloadRequest::new(at_ns, tokens, tokens / 10));
        let mut load = InFlight::new(2, FixedList::new(list.to_vec()).unwrap()).unwrap();
        let mut next = || load.next_request().map(|of| (of.arrival_ns, of.num_prompt_tokens, of.num_output_tokens));
        assert_eq!([next(), next(), next()], [Some((0, 10, 1)), Some((0, 20, 2)), None]);
        load.finished(50, 0, 0);
        load.finished(60, 0, 0);
        assert_eq!((load.next_arrival_ns(), load.expected_requests()), (Some(50), Some(4)));
        let mut next = || load.next_request().map(|of| (of.arrival_ns, of.num_prompt_tokens, of.num_output_tokens));
        assert_eq!([next(), next(), next()], [Some((50, 30, 3)), Some((60, 40, 4)), None]);
        assert!(InFlight::new(0, FixedList::new(list.to_vec()).unwrap()).is_err());
    }
}
