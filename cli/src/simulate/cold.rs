//! A replay whose server is not ready when the load begins, or that is added under load.

use std::path::PathBuf;

use clap::Args;
use ridgepoint::units::{NS_PER_S, US_PER_S};
use ridgepoint_replay::HeldReport;
use ridgepoint_replay::cold_start::{Seconds, StartUp};
use serde::Serialize;

use crate::cold_start::{OpenedRates, StartArgs, start, terms};
use crate::common::at_least_zero;
use crate::deployment::Served;
use crate::outcome::Failure;
use crate::text::{Page, Rows, count, number, plural};

/// Latest start, s. The clock of a replay counts longer.
const MAX_START_S: f64 = 1e9;

/// The arguments of a cold start.
#[derive(Debug, Args)]
#[command(next_help_heading = "Start of the server")]
pub struct ColdArgs {
    /// Start the server when the load starts. Requests wait until it is ready, as if a gateway held them. FILE has rates that
    /// `ridgepoint cold-start --out` fitted
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    cold: Option<Option<PathBuf>>,
    /// Start the server later: a replica that is added under load. Requests sent before are other replicas' and left out; give the
    /// load of this replica
    #[arg(long, value_name = "SECONDS", value_parser = at_least_zero, allow_negative_numbers = true, requires = "cold")]
    #[arg(conflicts_with = "concurrency")]
    scale_up_at: Option<f64>,
    #[command(flatten)]
    start: StartArgs,
}

/// The start of a replay's server.
pub struct Cold {
    start_s: f64,
    start_up: StartUp,
    storage: String,
    compile_cache: &'static str,
}

impl ColdArgs {
    /// The start that the arguments ask for, with remarks; `None` for a server that is ready.
    ///
    /// # Errors
    /// Flags of a start without `--cold`; fitted rates that cannot be read.
    pub fn open(&self, served: &Served, notes: &mut Vec<String>) -> Result<Option<Cold>, Failure> {
        let Some(file) = &self.cold else {
            return match self.start.is_given() {
                true => Err(Failure::usage("--storage, --storage-gb-s and --compile-cache are of a start: add --cold")),
                false => Ok(None),
            };
        };
        let start_s = self.scale_up_at.unwrap_or(0.0);
        if start_s > MAX_START_S {
            return Err(Failure::usage(format!("--scale-up-at {start_s}: must be at most {MAX_START_S} s")));
        }
        let OpenedRates { rates, notes: remarks, .. } =
            self.start.rates(file.as_deref(), &served.model, &served.hardware)?;
        notes.extend(remarks);
        let compile_cache = self.start.compile_cache();
        let start_up = start(served, &rates, compile_cache, 1)?;
        let storage = rates.storage().to_string();
        Ok(Some(Cold { start_s, start_up, storage, compile_cache: compile_cache.name() }))
    }
}

impl Cold {
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
    ///
    /// # Errors
    /// A load that sends no request after the start, and a profile whose stages wait for requests that other servers answer.
    pub fn report(&self, held: HeldReport, has_sessions: bool) -> Result<ColdReport, Failure> {
        if held.never_sent > 0 && !has_sessions {
            return Err(Failure::input(format!(
                "--scale-up-at {}: {} of the profile's requests are never sent, because they wait for {} earlier ones that other \
                 servers answer at unknown times: give a profile of one stage without a limit on requests in flight, or --requests",
                self.start_s, held.never_sent, held.left_out
            )));
        }
        if held.waited.requests + held.later.requests == 0 {
            return Err(Failure::input(format!(
                "--scale-up-at {}: the load sends no request from then on ({} before): give an earlier time",
                self.start_s, held.left_out
            )));
        }
        let at = |seconds: f64| self.start_s + seconds;
        let Seconds { estimate_s, lower_s, upper_s } = self.start_up.ready;
        Ok(ColdReport {
            start_s: self.start_s,
            ready_at: Seconds { estimate_s: at(estimate_s), lower_s: at(lower_s), upper_s: at(upper_s) },
            storage: self.storage.clone(),
            compile_cache: self.compile_cache,
            start_up: self.start_up.clone(),
            held,
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate")]
fn ns(seconds: f64) -> u64 {
    (seconds * NS_PER_S as f64).round() as u64
}

/// The effect of a start on a load. Its JSON keys are stable.
#[derive(Debug, Serialize)]
pub struct ColdReport {
    /// Start of the server, s from the start of the load.
    start_s: f64,
    /// Time at which it takes requests, s from the start of the load. The replay takes the estimate.
    ready_at: Seconds,
    storage: String,
    compile_cache: &'static str,
    #[serde(flatten)]
    start_up: StartUp,
    #[serde(flatten)]
    held: HeldReport,
}

impl ColdReport {
    /// A remark: the intervals of the latencies leave out that of the start.
    pub fn remark(&self) -> String {
        let Seconds { estimate_s, lower_s, upper_s } = self.ready_at;
        format!(
            "the server is ready after {estimate_s:.1} s in this replay, and may be after {lower_s:.1} to {upper_s:.1}: the intervals of \
             TTFT and E2E do not hold that"
        )
    }

    /// Puts the start on a page.
    pub fn lay_out(&self, page: &mut Page) {
        let Seconds { estimate_s, lower_s, upper_s } = self.ready_at;
        let ready = format!(
            "ready {estimate_s:.1} s after the load began (90 % interval {lower_s:.1} to {upper_s:.1}); storage {}, {} compile cache",
            self.storage, self.compile_cache
        );
        page.paragraph("start      ", &ready);
        if self.start_s > 0.0 {
            let left_out = count(self.held.left_out);
            let later_turns = match self.held.never_sent {
                0 => String::new(),
                turns => format!(", and with them {} of their sessions", plural(turns, "later turn")),
            };
            let text = format!(
                "added at {:.1} s; {left_out} requests before that are other replicas' and left out{later_turns}",
                self.start_s
            );
            page.paragraph("           ", &text);
        }
        page.blank();
        terms(&self.start_up, page);
        page.blank();
        let groups = [("waited for the start", &self.held.waited), ("came later", &self.held.later)];
        let rows = Rows::of(groups)
            .left("requests that", |(name, _)| (*name).to_owned())
            .right("sent", |(_, of)| count(of.requests))
            .right("finished", |(_, of)| count(of.finished))
            .distribution("TTFT mean ms", |(_, of)| of.ttft_ms)
            .right("last first token, s", |(_, of)| number(of.last_first_token_s));
        page.rows(&rows, &["p50"]);
    }
}
