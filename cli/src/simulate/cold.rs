//! A replay whose server is not ready when the load begins, or that is added under load.

use std::path::PathBuf;

use clap::Args;
use ridgepoint_lab::served::Served;
use ridgepoint_lab::simulate::{ServerStart, StartReport};
use ridgepoint_replay::HeldReport;
use ridgepoint_replay::cold_start::Seconds;

use crate::cold_start::{OpenedRates, StartArgs, start, terms};
use crate::common::at_least_zero;
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

impl ColdArgs {
    /// Whether a start is asked for.
    pub fn is_given(&self) -> bool {
        self.cold.is_some()
    }

    /// The start that the arguments ask for, with remarks; `None` for a server that is ready.
    ///
    /// # Errors
    /// Flags of a start without `--cold`; fitted rates that cannot be read.
    pub fn open(&self, served: &Served, notes: &mut Vec<String>) -> Result<Option<ServerStart>, Failure> {
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
        Ok(Some(ServerStart { start_s, start_up, storage, compile_cache: compile_cache.name() }))
    }
}

/// The report of a replay.
///
/// # Errors
/// A load that sends no request after the start, and a profile whose stages wait for requests that other servers answer.
pub fn report(start: &ServerStart, held: HeldReport, has_sessions: bool) -> Result<StartReport, Failure> {
    if held.never_sent > 0 && !has_sessions {
        return Err(Failure::input(format!(
            "--scale-up-at {}: {} of the profile's requests are never sent, because they wait for {} earlier ones that other \
                 servers answer at unknown times: give a profile of one stage without a limit on requests in flight, or --requests",
            start.start_s, held.never_sent, held.left_out
        )));
    }
    if held.waited.requests + held.later.requests == 0 {
        return Err(Failure::input(format!(
            "--scale-up-at {}: the load sends no request from then on ({} before): give an earlier time",
            start.start_s, held.left_out
        )));
    }
    Ok(start.report(held))
}

/// Puts the start on a page.
pub fn lay_out(of: &StartReport, page: &mut Page) {
    let Seconds { estimate_s, lower_s, upper_s } = of.ready_at;
    let ready = format!(
        "ready {estimate_s:.1} s after the load began (90 % interval {lower_s:.1} to {upper_s:.1}); storage {}, {} compile cache",
        of.storage, of.compile_cache
    );
    page.paragraph("start      ", &ready);
    if of.start_s > 0.0 {
        let left_out = count(of.held.left_out);
        let later_turns = match of.held.never_sent {
            0 => String::new(),
            turns => format!(", and with them {} of their sessions", plural(turns, "later turn")),
        };
        let text = format!(
            "added at {:.1} s; {left_out} requests before that are other replicas' and left out{later_turns}",
            of.start_s
        );
        page.paragraph("           ", &text);
    }
    page.blank();
    terms(&of.start_up, page);
    page.blank();
    let groups = [("waited for the start", &of.held.waited), ("came later", &of.held.later)];
    let rows = Rows::of(groups)
        .left("requests that", |(name, _)| (*name).to_owned())
        .right("sent", |(_, of)| count(of.requests))
        .right("finished", |(_, of)| count(of.finished))
        .distribution("TTFT mean ms", |(_, of)| of.ttft_ms)
        .right("last first token, s", |(_, of)| number(of.last_first_token_s));
    page.rows(&rows, &["p50"]);
}
