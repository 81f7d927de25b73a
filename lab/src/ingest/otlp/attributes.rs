//! Attributes of resources, spans and events as what they must be: counts, names, times. Uses OpenTelemetry's types, `dropped`.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;

use crate::ingest::{Reason, seconds_to_ns};
use ridgepoint::internals::error::cut;

/// A floating-point `ts.monotonic` counts seconds; from here on, 31 years after the machine started, it can't.
const MAX_MONOTONIC_S: f64 = 1e9;
/// Largest whole number up to which an `f64` holds each.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fault {
    /// An attribute or id that is needed is not there.
    Missing(String),
    /// A value that can't be.
    Bad(String),
}

impl Fault {
    pub(super) fn reason(&self) -> Reason {
        match self {
            Fault::Missing(_) => Reason::Incomplete,
            Fault::Bad(_) => Reason::BadValue,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Fault::Missing(text) | Fault::Bad(text) => text,
        }
    }

    fn bad(key: &str, value: &Value, expected: &str) -> Self {
        Fault::Bad(format!("{key} is {}, expected {expected}", shown(value)))
    }
}

/// A list of attributes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes<'a>(pub(super) &'a [KeyValue]);

impl<'a> Attributes<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        let attribute = self.0.iter().find(|attribute| attribute.key == key)?;
        attribute.value.as_ref()?.value.as_ref()
    }

    /// A count; whole numbers in other clothes (`"12"`, `12.0`) are counts too.
    pub(super) fn count(&self, key: &str) -> Result<Option<u64>, Fault> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let count = match value {
            Value::IntValue(count) => u64::try_from(*count).ok(),
            Value::DoubleValue(count) if *count >= 0.0 && *count <= MAX_EXACT && count.fract() < f64::EPSILON => {
                Some(*count as u64)
            }
            Value::StringValue(digits) => digits.parse().ok(),
            _ => None,
        };
        count.map(Some).ok_or_else(|| Fault::bad(key, value, "a whole number from 0"))
    }

    /// A count that fits 32 bits.
    pub(super) fn small_count(&self, key: &str) -> Result<Option<u32>, Fault> {
        let Some(count) = self.count(key)? else { return Ok(None) };
        let small = u32::try_from(count).map_err(|_| Fault::Bad(format!("{key} is {count}, more than {}", u32::MAX)));
        small.map(Some)
    }

    /// A count that must be there.
    pub(super) fn needed(&self, key: &str) -> Result<u64, Fault> {
        self.count(key)?.ok_or_else(|| Fault::Missing(format!("{key} is missing")))
    }

    /// A count that must be there and fit 32 bits.
    pub(super) fn small_needed(&self, key: &str) -> Result<u32, Fault> {
        self.small_count(key)?.ok_or_else(|| Fault::Missing(format!("{key} is missing")))
    }

    /// A duration in seconds, as ns.
    pub(super) fn seconds_as_ns(&self, key: &str) -> Result<Option<u64>, Fault> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let seconds = match value {
            Value::DoubleValue(seconds) => *seconds,
            Value::IntValue(seconds) => *seconds as f64,
            _ => f64::NAN,
        };
        if (0.0..MAX_MONOTONIC_S).contains(&seconds) {
            Ok(Some(seconds_to_ns(seconds)))
        } else {
            Err(Fault::bad(key, value, "a number of seconds from 0"))
        }
    }

    /// `ts.monotonic` in ns: an integer is nanoseconds, a floating-point number seconds.
    pub(super) fn monotonic_ns(&self) -> Result<Option<u64>, Fault> {
        const KEY: &str = "ts.monotonic";
        match self.get(KEY) {
            None => Ok(None),
            Some(Value::DoubleValue(_)) => self.seconds_as_ns(KEY),
            Some(_) => self.count(KEY),
        }
    }

    /// A text that is not empty.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        match self.get(key)? {
            Value::StringValue(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// A text or number as text, where not empty.
    pub(super) fn name(&self, key: &str) -> Option<String> {
        match self.get(key)? {
            Value::IntValue(number) => Some(number.to_string()),
            _ => self.text(key).map(str::to_owned),
        }
    }

    /// The first of some keys that has a text.
    pub(super) fn first_text(&self, keys: &[&str]) -> Option<&'a str> {
        keys.iter().find_map(|key| self.text(key))
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::StringValue(text) => format!("'{}'", cut(text)),
        Value::BoolValue(value) => value.to_string(),
        Value::IntValue(value) => value.to_string(),
        Value::DoubleValue(value) => format!("{value:?}"),
        _ => "a list or object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::common::v1::AnyValue;

    fn one(key: &str, value: Value) -> Vec<KeyValue> {
        vec![KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }]
    }

    #[test]
    fn counts_come_in_three_clothes_and_nothing_else() {
        for value in [Value::IntValue(12), Value::DoubleValue(12.0), Value::StringValue("12".to_owned())] {
            assert_eq!(Attributes(&one("n", value)).count("n"), Ok(Some(12)));
        }
        for value in [
            Value::IntValue(-1),
            Value::DoubleValue(1.5),
            Value::DoubleValue(f64::NAN),
            Value::DoubleValue(1e300),
            Value::StringValue("many".to_owned()),
            Value::BoolValue(true),
        ] {
            let fault = Attributes(&one("n", value)).count("n").unwrap_err();
            assert_eq!(fault.reason(), Reason::BadValue);
            assert!(fault.text().starts_with("n is "), "{}", fault.text());
        }
        assert_eq!(
            Attributes(&one("n", Value::IntValue(1 << 33))).small_count("n").unwrap_err().reason(),
            Reason::BadValue
        );
        assert_eq!(Attributes(&[]).needed("n").unwrap_err(), Fault::Missing("n is missing".to_owned()));
    }

    #[test]
    fn integers_are_nanoseconds_and_floats_seconds() {
        let ns = |value| Attributes(&one("ts.monotonic", value)).monotonic_ns();
        assert_eq!(ns(Value::IntValue(20_020_938_183_118)), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(Value::StringValue("20020938183118".to_owned())), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(Value::DoubleValue(20_020.5)), Ok(Some(20_020_500_000_000)));
        // A unix time in seconds, or nanoseconds as a float: which one can't be told.
        for value in [1_700_000_000.0, 2.0e13, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ns(Value::DoubleValue(value)).is_err(), "{value}");
        }
        assert!(ns(Value::IntValue(-5)).is_err());
    }
}
