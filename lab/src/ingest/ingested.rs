//! The result of a reader.

use super::dropped::{Dropped, Reason};
use super::order::put_in_order;
use super::request::RequestRow;
use super::step::{OfRun, Run, StepTrace};

/// A run's requests, in order of arrival where that is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestTrace {
    /// The run.
    pub run: Run,
    /// Its requests.
    pub requests: Vec<RequestRow>,
}

impl OfRun for RequestTrace {
    fn new(run: Run) -> Self {
        RequestTrace { run, requests: Vec::new() }
    }

    fn run(&self) -> &Run {
        &self.run
    }
}

/// Steps and requests of one file, and the counts of its dropped records.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ingested {
    /// Steps, run by run.
    pub steps: Vec<StepTrace>,
    /// Requests, run by run.
    pub requests: Vec<RequestTrace>,
    /// Step records in the file.
    pub steps_read: u64,
    /// Request records in the file.
    pub requests_read: u64,
    /// Step records left out.
    pub dropped_steps: Dropped,
    /// Request records left out.
    pub dropped_requests: Dropped,
    /// Remarks for people.
    pub notes: Vec<String>,
}

impl Ingested {
    /// Adds the steps of a run, sorted by number and each once.
    pub(super) fn add_steps(&mut self, mut trace: StepTrace) -> &mut StepTrace {
        let order = put_in_order(&mut trace);
        self.dropped_steps.add_many(Reason::Duplicate, order.duplicates);
        self.notes.extend(order.notes);
        self.steps.push(trace);
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }
}
