//! A scheduled step that has not ended yet.

use ridgepoint::Request;

use super::slot::Group;

/// A step: steady decodes as counts, every other request by itself.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Requests other than steady decodes. In the step they follow the steady ones.
    pub(super) requests: Vec<Request>,
    pub(super) slots: Vec<u32>,
    pub(super) records: Vec<u32>,
    /// Output tokens that each request gets; empty where a request that samples gets one.
    pub(super) outputs: Vec<u32>,
    /// Records of the preempted requests.
    pub(super) preempted: Vec<u32>,
    /// Number of preempted requests that run again from this step on.
    pub(super) num_resumed: u32,
    /// Number of steady decodes of each group.
    pub(super) steady: Vec<(Group, u32)>,
    /// Slots of the steady decodes that get their last token from this step, in order.
    pub(super) leaving: Vec<u32>,
    pub(super) end_ns: u64,
    /// Whether it has these requests alone: steady decodes pause.
    pub(super) is_alone: bool,
    /// Whether it has a request. Only an engine with a host's tier keeps iterations without any.
    pub(super) is_step: bool,
    /// Slots whose loads from the host, and whose last stores, the engine saw end when it launched this step. Where KV moves between engines,
    /// `loaded` has records whose content it saw to be there.
    pub(super) loaded: Vec<u32>,
    pub(super) stored: Vec<u32>,
}

/// The outcome of a scheduler iteration.
pub(super) enum Scheduled {
    /// A step.
    Step,
    /// No step: the request that needed blocks was itself preempted.
    OnlyPreempted,
    /// No step.
    Nothing,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.slots.clear();
        self.records.clear();
        self.outputs.clear();
        self.preempted.clear();
        self.num_resumed = 0;
        self.steady.clear();
        self.leaving.clear();
        self.is_step = false;
        self.is_alone = false;
        self.loaded.clear();
        self.stored.clear();
    }

    /// Whether it is an iteration without a step, without preemptions, and without the end of a transfer.
    pub(super) fn is_quiet(&self) -> bool {
        !self.is_step && self.preempted.is_empty() && self.loaded.is_empty() && self.stored.is_empty()
    }
}
