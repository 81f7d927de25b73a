//! Ranges of numbers that keys and cells may have, and how messages state them.

use std::fmt::{self, Display};

/// Numbers that a key or cell may have.
#[derive(Debug, Clone, Copy)]
pub struct NumberRange {
    /// Whether 0 is among them.
    has_zero: bool,
    max: f64,
    unit: &'static str,
}

impl NumberRange {
    /// Finite numbers above 0.
    pub const POSITIVE: NumberRange = NumberRange::above_zero(f64::MAX, "");

    /// Numbers above 0 and at most `max`.
    pub const fn above_zero(max: f64, unit: &'static str) -> Self {
        NumberRange { has_zero: false, max, unit }
    }

    /// Numbers from 0 to `max`.
    pub const fn from_zero(max: f64, unit: &'static str) -> Self {
        NumberRange { has_zero: true, max, unit }
    }

    /// Returns whether a number is in the range.
    pub fn contains(&self, number: f64) -> bool {
        (number > 0.0 || (self.has_zero && number >= 0.0)) && number <= self.max
    }
}

impl Display for NumberRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_zero { "a number of at least 0" } else { "a number above 0" })?;
        if self.max < f64::MAX {
            write!(f, " and at most {}", self.max)?;
        }
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}
