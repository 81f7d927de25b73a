//! Numbers as people read them: counts, shares, quantities with units.

use ridgepoint::units::si;

/// A count with its digits in groups of three: `1,234,567`.
pub fn count(n: impl TryInto<u64>) -> String {
    let mut digits = n.try_into().unwrap_or(u64::MAX).to_string();
    for at in (1..digits.len()).rev().filter(|at| (digits.len() - at).is_multiple_of(3)).collect::<Vec<_>>() {
        digits.insert(at, ',');
    }
    digits
}

/// `1 decode`, `2 decodes`.
pub fn plural(n: u64, noun: &str) -> String {
    let ending = if noun.ends_with("ch") { "es" } else { "s" };
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { ending })
}

/// A share as a percentage with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Number and unit with an SI prefix: `235.1 MB`.
pub fn quantity(value: f64, unit: &str) -> String {
    let text = si(value);
    if text.contains(' ') { format!("{text}{unit}") } else { format!("{text} {unit}") }
}

/// Four significant digits, without an exponent where that reads well.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of digits, from 0 to a few")]
pub fn four_digits(value: f64) -> String {
    let size = value.abs();
    if !(1e-4..1e7).contains(&size) && size > 0.0 {
        return format!("{value:.3e}");
    }
    let digits = if size >= 1.0 { 3 - (size.log10().floor() as i32).min(3) } else { 4 };
    let text = format!("{value:.*}", digits.max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A number with two decimals, or a dash where there is none.
pub fn number(value: Option<f64>) -> String {
    shown(value, |value| format!("{value:.2}"))
}

/// A value as text, or a dash where there is none.
pub fn shown<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!([0u64, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn quantities_have_one_blank_before_the_unit() {
        assert_eq!(quantity(235_100_000.0, "B"), "235.1 MB");
        assert_eq!(quantity(12.0, "B"), "12 B");
    }

    #[test]
    fn numbers_keep_four_digits() {
        let shown = [0.0, 1.0, 0.05, 12.3456, 1234.56, 1e9, -2.5e-7].map(four_digits);
        assert_eq!(shown, ["0", "1", "0.05", "12.35", "1235", "1.000e9", "-2.500e-7"]);
    }
}
