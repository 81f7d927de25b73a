//! The times that a measurement can have, in each unit that files use: from 1 ns, as clocks count whole nanoseconds, to 10⁶ s,
//! as no run of an engine or a benchmark lasts twelve days. Ratios of two such times, and their squares, are finite.

use ridgepoint::input::NumberRange;

/// In seconds.
pub const SECONDS: NumberRange = NumberRange::between(1e-9, 1e6, "s");
/// In milliseconds.
pub const MILLISECONDS: NumberRange = NumberRange::between(1e-6, 1e9, "ms");
/// In microseconds.
pub const MICROSECONDS: NumberRange = NumberRange::between(1e-3, 1e12, "µs");
