//! Remarks on a replay that every caller should pass on: the state of its queue, and requests that the metrics leave out.

use ridgepoint::units::NS_PER_S;
use ridgepoint::{Error, Result};

use super::config::EngineConfig;
use super::load_state::{LoadState, QueueTrend};
use super::record::{Outcome, Replay};

const S_PER_YEAR: u64 = 365 * 24 * 3600;

impl Replay {
    /// Checks that the clock did not run out.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if the replay took longer than 64 bits of nanoseconds.
    pub fn check_clock(&self) -> Result<()> {
        if self.counters.end_ns < u64::MAX {
            return Ok(());
        }
        let years = u64::MAX / NS_PER_S / S_PER_YEAR;
        let problem =
            format!("takes longer than its clock counts, {years} years: do the model and the GPU fit each other?");
        Err(Error::invalid("the replay", vec![problem]))
    }

    /// Returns a sentence for each of these: the server does not keep up with the load or is at its limit, requests were rejected, requests did
    /// not finish, no request finished. `trend` is that of [`Replay::queue_trend`].
    pub fn notes(&self, config: &EngineConfig, trend: Option<&QueueTrend>) -> Vec<String> {
        let count = |outcome| self.records.iter().filter(|record| record.outcome == outcome).count();
        let (sent, rejected, unfinished) = (self.records.len(), count(Outcome::Rejected), count(Outcome::Unfinished));
        let mut notes = Vec::new();
        notes.extend(trend.and_then(note_of));
        if rejected > 0 {
            notes.push(format!(
                "{rejected} of {sent} requests rejected: prompt and output are longer than max_model_len = {}; only the \
                 counts include them",
                config.max_model_len
            ));
        }
        if unfinished > 0 {
            notes.push(format!(
                "{unfinished} of {sent} requests not finished when the replay stopped; TTFT, TPOT, E2E and throughput leave \
                 them out"
            ));
        }
        if rejected + unfinished == sent {
            notes.push("no request finished: there is nothing to measure".to_owned());
        }
        notes
    }
}

/// Returns what users should know of a queue; `None` of one that has settled.
fn note_of(trend: &QueueTrend) -> Option<String> {
    let what = if trend.is_of_sessions { "sessions" } else { "requests" };
    let (asked_per_s, done_per_s) = (trend.asked_per_s, trend.done_per_s());
    match trend.state() {
        LoadState::KeepsUp => None,
        LoadState::AtLimit => Some(format!(
            "the server is at its limit with {asked_per_s:.3} {what} per second: its queue has not settled, and latencies depend on the \
             length of the load; more num_requests or a lower rate show more"
        )),
        LoadState::Overloaded => Some(format!(
            "the server does not keep up: it does {done_per_s:.3} of {asked_per_s:.3} {what} per second, and its queue and latencies \
             grow for as long as the load lasts"
        )),
    }
}
