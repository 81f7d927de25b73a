//! Ranges of numbers that keys and cells may have, and how messages state them.

use std::fmt::{self, Display};

/// Numbers that a key or cell may have.
#[derive(Debug, Clone, Copy)]
pub struct NumberRange {
    min: f64,
    /// The number must be above `min`.
    is_open: bool,
    max: f64,
    unit: &'static str,
}

impl NumberRange {
    /// Finite numbers above 0.
    pub const POSITIVE: NumberRange = NumberRange::above_zero(f64::MAX, "");

    /// Numbers above 0 and at most `max`.
    pub const fn above_zero(max: f64, unit: &'static str) -> Self {
        NumberRange { min: 0.0, is_open: true, max, unit }
    }

    /// Numbers from 0 to `max`.
    pub const fn from_zero(max: f64, unit: &'static str) -> Self {
        NumberRange { min: 0.0, is_open: false, max, unit }
    }

    /// Returns whether a number is in the range.
    pub fn contains(&self, number: f64) -> bool {
        let is_enough = if self.is_open { number > self.min } else { number >= self.min };
        is_enough && number <= self.max
    }
}

impl Display for NumberRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.is_open { "above" } else { "of at least" };
        write!(f, "a number {least} {}", self.min)?;
        if self.max < f64::MAX {
            write!(f, " and at most {}", self.max)?;
        }
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}
