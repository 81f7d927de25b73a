//! What was read and what was left out of it, and why. Uses nothing else.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Why rows were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Before the engine was warm.
    WarmUp,
    /// A preemption in the step.
    Preemption,
    /// The engine idled, or paused, before the next step.
    Gap,
    /// The clock ran backwards, or jumped.
    ClockJump,
    /// The same step or request a second time.
    Duplicate,
    /// A step that schedules nothing.
    Empty,
    /// A value that can't be: negative, not finite, a count that contradicts another.
    BadValue,
    /// What a row needs is not there.
    Incomplete,
    /// The last step of a run, which no period follows.
    LastStep,
    /// A request that failed.
    Failed,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 10] = [
        Reason::WarmUp,
        Reason::Preemption,
        Reason::Gap,
        Reason::ClockJump,
        Reason::Duplicate,
        Reason::Empty,
        Reason::BadValue,
        Reason::Incomplete,
        Reason::LastStep,
        Reason::Failed,
    ];

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Reason::WarmUp => "warm_up",
            Reason::Preemption => "preemption",
            Reason::Gap => "gap",
            Reason::ClockJump => "clock_jump",
            Reason::Duplicate => "duplicate",
            Reason::Empty => "empty",
            Reason::BadValue => "bad_value",
            Reason::Incomplete => "incomplete",
            Reason::LastStep => "last_step",
            Reason::Failed => "failed",
        }
    }
}

/// Counts of rows left out, by reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Dropped {
    counts: BTreeMap<Reason, u64>,
}

impl Dropped {
    /// One more.
    pub fn add(&mut self, reason: Reason) {
        self.add_many(reason, 1);
    }

    /// `count` more.
    pub fn add_many(&mut self, reason: Reason, count: u64) {
        if count > 0 {
            *self.counts.entry(reason).or_default() += count;
        }
    }

    /// Another's counts on top.
    pub fn merge(&mut self, other: &Dropped) {
        for (reason, count) in &other.counts {
            self.add_many(*reason, *count);
        }
    }

    /// Rows left out for a reason.
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts.get(&reason).copied().unwrap_or(0)
    }

    /// Rows left out.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Reasons with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        self.counts.iter().map(|(reason, count)| (*reason, *count))
    }
}

/// `3 warm up, 1 last step`.
impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = self.iter().map(|(reason, count)| format!("{count} {}", reason.name().replace('_', " ")));
        f.write_str(&reasons.collect::<Vec<String>>().join(", "))
    }
}
