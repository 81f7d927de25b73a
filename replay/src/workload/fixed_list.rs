//! A load of requests with known send times.

use std::sync::Arc;

use ridgepoint::Result;
use ridgepoint::input::check;

use super::limits::{self, MAX_STAGES, MAX_TIME_NS};
use super::summary::Summary;
use super::{Workload, WorkloadRequest};

/// A list of requests that are sent at their times, whether others are finished or not. Clones share the list.
#[derive(Debug, Clone)]
pub struct FixedList {
    requests: Arc<[WorkloadRequest]>,
    next: usize,
}

impl FixedList {
    /// Returns a load of these requests.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with all problems: no requests, arrivals that decrease or
    /// lie beyond 10⁹ s, a length is not from 1 to 10 million, a stage is not below 1,000, or the content of a request is longer than
    /// its prompt and its output.
    pub fn new(requests: Vec<WorkloadRequest>) -> Result<Self> {
        let mut problems = Vec::new();
        if requests.is_empty() {
            problems.push("there are no requests".to_owned());
        }
        let mut latest_ns = 0;
        for (index, request) in requests.iter().enumerate() {
            if request.arrival_ns < latest_ns || request.arrival_ns > MAX_TIME_NS {
                problems.push(format!(
                    "request {index}: arrival_ns = {} must be from {latest_ns}, when the one before it is sent, to {MAX_TIME_NS}",
                    request.arrival_ns
                ));
            }
            latest_ns = latest_ns.max(request.arrival_ns);
            check_request(&mut problems, &format!("request {index}"), request);
        }
        check("request list", problems)?;
        Ok(FixedList { requests: requests.into(), next: 0 })
    }

    /// Returns all requests, in order of arrival.
    pub fn requests(&self) -> &[WorkloadRequest] {
        &self.requests
    }

    /// Returns the summary of the list.
    pub fn summary(&self) -> Summary {
        Summary::of(self.requests.iter())
    }
}

/// Records lengths, a stage or a content that a request cannot have; problems begin with `name`.
pub(super) fn check_request(problems: &mut Vec<String>, name: &str, request: &WorkloadRequest) {
    let (prompt, output) = (request.num_prompt_tokens, request.num_output_tokens);
    for (key, tokens) in [("num_prompt_tokens", prompt), ("num_output_tokens", output)] {
        limits::check_tokens(problems, &format!("{name}: {key}"), tokens);
    }
    if request.stage >= MAX_STAGES {
        problems.push(format!("{name}: stage = {} must be below {MAX_STAGES}", request.stage));
    }
    let content: u64 = request.content.iter().flat_map(|c| c.iter()).map(|s| u64::from(s.num_tokens)).sum();
    let total = u64::from(prompt) + u64::from(output);
    if content > total {
        problems.push(format!("{name}: its content has {content} tokens, its prompt and output together {total}"));
    }
}

impl Workload for FixedList {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.requests.get(self.next).map(|request| request.arrival_ns)
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let request = self.requests.get(self.next)?.clone();
        self.next += 1;
        Some(request)
    }

    fn finished(&mut self, _now_ns: u64, _stage: u32, _request: u32) {}

    fn expected_requests(&self) -> Option<usize> {
        Some(self.requests.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Segment;
    use super::*;

    #[test]
    fn requests_come_in_order_and_again_from_a_clone() {
        let list = FixedList::new(vec![WorkloadRequest::new(5, 10, 1), WorkloadRequest::new(5, 20, 3)]).unwrap();
        let mut load = list.clone();
        assert_eq!((load.next_arrival_ns(), load.expected_requests()), (Some(5), Some(2)));
        assert_eq!(load.next_request(), Some(WorkloadRequest::new(5, 10, 1)));
        load.finished(6, 0, 0);
        assert_eq!(load.next_request().map(|r| r.num_prompt_tokens), Some(20));
        assert_eq!((load.next_arrival_ns(), load.next_request()), (None, None));
        assert_eq!(list.clone().next_request().map(|r| r.num_prompt_tokens), Some(10));
        assert_eq!(list.summary().max_total_tokens, 23);
    }

    #[test]
    fn every_problem_is_reported() {
        let mut odd = WorkloadRequest::new(3, 10, 0);
        odd.stage = 1000;
        odd.content = Some(Arc::from([Segment { id: 1, num_tokens: 9 }, Segment { id: 2, num_tokens: 2 }]));
        let error = FixedList::new(vec![WorkloadRequest::new(4, 10_000_001, 1), odd]).unwrap_err().to_string();
        for part in [
            "request 0: num_prompt_tokens = 10000001 must be from 1 to 10000000 tokens",
            "request 1: arrival_ns = 3 must be from 4",
            "request 1: num_output_tokens = 0 must be from 1",
            "request 1: stage = 1000 must be below 1000",
            "request 1: its content has 11 tokens, its prompt and output together 10",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert!(FixedList::new(Vec::new()).unwrap_err().to_string().contains("no requests"));
        let many = FixedList::new(vec![WorkloadRequest::new(0, 0, 0); 100]).unwrap_err().to_string();
        assert!(many.ends_with("and 180 more"), "{many}");
    }
}
