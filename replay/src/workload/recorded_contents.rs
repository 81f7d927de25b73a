//! A workload that records the contents of its prompts, for exports that list shared prefixes.

use super::{Content, Workload, WorkloadRequest};

/// A workload that records the contents of the prompts that it sends.
pub struct RecordedContents<'a> {
    workload: &'a mut dyn Workload,
    /// The [`content`](WorkloadRequest::content) of every request that was sent, in order; empty if contents are not kept.
    pub contents: Vec<Option<Content>>,
    has_contents: bool,
}

impl<'a> RecordedContents<'a> {
    /// Sends the requests of `workload`, and keeps their contents if `has_contents`.
    pub fn of(workload: &'a mut dyn Workload, has_contents: bool) -> Self {
        RecordedContents { workload, contents: Vec::new(), has_contents }
    }

    /// Drops what is kept of the first requests, which were sent but have no records, as those before a server is added.
    pub fn leave_out(&mut self, num_requests: u64) {
        let num_requests = usize::try_from(num_requests).unwrap_or(usize::MAX);
        self.contents.drain(..num_requests.min(self.contents.len()));
    }
}

impl Workload for RecordedContents<'_> {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.workload.next_arrival_ns()
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let request = self.workload.next_request()?;
        if self.has_contents {
            self.contents.push(request.content.clone());
        }
        Some(request)
    }

    fn finished(&mut self, now_ns: u64, stage: u32, request: u32) {
        self.workload.finished(now_ns, stage, request);
    }

    fn expected_requests(&self) -> Option<usize> {
        self.workload.expected_requests()
    }
}
