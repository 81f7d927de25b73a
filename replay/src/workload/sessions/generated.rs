//! Sessions without a file: equal ones, or with drawn lengths and think times, at a rate or a fixed number of them at once.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; new checks ranges")]

use rand_distr::{Distribution, Exp1};
use ridgepoint::Result;
use ridgepoint::input::check;
use ridgepoint::units::NS_PER_S;

use super::super::arrivals::{ArrivalPattern, ArrivalTimes};
use super::super::lengths::{NormalLengths, lockstep};
use super::super::limits::{self, MAX_DURATION_S, MAX_TOKENS};
use super::super::request::Segment;
use super::super::seed::{Stream, generator};
use super::super::starts::{Concurrency, Starts, check_concurrency, check_rate};
use super::super::{Summary, WorkloadRequest};
use super::{Script, SessionLoad, SessionTurn};

/// The turns of generated sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionShape {
    /// Turns of each session, at least 1.
    pub turns: u32,
    /// Tokens at the beginning of every prompt that all sessions share, such as a system prompt.
    pub prefix_len: u32,
    /// New tokens of each turn's prompt, behind the prefix and the turns before.
    pub input: NormalLengths,
    /// Generated tokens of each turn.
    pub output: NormalLengths,
    /// Mean time from the end of a turn to the next one, s. Times are exponential, as between the turns of vLLM's multi-turn benchmark.
    pub think_time_s: f64,
}

/// When generated sessions start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SessionStarts {
    /// At a rate, whether others have ended or not.
    Rate {
        /// Distribution of the gaps.
        pattern: ArrivalPattern,
        /// Sessions per second.
        per_s: f64,
    },
    /// This many at time 0, then one for each that ends, in the same nanosecond.
    Concurrency(u32),
}

/// Generated sessions. Memory grows with the sessions in progress alone.
///
/// ```
/// use ridgepoint_replay::workload::{GeneratedSessions, NormalLengths, SessionShape, SessionStarts, Workload};
///
/// let (input, output) = (NormalLengths::fixed(50), NormalLengths::fixed(10));
/// let shape = SessionShape { turns: 2, prefix_len: 1000, input, output, think_time_s: 0.0 };
/// let sessions = GeneratedSessions::new(SessionStarts::Concurrency(1), 1, shape, 0)?;
/// let mut load = sessions.workload();
/// assert_eq!(load.next_request().map(|turn| turn.num_prompt_tokens), Some(1050));
/// load.finished(7, 0, 0);
/// // The first turn, its 10 generated tokens and 50 new ones.
/// assert_eq!(load.next_request().map(|turn| (turn.arrival_ns, turn.num_prompt_tokens)), Some((7, 1110)));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedSessions {
    starts: SessionStarts,
    num_sessions: u64,
    shape: SessionShape,
    seed: u64,
}

impl GeneratedSessions {
    /// Returns `num_sessions` sessions. Starts, lengths and think times are drawn from `seed`. A turn has the same lengths and think
    /// time at every rate.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with all problems: no turns or sessions, more than 10⁸ turns in all, prompts beyond 10 million tokens, a
    /// think time that is not from 0 to 10⁸ s, a rate, burstiness or concurrency out of range, more than 10⁸ s of starts.
    pub fn new(starts: SessionStarts, num_sessions: u64, shape: SessionShape, seed: u64) -> Result<Self> {
        let mut problems = Vec::new();
        match starts {
            SessionStarts::Rate { pattern, per_s } => {
                check_rate(&mut problems, pattern, per_s, num_sessions, "sessions");
            }
            SessionStarts::Concurrency(number) => {
                check_concurrency(&mut problems, number, num_sessions, "sessions");
            }
        }
        shape.check(&mut problems);
        if problems.is_empty() {
            let turns = num_sessions.saturating_mul(u64::from(shape.turns));
            limits::check_most_requests(&mut problems, "turns of all sessions", turns);
        }
        check("generated sessions", problems)?;
        Ok(GeneratedSessions { starts, num_sessions, shape, seed })
    }

    /// Returns a note if the requests run in lockstep.
    pub(in crate::workload) fn lockstep(&self) -> Option<String> {
        let SessionStarts::Concurrency(in_flight) = self.starts else { return None };
        lockstep(in_flight, [&self.shape.input, &self.shape.output], self.shape.think_time_s)
    }

    /// Returns the sessions as a load.
    pub fn workload(&self) -> SessionLoad {
        let starts = match self.starts {
            SessionStarts::Rate { pattern, per_s } => {
                let rng = generator(self.seed, Stream::Arrivals, 0);
                Starts::Rate(ArrivalTimes::pattern(pattern, rng, self.num_sessions, per_s))
            }
            SessionStarts::Concurrency(concurrency) => {
                Starts::Concurrency(Concurrency::new(concurrency, self.num_sessions))
            }
        };
        SessionLoad::new(Box::new(Generated { of: self.clone(), starts, started: 0 }), self.num_requests())
    }

    /// Returns the summary of the sessions, whose means are those of the distributions of lengths.
    pub fn summary(&self) -> Summary {
        let SessionShape { turns, prefix_len, input, output, .. } = &self.shape;
        let turns_before = (f64::from(*turns) - 1.0) / 2.0;
        let new_tokens = input.mean + turns_before * (input.mean + output.mean);
        Summary {
            requests: self.num_requests() as usize,
            stages: 1,
            sessions: (*turns > 1).then_some(self.num_sessions as usize),
            mean_input_tokens: f64::from(*prefix_len) + new_tokens,
            mean_output_tokens: output.mean,
            max_total_tokens: (self.shape.longest_prompt() + u64::from(output.max)) as u32,
        }
    }

    /// Returns the number of turns of all sessions.
    pub(in crate::workload) fn num_requests(&self) -> u64 {
        self.num_sessions * u64::from(self.shape.turns)
    }

    /// The same sessions drawn from another seed.
    pub(in crate::workload) fn with_seed(self, seed: u64) -> Self {
        GeneratedSessions { seed, ..self }
    }
}

impl SessionShape {
    fn longest_prompt(&self) -> u64 {
        let (turns, input, output) = (u64::from(self.turns), u64::from(self.input.max), u64::from(self.output.max));
        u64::from(self.prefix_len) + turns * input + turns.saturating_sub(1) * output
    }

    fn check(&self, problems: &mut Vec<String>) {
        if self.turns == 0 {
            problems.push("turns = 0 must be at least 1".to_owned());
        }
        for (name, lengths) in [("input length", self.input), ("output length", self.output)] {
            lengths.check(problems, name);
        }
        if problems.is_empty() && self.longest_prompt() > u64::from(MAX_TOKENS) {
            problems.push(format!(
                "the last of {} turns has a prompt of up to {} tokens, and {MAX_TOKENS} are possible: use fewer turns or shorter ones",
                self.turns,
                self.longest_prompt()
            ));
        }
        if !(0.0..=MAX_DURATION_S).contains(&self.think_time_s) {
            problems.push(format!("think_time_s = {:?} must be from 0 to {MAX_DURATION_S} s", self.think_time_s));
        }
    }
}

struct Generated {
    of: GeneratedSessions,
    starts: Starts,
    started: u64,
}

impl Generated {
    /// New tokens and generated tokens of a turn.
    fn lengths(&self, place: SessionTurn) -> (u32, u32) {
        let draw = |lengths: &NormalLengths, stream| match lengths.is_fixed() {
            true => lengths.min,
            false => lengths.sample(&mut generator(self.of.seed, stream, self.number(place))),
        };
        (draw(&self.of.shape.input, Stream::InputLengths), draw(&self.of.shape.output, Stream::OutputLengths))
    }

    fn think_ns(&self, place: SessionTurn) -> u64 {
        if self.of.shape.think_time_s <= 0.0 {
            return 0;
        }
        let factor: f64 = Exp1.sample(&mut generator(self.of.seed, Stream::ThinkTimes, self.number(place)));
        (factor * self.of.shape.think_time_s * NS_PER_S as f64).round() as u64
    }

    /// Number of a turn among all turns.
    fn number(&self, place: SessionTurn) -> u32 {
        place.session.saturating_mul(self.of.shape.turns).saturating_add(place.turn)
    }
}

impl Script for Generated {
    fn next_start_ns(&self) -> Option<u64> {
        self.starts.next_ns()
    }

    fn start(&mut self) -> Option<SessionTurn> {
        self.starts.start()?;
        let place = SessionTurn { session: self.started as u32, turn: 0, context_tokens: self.of.shape.prefix_len };
        self.started += 1;
        Some(place)
    }

    fn request(&self, place: SessionTurn) -> Option<WorkloadRequest> {
        let (input, output) = self.lengths(place);
        let num_prompt_tokens = place.context_tokens + input;
        let prefix = Segment { id: 0, num_tokens: self.of.shape.prefix_len };
        let own =
            Segment { id: u64::from(place.session) + 1, num_tokens: num_prompt_tokens + output - prefix.num_tokens };
        // A session of one turn shares the prefix alone.
        let content = [prefix, Segment { num_tokens: if self.of.shape.turns > 1 { own.num_tokens } else { 0 }, ..own }];
        let content = content.into_iter().filter(|segment| segment.num_tokens > 0);
        Some(WorkloadRequest { content: Some(content.collect()), ..WorkloadRequest::new(0, num_prompt_tokens, output) })
    }

    fn next(&self, place: SessionTurn, now_ns: u64) -> Option<(u64, SessionTurn)> {
        if place.turn + 1 >= self.of.shape.turns {
            return None;
        }
        let (input, output) = self.lengths(place);
        let context_tokens = place.context_tokens + input + output;
        let place = SessionTurn { turn: place.turn + 1, context_tokens, ..place };
        Some((now_ns.saturating_add(self.think_ns(place)), place))
    }

    fn ended(&mut self, now_ns: u64) {
        self.starts.ended(now_ns);
    }
}
