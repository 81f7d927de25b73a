//! Units and their factors. Inside the crate a time is an `f64` of microseconds, data is bytes, work is FLOP and a
//! rate is per second. Every factor between those and the units that people read or write lives in this file.
#![expect(clippy::cast_possible_truncation, reason = "the whole part is the point")]

/// Binary gibi, 2³⁰ bytes.
pub const GIB: f64 = 1_073_741_824.0;
/// Giga, 10⁹: datasheets quote bandwidths in GB/s.
pub const GIGA: f64 = 1e9;
/// Tera, 10¹²: datasheets quote peaks in TFLOP/s.
pub const TERA: f64 = 1e12;
/// Microseconds in a second.
pub const US_PER_S: f64 = 1e6;
/// Microseconds in a millisecond; kernel measurements are published in milliseconds.
pub const US_PER_MS: f64 = 1e3;
/// Nanoseconds in a second; the clock of replays counts whole nanoseconds.
pub const NS_PER_S: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const NS_PER_MS: u64 = 1_000_000;
/// Nanoseconds in a microsecond.
pub const NS_PER_US: u64 = 1_000;

/// Returns true for a default value. Used to omit such fields from JSON.
pub fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Nanoseconds of a replay's clock in microseconds.
pub fn ns_to_us(ns: u64) -> f64 {
    ns as f64 / NS_PER_US as f64
}

/// Nanoseconds of a replay's clock in milliseconds.
pub fn ns_to_ms(ns: u64) -> f64 {
    ns as f64 / NS_PER_MS as f64
}

/// Nanoseconds of a replay's clock in seconds.
pub fn ns_to_s(ns: u64) -> f64 {
    ns as f64 / NS_PER_S as f64
}

/// Time in microseconds to do `work` at `rate_per_s`, both in the same unit (FLOP and FLOP/s, or bytes and bytes/s).
///
/// ```
/// // 989.4 TFLOP at 989.4 TFLOP/s take one second.
/// assert_eq!(ridgepoint::units::time_us(989.4e12, 989.4e12), 1e6);
/// ```
pub fn time_us(work: f64, rate_per_s: f64) -> f64 {
    work / rate_per_s * US_PER_S
}

/// The larger of two numbers: one instruction, where [`f64::max`] needs six to care for NaN. NaN in `a` gives `b`.
#[inline]
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// The smaller of two numbers. NaN in `a` gives `b`.
#[inline]
pub(crate) fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// Converts `u128` to `f64`, with a fast path for values that fit in an `i64`.
#[inline]
pub fn real_wide(sum: u128) -> f64 {
    // Inlined, the compiler would merge both conversions into the slow one.
    #[cold]
    #[inline(never)]
    fn huge(sum: u128) -> f64 {
        sum as f64
    }
    match i64::try_from(sum) {
        Ok(sum) => sum as f64,
        Err(_) => huge(sum),
    }
}

/// [`f64::ceil`] of a positive number, inline: on the oldest x86-64 the method is a call.
#[inline]
pub(crate) fn ceiling(value: f64) -> f64 {
    const WHOLE_FROM: f64 = (1u64 << 52) as f64;
    if value >= WHOLE_FROM {
        return value;
    }
    let down = value as i64 as f64;
    if down < value { down + 1.0 } else { down }
}

/// A count below 2⁶³ as a number: one instruction, where an unsigned conversion needs several.
#[inline]
pub fn real(count: u64) -> f64 {
    count.cast_signed() as f64
}

/// A number with a decimal SI prefix and three or four significant digits: `1.234 T`, `56.78 M`, `901`.
pub fn si(value: f64) -> String {
    let magnitude = value.abs();
    let (scaled, prefix) = [(1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")]
        .into_iter()
        .find(|(factor, _)| magnitude >= *factor)
        .map_or((value, ""), |(factor, prefix)| (value / factor, prefix));
    let digits = if prefix.is_empty() && magnitude.fract() < f64::EPSILON {
        0
    } else if scaled.abs() >= 100.0 {
        1
    } else if scaled.abs() >= 10.0 {
        2
    } else {
        3
    };
    format!("{scaled:.digits$}{prefix}")
}

/// A duration for people: microseconds below 1 ms, else milliseconds.
pub fn duration(time_us: f64) -> String {
    if time_us < 100.0 {
        format!("{time_us:.2} µs")
    } else if time_us < US_PER_MS {
        format!("{time_us:.1} µs")
    } else {
        format!("{:.3} ms", time_us / US_PER_MS)
    }
}

#[cfg(test)]
mod tests {
    use approx::assert_relative_eq;

    use super::*;

    #[test]
    fn binary_and_decimal_factors_are_not_mixed() {
        assert_relative_eq!(GIB / 1e9, 1.073_741_824, max_relative = 1e-12);
    }

    #[test]
    fn a_ceiling_is_a_ceiling() {
        for value in [0.1, 1.0, 1.5, 2.0, 15.999, 16.0, 16.001, 1e9 + 0.5, 1e300] {
            assert!((ceiling(value) - f64::ceil(value)).abs() < f64::MIN_POSITIVE);
        }
    }

    #[test]
    fn si_keeps_about_four_digits() {
        assert_eq!(si(1_234_000_000_000.0), "1.234 T");
        assert_eq!(si(56_780_000.0), "56.78 M");
        assert_eq!(si(901.0), "901");
        assert_eq!(si(0.0), "0");
    }
}
