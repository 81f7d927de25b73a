//! Remarks on a replay that every caller should pass on: overload, and requests that the metrics leave out.

use ridgepoint::units::NS_PER_S;
use ridgepoint::{Error, Result};

use super::config::EngineConfig;
use super::overload::Overload;
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

    /// Returns a sentence for each of these: the server does not keep up with the load, requests were rejected, requests did
    /// not finish, no request finished.
    pub fn notes(&self, config: &EngineConfig) -> Vec<String> {
        let count = |outcome| self.records.iter().filter(|record| record.outcome == outcome).count();
        let (sent, rejected, unfinished) = (self.records.len(), count(Outcome::Rejected), count(Outcome::Unfinished));
        let mut notes = Vec::new();
        if let Some(Overload { asked_per_s, done_per_s, is_of_sessions }) = self.overload() {
            let what = if is_of_sessions { "sessions" } else { "requests" };
            notes.push(format!(
                "the server does not keep up: it does {done_per_s:.3} of {asked_per_s:.3} {what} per second, and its queue and \
                 latencies grow for as long as the load lasts"
            ));
        }
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
