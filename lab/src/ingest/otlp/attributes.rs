//! Attributes of resources, spans and events as counts, names and times.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use ridgepoint::internals::error::cut;

use crate::ingest::batch_summary::Counts;
use crate::ingest::{Reason, seconds_to_ns};

/// Attributes that name the model, on resources and on spans.
const MODEL_KEYS: [&str; 3] = ["gen_ai.response.model", "gen_ai.request.model", "model_name"];
/// Floating-point times count seconds. From here on, 31 years after the machine started, they cannot.
const MAX_SECONDS: f64 = 1e9;
/// Every whole number up to this one is exact as `f64`.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Why a record is dropped.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub(super) reason: Reason,
    pub(super) text: String,
}

impl Fault {
    /// A value that cannot be.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Fault { reason: Reason::BadValue, text: text.into() }
    }

    /// An attribute or id that is needed and not there.
    pub(super) fn missing(text: impl Into<String>) -> Self {
        Fault { reason: Reason::Incomplete, text: text.into() }
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

    /// A duration in seconds, as ns.
    pub(super) fn seconds_as_ns(&self, key: &str) -> Result<Option<u64>, Fault> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let seconds = match value {
            Value::DoubleValue(seconds) => *seconds,
            Value::IntValue(seconds) => *seconds as f64,
            _ => f64::NAN,
        };
        if (0.0..MAX_SECONDS).contains(&seconds) {
            Ok(Some(seconds_to_ns(seconds)))
        } else {
            Err(self.contradiction(key, "a number of seconds from 0".to_owned()))
        }
    }

    /// `ts.monotonic` in ns: an integer is nanoseconds, a floating-point number seconds.
    pub(super) fn monotonic_ns(&self) -> Result<Option<u64>, Fault> {
        const KEY: &str = "ts.monotonic";
        match self.get(KEY) {
            Some(Value::DoubleValue(_)) => self.seconds_as_ns(KEY),
            _ => self.optional(KEY),
        }
    }

    /// A text that is not empty.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        match self.get(key)? {
            Value::StringValue(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// A text or an integer as text, where not empty.
    pub(super) fn name(&self, key: &str) -> Option<String> {
        match self.get(key)? {
            Value::IntValue(number) => Some(number.to_string()),
            _ => self.text(key).map(str::to_owned),
        }
    }

    /// The first of some keys that has a text.
    pub(super) fn first_text(&self, keys: &[&str]) -> Option<String> {
        keys.iter().find_map(|key| self.text(key)).map(str::to_owned)
    }

    /// The model that the attributes name.
    pub(super) fn model(&self) -> Option<String> {
        self.first_text(&MODEL_KEYS)
    }
}

impl Counts for Attributes<'_> {
    type Fault = Fault;

    /// A count; texts and floating-point numbers of a whole number (`"12"`, `12.0`) are counts too.
    fn optional<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, Fault> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let count = match value {
            Value::IntValue(count) => u64::try_from(*count).ok(),
            Value::DoubleValue(count) if *count >= 0.0 && *count <= MAX_EXACT && count.fract() < f64::EPSILON => {
                Some(*count as u64)
            }
            Value::StringValue(digits) => digits.parse().ok(),
            _ => None,
        };
        let count = count.and_then(|count| T::try_from(count).ok());
        let max = if size_of::<T>() <= 4 { u64::from(u32::MAX) } else { u64::MAX };
        count.map(Some).ok_or_else(|| self.contradiction(name, format!("a whole number from 0 to {max}")))
    }

    fn required<T: TryFrom<u64>>(&self, name: &str) -> Result<T, Fault> {
        self.optional(name)?.ok_or_else(|| Fault::missing(format!("{name} is missing")))
    }

    fn contradiction(&self, name: &str, expected: String) -> Fault {
        let shown = match self.get(name) {
            Some(Value::StringValue(text)) => format!("'{}'", cut(text)),
            Some(Value::BoolValue(value)) => value.to_string(),
            Some(Value::IntValue(value)) => value.to_string(),
            Some(Value::DoubleValue(value)) => format!("{value:?}"),
            _ => "a list or object".to_owned(),
        };
        Fault::bad(format!("{name} is {shown}, expected {expected}"))
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
    fn counts_have_three_types_and_no_others() {
        for value in [Value::IntValue(12), Value::DoubleValue(12.0), Value::StringValue("12".to_owned())] {
            assert_eq!(Attributes(&one("n", value)).optional::<u64>("n"), Ok(Some(12)));
        }
        for value in [
            Value::IntValue(-1),
            Value::DoubleValue(1.5),
            Value::DoubleValue(f64::NAN),
            Value::DoubleValue(1e300),
            Value::StringValue("many".to_owned()),
            Value::BoolValue(true),
        ] {
            let fault = Attributes(&one("n", value)).optional::<u64>("n").unwrap_err();
            assert_eq!(fault.reason, Reason::BadValue);
            assert!(fault.text.starts_with("n is "), "{}", fault.text);
        }
        let large = one("n", Value::IntValue(1 << 33));
        assert_eq!(Attributes(&large).optional::<u32>("n").unwrap_err().reason, Reason::BadValue);
        assert_eq!(Attributes(&[]).required::<u64>("n").unwrap_err(), Fault::missing("n is missing"));
    }

    #[test]
    fn integers_are_nanoseconds_and_floats_seconds() {
        let ns = |value| Attributes(&one("ts.monotonic", value)).monotonic_ns();
        assert_eq!(ns(Value::IntValue(20_020_938_183_118)), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(Value::StringValue("20020938183118".to_owned())), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(Value::DoubleValue(20_020.5)), Ok(Some(20_020_500_000_000)));
        // A unix time in seconds, or nanoseconds as a float: the two cannot be told apart.
        for value in [1_700_000_000.0, 2.0e13, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ns(Value::DoubleValue(value)).is_err(), "{value}");
        }
        assert!(ns(Value::IntValue(-5)).is_err());
    }
}
