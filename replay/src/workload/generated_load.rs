//! A load without a file: what a user says of it, and the workload that it makes.

use ridgepoint::arguments;
use ridgepoint::arguments::{Argument, ArgumentRows, Engines, Kind, Section};
use ridgepoint::input::NumberRange;
use ridgepoint::{Error, Result};
use serde_json::Value;

use super::lengths::{LENGTH, lockstep};
use super::limits::{MAX_DURATION_S, MAX_RATE_PER_S, MAX_REQUESTS, MAX_TOKENS};
use super::load::OpenedLoad;
use super::sessions::{GeneratedSessions, SessionShape, SessionStarts};
use super::{ArrivalPattern, ClosedLoop, NormalLengths, OpenLoop, ReplicaShare, RequestShape, Summary, Workload};

/// Requests or sessions per request or session in flight, if their number is not given.
pub const ROUNDS: u64 = 10;

arguments! {
    /// Requests, or sessions of several turns, of a few numbers: at random times (`request_rate`), or a fixed number of them in flight
    /// (`concurrency`).
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct GeneratedLoad,
    /// The rows of [`GeneratedLoad`].
    LOAD_ARGUMENTS of Section::Load;

    concurrency: Option<u32> = None, "Closed loop: keep N requests in flight; a new one starts when one finishes. With turns, N sessions at once. With requests, how a list without arrivals is sent",
        Kind::Whole(1, u32::MAX as u64), alias(&["max_concurrency"]), engines(Engines::ALL), needs(LENGTHS), excludes(&[("request_rate", "a load has one of them"), OF_PROFILE]);
    request_rate: Option<f64> = None, "Open loop: send R requests per second on average, at random times. With turns, start R sessions per second. With requests, how a list without arrivals is sent",
        Kind::Number(NumberRange::above_zero(MAX_RATE_PER_S, "requests per second")), alias(&["request_rate_per_s", "requests_per_s", "sessions_per_s"]), engines(Engines::ALL), value("R"), needs(OF_A_RATE), excludes(&[OF_PROFILE]);
    input_len: Option<NormalLengths> = None, "Prompt tokens of each request. With turns, new tokens of each turn, behind the turns before",
        Kind::Own(lengths), must_be(LENGTH), alias(&["random_input_len", "input_len_tokens"]), engines(Engines::ALL), value("N"), excludes(FILES);
    output_len: Option<NormalLengths> = None, "Output tokens of each request; with turns, of each turn",
        Kind::Own(lengths), must_be(LENGTH), alias(&["random_output_len", "output_len_tokens"]), engines(Engines::ALL), value("N"), excludes(FILES);
    random_range_ratio: Option<f64> = None, "Spread of the lengths as in vLLM's benchmark: those of each request are uniform from 1 - R to 1 + R times input_len and output_len",
        Kind::Number(NumberRange::between(0.0, 0.999, "")), must_be("a number from 0 to 0.999"), alias(&["range_ratio"]), engines(Engines::ALL), value("R"), default("0"), excludes(FILES);
    num_requests: Option<u64> = None, "Number of requests; with turns give num_sessions",
        Kind::Whole(1, MAX_REQUESTS), alias(&["num_prompts"]), engines(Engines::ALL), default("10 for each in flight, with concurrency"), excludes(&[("turns", "give num_sessions, each of so many turns"), OF_PROFILE, OF_REQUESTS]);
    burstiness: Option<f64> = None, "Shape of the gamma distribution of the gaps between requests, or between the starts of sessions: 1 is Poisson, less is burstier",
        Kind::Number(NumberRange::between(0.001, 1000.0, "")), must_be("a number from 0.001 to 1000; 1 is Poisson"), engines(Engines::ALL), value("B"), default("1"), excludes(&[("concurrency", "it sends a request when another one finishes"), OF_PROFILE]);
    turns: Option<u32> = None, "Send sessions of N turns instead of single requests. The prompt of a turn is the turn before with its output, then input_len new tokens. It is sent when the turn before has finished",
        Kind::Whole(1, MAX_TOKENS as u64), engines(Engines::ALL), excludes(FILES);
    num_sessions: Option<u64> = None, "Number of sessions, each of turns requests",
        Kind::Whole(1, MAX_REQUESTS), engines(Engines::ALL), default("10 for each at once, with concurrency"), needs(TURNS), excludes(FILES);
    prefix_len: Option<u32> = None, "Tokens at the beginning of every prompt, before input_len, that all requests and sessions share, such as a system prompt",
        Kind::Whole(0, MAX_TOKENS as u64), alias(&["random_prefix_len", "shared_prefix_len", "prefix_len_tokens"]), engines(Engines::ALL), default("0"), excludes(FILES);
    think_time_s: Option<f64> = None, "Mean time from the end of a turn to the next, as the client thinks or a tool runs, s. Times are exponential",
        Kind::Number(NumberRange::from_zero(MAX_DURATION_S, "s")), engines(Engines::ALL), value("S"), default("0"), needs(TURNS), excludes(&[("num_requests", "it is of sessions"), OF_PROFILE, OF_REQUESTS]);
}

const LENGTHS: &[(&[&str], &str)] = &[(&["input_len", "requests"], ""), (&["output_len", "requests"], "")];
const OF_A_RATE: &[(&[&str], &str)] = &[
    (&["input_len", "requests"], ""),
    (&["output_len", "requests"], ""),
    (&["num_requests", "num_sessions", "requests"], ""),
];
const TURNS: &[(&[&str], &str)] = &[(&["turns"], "it is of sessions")];
const OF_PROFILE: (&str, &str) = ("profile", "the file has its own");
const OF_REQUESTS: (&str, &str) = ("requests", "the file has its own");
const FILES: &[(&str, &str)] = &[OF_PROFILE, OF_REQUESTS];

/// Where requests come from that are not generated, and the seed of what is random.
static SOURCE_ARGUMENTS: &[Argument] = &[
    Argument::new("profile", Section::Load, "Load profile of the load generator inference-perf (YAML or JSON)", Kind::File)
        .engines(Engines::ALL)
        .value("FILE")
        .excludes(&[("requests", "a load has one of them")]),
    Argument::new(
        "requests",
        Section::Load,
        "List of requests: csv, jsonl or a JSON list with arrival, input and output length, a published trace, or the turns of sessions (with session_id). One without arrivals takes request_rate or concurrency",
        Kind::File,
    )
    .engines(Engines::ALL)
    .value("FILE"),
    Argument::new("requests_format", Section::Load, "Format of requests", Kind::Name(&["csv", "jsonl", "mooncake", "azure", "vllm-bench", "llmservingsim"]))
        .engines(Engines::ALL)
        .value("KIND")
        .default("detected from the content")
        .needs(&[(&["requests"], "it is the format of that file")])
    .excludes(&[("profile", "it is the format of requests")]),
    Argument::new(
        "seed",
        Section::Load,
        "Seed of random arrival and think times and of noise; the same seed gives the same result",
        Kind::Whole(0, u64::MAX),
    )
    .engines(Engines::ALL)
    .default("0"),
];

/// All arguments of a load.
pub fn load_arguments() -> ArgumentRows {
    ArgumentRows::new(&[SOURCE_ARGUMENTS, LOAD_ARGUMENTS], Engines::ALL)
}

/// Reads lengths: a number of tokens, or an object.
fn lengths(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) if text.trim_start().starts_with('{') => lengths(&serde_json::from_str(text).ok()?),
        Value::Object(_) => NormalLengths::is_written(value).then(|| value.clone()),
        _ => Kind::Whole(1, u64::from(MAX_TOKENS)).value_of(value),
    }
}

/// A workload with its summary and the note on lockstep.
type DescribedWorkload = (Box<dyn Workload + Send>, Summary, Option<String>);

impl GeneratedLoad {
    /// Returns whether the requests are those of sessions, or share a prefix.
    pub fn has_sessions(&self) -> bool {
        self.turns.is_some() || self.prefix_len.is_some_and(|tokens| tokens > 0)
    }

    /// Returns the lengths of prompts and outputs.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for a load without one of them, and for lengths with two spreads.
    pub fn lengths(&self) -> Result<[NormalLengths; 2]> {
        let bad = |problem: &str| Error::invalid("load", vec![problem.to_owned()]);
        let missing = || bad("lacks input_len or output_len");
        let lengths = [self.input_len.ok_or_else(missing)?, self.output_len.ok_or_else(missing)?];
        let Some(ratio) = self.random_range_ratio.filter(|ratio| *ratio > 0.0) else { return Ok(lengths) };
        let spread = lengths.map(|of| Some(of).filter(NormalLengths::is_fixed)?.within_share(ratio));
        let [Some(input), Some(output)] = spread else {
            return Err(bad(
                "random_range_ratio spreads input_len and output_len: give both as numbers, or leave it out",
            ));
        };
        Ok([input, output])
    }

    /// Returns the number of requests, or of sessions if there are any.
    pub fn count(&self) -> u64 {
        let rounds = || self.concurrency.map(|concurrency| ROUNDS * u64::from(concurrency));
        self.num_sessions.or(self.num_requests).or_else(rounds).unwrap_or(1)
    }

    /// Returns the number of requests, those of all turns together.
    pub fn total_requests(&self) -> u64 {
        self.count().saturating_mul(u64::from(self.turns.unwrap_or(1)))
    }

    pub(super) fn pattern(&self) -> ArrivalPattern {
        ArrivalPattern::of_burstiness(self.burstiness.unwrap_or(1.0))
    }

    /// Returns one replica's share of the sessions; `None` of single requests without a shared prefix.
    ///
    /// # Errors
    /// Those of [`GeneratedSessions::new`].
    fn sessions(&self, share: ReplicaShare, seed: u64) -> Result<Option<GeneratedSessions>> {
        if !self.has_sessions() {
            return Ok(None);
        }
        let [input, output] = self.lengths()?;
        let (turns, prefix_len) = (self.turns.unwrap_or(1), self.prefix_len.unwrap_or(0));
        let shape = SessionShape { turns, prefix_len, input, output, think_time_s: self.think_time_s.unwrap_or(0.0) };
        let starts = match self.concurrency {
            Some(concurrency) => SessionStarts::Concurrency(share.concurrency(concurrency)),
            None => SessionStarts::Rate {
                pattern: self.pattern(),
                per_s: share.rate_per_s(self.request_rate.unwrap_or(1.0)),
            },
        };
        GeneratedSessions::new(starts, share.requests(self.count()), shape, seed).map(Some)
    }

    /// Returns one replica's share. The same seed sends the same requests at any rate, only closer together.
    ///
    /// # Errors
    /// Those of [`ClosedLoop::new`], [`OpenLoop::new`] and [`GeneratedSessions::new`].
    pub fn workload(&self, share: ReplicaShare, seed: u64) -> Result<Box<dyn Workload + Send>> {
        Ok(self.described_workload(share, seed)?.0)
    }

    /// Returns one replica's share with its summary, and a note if its requests run in lockstep.
    fn described_workload(&self, share: ReplicaShare, seed: u64) -> Result<DescribedWorkload> {
        if let Some(sessions) = self.sessions(share, seed)? {
            return Ok((Box::new(sessions.workload()), sessions.summary(), sessions.lockstep()));
        }
        let [input, output] = self.lengths()?;
        let shape = RequestShape::drawn(input, output, seed);
        let num_requests = share.requests(self.count());
        if let Some(concurrency) = self.concurrency {
            let in_flight = share.concurrency(concurrency);
            let closed = ClosedLoop::new(in_flight, num_requests, shape)?;
            let summary = closed.summary();
            return Ok((Box::new(closed), summary, lockstep(in_flight, [&input, &output], 0.0)));
        }
        let rate_per_s = share.rate_per_s(self.request_rate.unwrap_or(1.0));
        let open = OpenLoop::new(self.pattern(), rate_per_s, num_requests, shape, seed)?;
        let summary = open.summary();
        Ok((Box::new(open), summary, None))
    }

    /// Returns one replica's share with its name, summary and remarks. `check` gets the number of requests before any is drawn.
    ///
    /// # Errors
    /// Those of [`GeneratedLoad::workload`] and of `check`; a load with both or neither of `request_rate` and `concurrency`.
    pub(super) fn open(&self, seed: u64, share: ReplicaShare, check: &dyn Fn(u64) -> Result<()>) -> Result<OpenedLoad> {
        let one = "requests are sent at a rate (request_rate), or a fixed number of them is in flight (concurrency): give one";
        if self.request_rate.is_some() == self.concurrency.is_some() {
            return Err(Error::invalid("load", vec![one.to_owned()]));
        }
        let (workload, summary, lockstep) = self.described_workload(share, seed)?;
        check(summary.requests as u64)?;
        let note = if self.has_sessions() {
            share.note_on_figures(None, None)
        } else {
            share.note_on_figures(self.request_rate, self.concurrency)
        };
        let notes = note.into_iter().chain(lockstep).collect();
        Ok(OpenedLoad { workload, name: self.name(share), summary, notes })
    }

    /// The name of one replica's share: its rate, or its number in flight.
    fn name(&self, share: ReplicaShare) -> String {
        let kind = if self.turns.is_some_and(|turns| turns > 1) { "sessions" } else { "requests with a shared prefix" };
        let is_whole = share.is_whole();
        match (self.request_rate, self.concurrency) {
            (Some(rate), _) if self.has_sessions() => {
                let of = if is_whole { String::new() } else { format!(" of {rate}") };
                format!("{kind}, {}{of} per second", share.rate_per_s(rate))
            }
            (Some(rate), _) if is_whole => format!("{rate} requests/s"),
            (Some(rate), _) => format!("{} of {rate} requests/s per replica", share.rate_per_s(rate)),
            (None, total) => {
                let total = total.unwrap_or(1);
                let own = share.concurrency(total);
                let of = if own == total { String::new() } else { format!(" of {total}") };
                if self.has_sessions() { format!("{kind}, {own}{of} at once") } else { format!("{own}{of} in flight") }
            }
        }
    }
}
