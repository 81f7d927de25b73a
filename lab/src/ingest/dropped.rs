//! Why records were left out, and how many.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a record was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// An impossible value: negative, not finite, a count that contradicts another.
    BadValue,
    /// A value is missing that the record needs.
    Incomplete,
    /// The last step of a run, which no period follows.
    LastStep,
    /// A request that failed.
    Failed,
}

/// The name in tables and JSON, such as `warm_up`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Counts of records left out, by reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Dropped {
    counts: BTreeMap<Reason, u64>,
}

impl Dropped {
    /// Counts one more.
    pub fn add(&mut self, reason: Reason) {
        self.add_many(reason, 1);
    }

    /// Counts `count` more.
    pub fn add_many(&mut self, reason: Reason, count: u64) {
        if count > 0 {
            *self.counts.entry(reason).or_default() += count;
        }
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Dropped) {
        other.counts.iter().for_each(|(reason, count)| self.add_many(*reason, *count));
    }

    /// Returns the number of records left out for a reason.
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts.get(&reason).copied().unwrap_or(0)
    }

    /// Returns the number of records left out.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// `3 warm up, 1 last step`.
impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons =
            self.counts.iter().map(|(reason, count)| format!("{count} {}", reason.to_string().replace('_', " ")));
        f.write_str(&reasons.collect::<Vec<String>>().join(", "))
    }
}
