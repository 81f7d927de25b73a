//! The turns of sessions: the first ones, which find what other sessions share, and the later ones, which find their own past.

use ridgepoint_replay::Distribution;
use ridgepoint_replay::{Outcome, RequestRecord};
use serde::Serialize;

/// The turns of a replayed load. JSON keys are stable.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionReport {
    /// Sessions that started.
    pub sessions: u64,
    /// Their first turns.
    pub first_turns: Turns,
    /// All other turns.
    pub later_turns: Turns,
}

/// Some turns of a replay.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Turns {
    /// Turns that were sent.
    pub requests: u64,
    /// Turns whose client has every token.
    pub finished: u64,
    /// Prompt tokens of the finished ones.
    pub prompt_tokens: u64,
    /// Prompt tokens of the finished ones that the prefix cache had.
    pub cached_tokens: u64,
    /// Time to first token of the finished ones, ms.
    pub ttft_ms: Option<Distribution>,
}

impl Turns {
    fn of<'a>(records: impl Iterator<Item = &'a RequestRecord>) -> Self {
        let records: Vec<&RequestRecord> = records.collect();
        let finished: Vec<_> = records.iter().filter(|record| record.outcome == Outcome::Finished).collect();
        Turns {
            requests: records.len() as u64,
            finished: finished.len() as u64,
            prompt_tokens: finished.iter().map(|record| u64::from(record.num_prompt_tokens)).sum(),
            cached_tokens: finished.iter().map(|record| u64::from(record.num_cached_tokens)).sum(),
            ttft_ms: Distribution::of(finished.iter().map(|record| record.ttft_ms()).collect()),
        }
    }

    /// Share of the prompt tokens of the finished turns that the prefix cache had.
    pub fn cached_share(&self) -> Option<f64> {
        (self.prompt_tokens > 0).then(|| self.cached_tokens as f64 / self.prompt_tokens as f64)
    }
}

impl SessionReport {
    /// The report of the records of a load of sessions.
    pub fn of(records: &[RequestRecord]) -> Self {
        let of = |is_first: bool| Turns::of(records.iter().filter(move |record| (record.turn == 0) == is_first));
        let (first_turns, later_turns) = (of(true), of(false));
        SessionReport { sessions: first_turns.requests, first_turns, later_turns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_distinguished_and_their_hits_are_summed() {
        let record = |turn, outcome, num_prompt_tokens, num_cached_tokens, ttft_ms: u64| RequestRecord {
            stage: 0,
            turn,
            outcome,
            num_prompt_tokens,
            num_output_tokens: 1,
            num_cached_tokens,
            num_preemptions: 0,
            num_loaded_tokens: 0,
            num_disk_tokens: 0,
            load_ns: 0,
            arrival_ns: 1_000_000,
            queued_ns: 1_000_000,
            scheduled_ns: 1_000_000,
            first_token_ns: 1_000_000 + ttft_ms * 1_000_000,
            finish_ns: 9_000_000_000,
        };
        let records = [
            record(0, Outcome::Finished, 100, 0, 40),
            record(0, Outcome::Finished, 100, 60, 20),
            record(1, Outcome::Finished, 300, 240, 10),
            record(2, Outcome::Rejected, 5_000, 0, 0),
        ];
        let report = SessionReport::of(&records);
        assert_eq!((report.sessions, report.first_turns.finished), (2, 2));
        assert_eq!(report.first_turns.cached_share(), Some(0.3));
        assert_eq!(report.first_turns.ttft_ms.map(|of| of.mean), Some(30.0));
        assert_eq!((report.later_turns.requests, report.later_turns.finished), (2, 1));
        assert_eq!(report.later_turns.cached_share(), Some(0.8));
    }
}
