//! The start of a replay's server, and its effect on the load.

use ridgepoint::units::{NS_PER_S, US_PER_S};
use ridgepoint_replay::HeldReport;
use ridgepoint_replay::cold_start::{Seconds, StartUp};
use serde::Serialize;

/// The start of a replay's server.
pub struct ServerStart {
    /// When it starts, s from the start of the load.
    pub start_s: f64,
    /// How long each part of the start takes.
    pub start_up: StartUp,
    /// The storage of the weights in words.
    pub storage: String,
    /// State of the compile cache.
    pub compile_cache: &'static str,
}

impl ServerStart {
    /// Time at which the server starts, ns from the start of the load.
    pub fn start_ns(&self) -> u64 {
        ns(self.start_s)
    }

    /// Time at which it takes requests.
    pub fn ready_ns(&self) -> u64 {
        ns(self.start_s + self.start_up.ready.estimate_s)
    }

    /// Time by which its first step takes longer.
    pub fn first_step_us(&self) -> f64 {
        self.start_up.first_step().estimate_s * US_PER_S
    }

    /// The report of a replay.
    pub fn report(&self, held: HeldReport) -> StartReport {
        let at = |seconds: f64| self.start_s + seconds;
        let Seconds { estimate_s, lower_s, upper_s } = self.start_up.ready;
        StartReport {
            start_s: self.start_s,
            ready_at: Seconds { estimate_s: at(estimate_s), lower_s: at(lower_s), upper_s: at(upper_s) },
            storage: self.storage.clone(),
            compile_cache: self.compile_cache,
            start_up: self.start_up.clone(),
            held,
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate")]
fn ns(seconds: f64) -> u64 {
    (seconds * NS_PER_S as f64).round() as u64
}

/// The effect of a start on a load. Its JSON keys are stable.
#[derive(Debug, Serialize)]
pub struct StartReport {
    /// Start of the server, s from the start of the load.
    pub start_s: f64,
    /// Time at which it takes requests, s from the start of the load. The replay takes the estimate.
    pub ready_at: Seconds,
    /// The storage of the weights in words.
    pub storage: String,
    /// State of the compile cache.
    pub compile_cache: &'static str,
    /// The parts of the start.
    #[serde(flatten)]
    pub start_up: StartUp,
    /// The requests that waited for it.
    #[serde(flatten)]
    pub held: HeldReport,
}

impl StartReport {
    /// A remark: the intervals of the latencies leave out that of the start.
    pub fn remark(&self) -> String {
        let Seconds { estimate_s, lower_s, upper_s } = self.ready_at;
        format!(
            "this replay assumes that the server is ready after {estimate_s:.1} s (interval {lower_s:.1} to {upper_s:.1} s); the intervals \
             of TTFT and E2E do not include this uncertainty"
        )
    }
}
