//! Ranges of numbers that keys and cells may have, and how messages state them.

use std::fmt::{self, Display};

/// Numbers that a key or cell may have.
#[derive(Debug, Clone, Copy)]
pub struct NumberRange {
    /// The least number; `None` stands for anything above 0.
    min: Option<f64>,
    max: f64,
    unit: &'static str,
}

impl NumberRange {
    /// Finite numbers above 0.
    pub const POSITIVE: NumberRange = NumberRange::above_zero(f64::MAX, "");

    /// Numbers above 0 and at most `max`.
    pub const fn above_zero(max: f64, unit: &'static str) -> Self {
        NumberRange { min: None, max, unit }
    }

    /// Numbers from 0 to `max`.
    pub const fn from_zero(max: f64, unit: &'static str) -> Self {
        NumberRange::between(0.0, max, unit)
    }

    /// Numbers from `min` to `max`.
    pub const fn between(min: f64, max: f64, unit: &'static str) -> Self {
        NumberRange { min: Some(min), max, unit }
    }

    /// Returns the least number, `None` for anything above 0, and the greatest one.
    pub const fn bounds(&self) -> (Option<f64>, f64) {
        (self.min, self.max)
    }

    /// Returns whether a number is not below the range.
    pub fn is_above_least(&self, number: f64) -> bool {
        self.min.map_or(number > 0.0, |min| number >= min)
    }

    /// Returns whether a number is in the range.
    pub fn contains(&self, number: f64) -> bool {
        self.is_above_least(number) && number <= self.max
    }
}

impl Display for NumberRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min {
            Some(min) if min < 0.0 => write!(f, "a number from {min} to {}", self.max)?,
            Some(min) if min > 0.0 => write!(f, "a number from {min:e} to {:e}", self.max)?,
            min => {
                f.write_str(if min.is_some() { "a number of at least 0" } else { "a number above 0" })?;
                if self.max < f64::MAX {
                    write!(f, " and at most {}", self.max)?;
                }
            }
        }
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}
