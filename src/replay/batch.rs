//! A scheduled step that has not ended yet.

use crate::request::Request;

/// A step: steady decodes as counts, every other request by itself.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Requests other than steady decodes. In the step they follow the steady ones.
    pub(super) requests: Vec<Request>,
    pub(super) slots: Vec<u32>,
    pub(super) records: Vec<u32>,
    /// Records of the preempted requests.
    pub(super) preempted: Vec<u32>,
    /// Number of preempted requests that run again from this step on.
    pub(super) num_resumed: u32,
    /// Number of steady decodes of each stage.
    pub(super) steady: Vec<(u32, u32)>,
    /// Slots of the steady decodes that get their last token from this step, in order.
    pub(super) leaving: Vec<u32>,
    pub(super) end_ns: u64,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.slots.clear();
        self.records.clear();
        self.preempted.clear();
        self.num_resumed = 0;
        self.steady.clear();
        self.leaving.clear();
    }
}
