//! Why records were left out, how many, and how many broken rows a file may have before it is a broken file.

use std::collections::BTreeMap;
use std::fmt;

use ridgepoint::{Error, Result};
use serde::{Deserialize, Serialize};

/// Why a record was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
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
impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Counts of records left out, by reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Dropped {
    counts: BTreeMap<DropReason, u64>,
}

impl Dropped {
    /// Counts one more.
    pub fn add(&mut self, reason: DropReason) {
        self.add_many(reason, 1);
    }

    /// Counts `count` more.
    pub fn add_many(&mut self, reason: DropReason, count: u64) {
        if count > 0 {
            *self.counts.entry(reason).or_default() += count;
        }
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Dropped) {
        other.counts.iter().for_each(|(reason, count)| self.add_many(*reason, *count));
    }

    /// Returns the number of records left out for a reason.
    pub fn count(&self, reason: DropReason) -> u64 {
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

/// Most rows that may be broken, in percent.
const MAX_BAD_PCT: u64 = 1;

/// Counts the rows of a file and the broken ones among them.
#[derive(Default)]
pub(super) struct RowFaults {
    rows: u64,
    broken: u64,
    first: Option<Error>,
}

impl RowFaults {
    /// Returns the value of a sound row; a broken one is counted.
    pub(super) fn sound<T>(&mut self, row: Result<T>) -> Option<T> {
        self.rows += 1;
        row.map_err(|error| {
            self.broken += 1;
            self.first.get_or_insert(error);
        })
        .ok()
    }

    /// The number of rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Counts the broken rows as dropped.
    ///
    /// # Errors
    /// A file without rows; the first broken row, where more than one in a hundred is.
    pub(super) fn settle(self, origin: &str, dropped: &mut Dropped) -> Result<()> {
        let (rows, broken) = (self.rows, self.broken);
        dropped.add_many(DropReason::BadValue, broken);
        match self.first {
            _ if rows == 0 => Err(Error::parse(origin, "has no rows; it needs one per step")),
            Some(first) if broken == 1 && broken * 100 > rows * MAX_BAD_PCT => Err(first),
            Some(first) if broken * 100 > rows * MAX_BAD_PCT => {
                let share = format!("{broken} of {rows} rows can't be used, more than {MAX_BAD_PCT} %");
                Err(Error::invalid(origin, vec![share, format!("the first is {first}")]))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(bad: usize, rows: usize) -> Result<Dropped> {
        let mut faults = RowFaults::default();
        for row in 0..rows {
            let message = format!("row {row} is odd");
            let _: Option<()> = faults.sound(if row < bad { Err(Error::parse("a.csv", message)) } else { Ok(()) });
        }
        let mut dropped = Dropped::default();
        faults.settle("a.csv", &mut dropped).map(|()| dropped)
    }

    #[test]
    fn one_in_a_hundred_is_a_broken_row_and_more_is_a_broken_file() {
        assert_eq!(settled(2, 200).unwrap().count(DropReason::BadValue), 2);
        let message = settled(3, 200).unwrap_err().to_string();
        assert_eq!(message, "a.csv: 3 of 200 rows can't be used, more than 1 %; the first is a.csv: row 0 is odd");
        assert_eq!(settled(1, 5).unwrap_err().to_string(), "a.csv: row 0 is odd");
        assert_eq!(settled(0, 1).unwrap().total(), 0);
        assert_eq!(settled(0, 0).unwrap_err().to_string(), "a.csv: has no rows; it needs one per step");
    }
}
