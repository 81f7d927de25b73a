//! What a reader makes of a file: steps and requests by run, and counts of the records that were left out.

use super::dropped::{DropReason, Dropped};
use super::kv_counts::KvEvents;
use super::kv_transfers::{CopyLog, TransferLog};
use super::request::{RequestRow, RequestTrace};
use super::server_labels::ServerLog;
use super::server_totals::MetricsReply;
use super::step::{Run, StepTrace};
use super::token::{RequestTokens, TokenTrace};

/// Steps and requests of one file, and the counts of its dropped records.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Capture {
    /// Steps, run by run.
    pub steps: Vec<StepTrace>,
    /// Requests, run by run.
    pub requests: Vec<RequestTrace>,
    /// Token times, run by run.
    pub tokens: Vec<TokenTrace>,
    /// Step records left out.
    pub dropped_steps: Dropped,
    /// Request records left out.
    pub dropped_requests: Dropped,
    /// Counts of KV events.
    pub kv_events: Option<KvEvents>,
    /// Transfers of KV blocks.
    pub transfers: Option<TransferLog>,
    /// Sums of copies of KV blocks.
    pub copies: Option<CopyLog>,
    /// Counters of a server.
    pub metrics: Option<MetricsReply>,
    /// What the start-up of one server says, which holds for the runs of other files as well.
    pub server: Option<ServerLog>,
    /// Remarks for people.
    pub notes: Vec<String>,
}

impl Capture {
    /// Returns the number of step records in the file.
    pub fn steps_read(&self) -> u64 {
        let kept: usize = self.steps.iter().map(|trace| trace.steps.len()).sum();
        kept as u64 + self.dropped_steps.total()
    }

    /// Returns the number of request records in the file.
    pub fn requests_read(&self) -> u64 {
        let kept: usize = self.requests.iter().map(|trace| trace.requests.len()).sum();
        kept as u64 + self.dropped_requests.total()
    }

    /// Adds the requests of a run, and the tokens of those that have times of them.
    pub(super) fn add_requests(
        &mut self,
        run: Run,
        found: impl IntoIterator<Item = (RequestRow, Option<RequestTokens>)>,
    ) {
        let (requests, tokens): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let tokens: Vec<RequestTokens> = tokens.into_iter().flatten().collect();
        if !tokens.is_empty() {
            self.tokens.push(TokenTrace { run: run.clone(), requests: tokens });
        }
        if !requests.is_empty() {
            self.requests.push(RequestTrace { run, requests });
        }
    }

    /// Adds the steps of a run, sorted by number; of those with the same number, the first one stays.
    pub(super) fn add_steps(&mut self, mut trace: StepTrace) {
        let name = &trace.run.experiment;
        if !trace.steps.is_sorted_by_key(|step| step.step_id) {
            self.notes.push(format!("steps of '{name}' were not in the order of their numbers and have been sorted"));
            trace.steps.sort_by_key(|step| step.step_id);
        }
        let before = trace.steps.len();
        trace.steps.dedup_by_key(|step| step.step_id);
        self.dropped_steps.add_many(DropReason::Duplicate, (before - trace.steps.len()) as u64);
        self.steps.push(trace);
    }
}

#[cfg(test)]
mod tests {
    use super::super::step::StepRecord;
    use super::*;

    fn added(steps: &[(u64, u64)]) -> (Vec<(u64, u64)>, Capture) {
        let record = |&(step_id, start_ns): &(u64, u64)| StepRecord { step_id, start_ns, ..StepRecord::default() };
        let mut capture = Capture::default();
        capture.add_steps(StepTrace { steps: steps.iter().map(record).collect(), ..StepTrace::default() });
        (capture.steps[0].steps.iter().map(|step| (step.step_id, step.start_ns)).collect(), capture)
    }

    #[test]
    fn the_first_of_a_number_stays_and_sorting_is_said() {
        let (steps, capture) = added(&[(3, 30), (1, 10), (2, 20), (1, 11)]);
        assert_eq!(steps, [(1, 10), (2, 20), (3, 30)]);
        assert_eq!((capture.dropped_steps.count(DropReason::Duplicate), capture.notes.len()), (1, 1));
        assert_eq!(capture.steps_read(), 4);
        assert!(added(&[(1, 10), (2, 20)]).1.notes.is_empty());
    }
}
