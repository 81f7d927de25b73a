//! A workload that keeps what its prompts begin with, for files that say which prompts begin alike.

use super::{Content, Workload, WorkloadRequest};

/// A workload, and the contents of the prompts that it has sent.
pub struct KeptContents<'a> {
    workload: &'a mut dyn Workload,
    /// The beginnings of prompts that others may share, in the order in which they were sent.
    pub contents: Vec<Option<Content>>,
}

impl<'a> KeptContents<'a> {
    /// Sends the requests of another workload.
    pub fn of(workload: &'a mut dyn Workload) -> Self {
        KeptContents { workload, contents: Vec::new() }
    }
}

impl Workload for KeptContents<'_> {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.workload.next_arrival_ns()
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let request = self.workload.next_request()?;
        self.contents.push(request.content.clone());
        Some(request)
    }

    fn finished(&mut self, now_ns: u64, stage: u32) {
        self.workload.finished(now_ns, stage);
    }

    fn expected_requests(&self) -> Option<usize> {
        self.workload.expected_requests()
    }
}
