//! A workload that keeps what its prompts begin with, for files that say which prompts begin alike.

use super::{Content, Workload, WorkloadRequest};

/// A workload that records the contents of the prompts that it sends.
pub struct KeptContents<'a> {
    workload: &'a mut dyn Workload,
    /// The [`content`](WorkloadRequest::content) of every request that was sent, in order; empty if contents are not kept.
    pub contents: Vec<Option<Content>>,
    are_kept: bool,
}

impl<'a> KeptContents<'a> {
    /// Sends the requests of `workload`, and keeps their contents if `are_kept`.
    pub fn of(workload: &'a mut dyn Workload, are_kept: bool) -> Self {
        KeptContents { workload, contents: Vec::new(), are_kept }
    }
}

impl Workload for KeptContents<'_> {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.workload.next_arrival_ns()
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let request = self.workload.next_request()?;
        if self.are_kept {
            self.contents.push(request.content.clone());
        }
        Some(request)
    }

    fn finished(&mut self, now_ns: u64, stage: u32) {
        self.workload.finished(now_ns, stage);
    }

    fn expected_requests(&self) -> Option<usize> {
        self.workload.expected_requests()
    }
}
