//! The starts of generated requests or sessions: at drawn times, or one for each that ends.

use std::collections::VecDeque;

use super::arrivals::{ArrivalPattern, ArrivalTimes};
use super::limits::{self, MAX_DURATION_S};

/// The starts that are still to come.
#[derive(Debug)]
pub(super) enum Starts {
    /// At a rate, whether others have ended or not.
    Rate(ArrivalTimes),
    /// A fixed number of them at once.
    Concurrency(Concurrency),
}

impl Starts {
    /// Time of the next start; `None` if there is none before another one ends.
    pub(super) fn next_ns(&self) -> Option<u64> {
        match self {
            Starts::Rate(times) => times.next_ns(),
            Starts::Concurrency(starts) => starts.next_ns(),
        }
    }

    /// Notes that one of those that started has ended.
    pub(super) fn ended(&mut self, now_ns: u64) {
        if let Starts::Concurrency(starts) = self {
            starts.ended(now_ns);
        }
    }

    /// Takes the next start.
    pub(super) fn start(&mut self) -> Option<u64> {
        match self {
            Starts::Rate(times) => times.next(),
            Starts::Concurrency(starts) => starts.start(),
        }
    }
}

/// A number of starts at time 0, then one for each that ends, in the same nanosecond.
#[derive(Debug, Clone)]
pub(super) struct Concurrency {
    /// Those at time 0 that are still to come.
    fresh: u32,
    due_ns: VecDeque<u64>,
    last_ns: u64,
    /// All that are still to come.
    left: u64,
}

impl Concurrency {
    pub(super) fn new(at_once: u32, number: u64) -> Self {
        Concurrency { fresh: at_once, due_ns: VecDeque::new(), last_ns: 0, left: number }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        let next_ns = if self.fresh > 0 { Some(0) } else { self.due_ns.front().copied() };
        next_ns.filter(|_| self.left > 0)
    }

    pub(super) fn start(&mut self) -> Option<u64> {
        let start_ns = self.next_ns()?;
        self.left -= 1;
        match self.fresh {
            0 => drop(self.due_ns.pop_front()),
            _ => self.fresh -= 1,
        }
        Some(start_ns)
    }

    /// Notes that one of those that started has ended.
    pub(super) fn ended(&mut self, now_ns: u64) {
        self.last_ns = self.last_ns.max(now_ns);
        self.due_ns.push_back(self.last_ns);
    }
}

/// Records a rate, a number or a pattern of starts that is out of range; `what` starts.
pub(super) fn check_rate(problems: &mut Vec<String>, pattern: ArrivalPattern, per_s: f64, number: u64, what: &str) {
    limits::check_rate(problems, "rate", per_s);
    limits::check_requests(problems, &format!("number of {what}"), number);
    if problems.is_empty() && number as f64 / per_s > MAX_DURATION_S {
        problems.push(format!(
            "{number} {what} at {per_s:?} per second take longer than {MAX_DURATION_S} s; send fewer or faster"
        ));
    }
    if let ArrivalPattern::Gamma { burstiness } = pattern
        && !(0.001..=1000.0).contains(&burstiness)
    {
        problems.push(format!("burstiness = {burstiness:?} must be from 0.001 to 1000"));
    }
}

/// Adds a problem for a concurrency or a number of starts that is out of range. `what` names the things that start.
pub(super) fn check_concurrency(problems: &mut Vec<String>, concurrency: u32, number: u64, what: &str) {
    if concurrency == 0 {
        problems.push("concurrency = 0 must be at least 1".to_owned());
    }
    limits::check_requests(problems, &format!("number of {what}"), number);
}
