//! The values of a table's line: a number is three digits as a rule, so that a blank stands only where one is needed to tell two values
//! apart. `412389=~ 41.5` is five of them: 412, 389, =, ~ and 41.5.

/// Mark of a measured value that the neighbouring numbers give.
pub const MEASURED: &str = "=";
/// Marks a value that was filled in. Its number follows, unless its neighbours give it.
pub const FILLED_IN: char = '~';

/// Digits of a number that needs no blank beside its like.
const DIGITS: usize = 3;

/// Mark of a value beyond the measurements. Beside a number it has a blank, as a number may not be negative.
pub const UNKNOWN: char = '-';

/// The values of a line, one after the other. A number of digits that is no multiple of three, or has a point, is one value.
pub fn split(values: &str) -> impl Iterator<Item = &str> {
    let mut rest = values;
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        let value;
        (value, rest) = rest.split_at_checked(value_size(rest))?;
        (!value.is_empty()).then_some(value)
    })
}

/// A line of values.
pub fn joined(values: &[String]) -> String {
    let mut text = String::new();
    let mut last = MEASURED;
    for value in values {
        let is_apart = last == MEASURED || value.starts_with(['=', FILLED_IN]);
        if !(is_apart || (is_mark(last) && is_mark(value)) || (is_plain(last) && is_plain(value))) {
            text.push(' ');
        }
        text.push_str(value);
        last = value;
    }
    text
}

/// The size of the value that a text begins with.
fn value_size(text: &str) -> usize {
    let of_mark = usize::from(text.starts_with(is_mark_char));
    let number = text.get(of_mark..).unwrap_or_default();
    let size = number.find(|c: char| c.is_ascii_whitespace() || matches!(c, '=' | FILLED_IN)).unwrap_or(number.len());
    let is_run = size.is_multiple_of(DIGITS) && number.bytes().take(size).all(|byte| byte.is_ascii_digit());
    match text.chars().next() {
        Some('=') => 1,
        Some(FILLED_IN | UNKNOWN) if number.starts_with(is_mark_char) => 1,
        _ if is_run => of_mark + size.min(DIGITS),
        _ => of_mark + size,
    }
}

/// Whether a value is three digits, filled in or not.
fn is_plain(value: &str) -> bool {
    let number = value.trim_start_matches(FILLED_IN);
    number.len() == DIGITS && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a value is a mark without a number.
fn is_mark(value: &str) -> bool {
    value.chars().all(is_mark_char)
}

fn is_mark_char(c: char) -> bool {
    matches!(c, '=' | FILLED_IN | UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blanks_stand_where_values_would_run_together() {
        let text = |values: &str| joined(&values.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(text("412 = = ~ 415 ~7 - - ~7"), "412==~ 415~7 --~7");
        assert_eq!(text("412 389 ~415 416"), "412389~415416");
        assert_eq!(text("65.3 = .5 412 1000 999"), "65.3=.5 412 1000 999");
        assert_eq!(text("- 3 412 -"), "- 3 412 -");
        assert_eq!(text("~ ~ 3"), "~~ 3");
        let values = |text| split(text).collect::<Vec<_>>();
        assert_eq!(values(" 412389 =~ 415~7 1000"), ["412", "389", "=", "~", "415", "~7", "1000"]);
        assert_eq!(values("412 389"), values("412389"), "blanks may stand anywhere");
        assert_eq!(values("4x2 1e-3 -5 ~-5=5"), ["4x2", "1e-3", "-5", "~", "-5", "=", "5"]);
        assert!(values("  ").is_empty());
    }

    proptest! {
        #[test]
        fn a_line_reads_back_as_it_was_written(
            values in prop::collection::vec("=|-|~|~?([1-9][0-9]{2}|1000|[0-9]|[1-9]?[0-9]\\.[0-9]|\\.[0-9]{1,3})", 0..12)
        ) {
            prop_assert_eq!(split(&joined(&values)).map(str::to_owned).collect::<Vec<_>>(), values);
        }
    }
}
