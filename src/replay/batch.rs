//! A step between its scheduling and its end. Uses `request`.

use crate::request::Request;

/// A step: the steady decodes by number, every other request by itself.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Requests other than steady decodes, in order behind those, as the latency model sees them.
    pub(super) requests: Vec<Request>,
    pub(super) slots: Vec<u32>,
    pub(super) records: Vec<u32>,
    /// Records of the requests that had to go.
    pub(super) preempted: Vec<u32>,
    /// Steady decodes by stage.
    pub(super) steady: Vec<(u32, u32)>,
    /// Slots of those of them that have their last token from this step, in order.
    pub(super) leaving: Vec<u32>,
    pub(super) end_ns: u64,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.slots.clear();
        self.records.clear();
        self.preempted.clear();
        self.steady.clear();
        self.leaving.clear();
    }
}
