//! The clock of a published trace: its times count from the earliest row, whatever they are written in.
#![expect(clippy::cast_possible_truncation, reason = "floats saturate; the span is checked")]

use ridgepoint::units::{NS_PER_MS, NS_PER_S, NS_PER_US};
use ridgepoint::{Error, Result};

use super::azure::{DATE, instant_ns};
use super::limits::MAX_TIME_NS;
use super::roles::ns_per_unit;
use crate::input::Row;

/// Reads the times of a trace, each as ns after the first row, moved by [`MAX_TIME_NS`] so that rows may be out of order.
#[derive(Debug, Default)]
pub(super) struct TraceClock {
    /// How the first row writes its time, and the time.
    first: Option<(TimeNotation, i128)>,
}

/// How times are written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TimeNotation {
    Date,
    Number { ns_per_unit: u64 },
}

impl TraceClock {
    /// Returns whether the times of a row are those of a published trace.
    pub(super) fn is_of(row: &Row<'_>) -> bool {
        row.is_by_role("arrival")
    }

    /// Reads the time of a row. `without_unit` is the unit of numbers whose column names none.
    pub(super) fn read(&mut self, row: &Row<'_>, without_unit: u64) -> Result<u64> {
        let first = self.first;
        let unit = || ns_per_unit(row.name("arrival"));
        let found = row.read("arrival", format_args!("a number, or {DATE}"), |text| {
            let written = first.map_or_else(|| TimeNotation::of(text, unit(), without_unit), |(written, _)| written);
            Some((written, written.instant_ns(text)?))
        })?;
        let (_, first_ns) = *self.first.get_or_insert(found);
        let moved = found.1 - first_ns + i128::from(MAX_TIME_NS);
        let moved = u64::try_from(moved).ok().filter(|moved| *moved <= 2 * MAX_TIME_NS);
        moved.ok_or_else(|| row.bad("arrival", "a time within 31 years of the first row's"))
    }

    /// Moves times so that the earliest is 0.
    ///
    /// # Errors
    /// Times that are 31 years apart.
    pub(super) fn from_earliest(origin: &str, times_ns: &mut [&mut u64]) -> Result<()> {
        let earliest_ns = times_ns.iter().map(|time_ns| **time_ns).min().unwrap_or(0);
        for time_ns in times_ns {
            **time_ns -= earliest_ns;
            if **time_ns > MAX_TIME_NS {
                return Err(Error::parse(origin, "has arrivals that are more than 31 years apart"));
            }
        }
        Ok(())
    }

    /// Says what unit the times were taken to have, where their name does not.
    pub(super) fn note(&self, name: &str) -> Option<String> {
        let (TimeNotation::Number { ns_per_unit: taken }, _) = self.first? else { return None };
        if ns_per_unit(name).is_some() {
            return None;
        }
        let unit = match taken {
            NS_PER_S => "s",
            NS_PER_MS => "ms",
            NS_PER_US => "µs",
            _ => "ns",
        };
        Some(format!("the times of column '{name}' are taken as {unit} and count from the earliest"))
    }
}

impl TimeNotation {
    /// Unix times are known by their size, which no trace that begins at 0 reaches.
    fn of(text: &str, unit: Option<u64>, without_unit: u64) -> Self {
        let Ok(number) = text.parse::<f64>() else { return TimeNotation::Date };
        let by_size = match number.abs() {
            number if number >= 1e17 => 1,
            number if number >= 1e14 => NS_PER_US,
            number if number >= 1e11 => NS_PER_MS,
            number if number >= 1e9 => NS_PER_S,
            _ => without_unit,
        };
        TimeNotation::Number { ns_per_unit: unit.unwrap_or(by_size) }
    }

    fn instant_ns(self, text: &str) -> Option<i128> {
        let TimeNotation::Number { ns_per_unit } = self else { return instant_ns(text).map(i128::from) };
        if let Ok(whole) = text.parse::<i64>() {
            return Some(i128::from(whole) * i128::from(ns_per_unit));
        }
        let time_ns = text.parse::<f64>().ok()? * ns_per_unit as f64;
        time_ns.is_finite().then(|| time_ns.round() as i128)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_times_are_known_by_their_size() {
        let unit = |text| match TimeNotation::of(text, None, NS_PER_S) {
            TimeNotation::Number { ns_per_unit } => ns_per_unit,
            TimeNotation::Date => 0,
        };
        assert_eq!(
            ["5", "1700000000.5", "1700000000000", "1700000000000000", "1700000000000000000"].map(unit),
            [NS_PER_S, NS_PER_S, NS_PER_MS, NS_PER_US, 1]
        );
        assert_eq!(unit("2025-01-01 00:00:00.5"), 0);
        assert_eq!(TimeNotation::of("1700000000000", Some(1), NS_PER_S), TimeNotation::Number { ns_per_unit: 1 });
    }
}
