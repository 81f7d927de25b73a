//! Attributes of resources, spans and events as counts, names and times.

use ridgepoint::internals::error::cut;
use serde_json::Value;

use crate::ingest::batch_summary::Counts;
use crate::ingest::{Dropped, Reason, seconds_to_ns};

/// Attributes that name the model, on resources and on spans.
const MODEL_KEYS: [&str; 3] = ["gen_ai.response.model", "gen_ai.request.model", "model_name"];
/// Floating-point times count seconds. From here on, 31 years after the machine started, they cannot.
const MAX_SECONDS: f64 = 1e9;
/// Every whole number up to this one is exact as `f64`.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Why a record is dropped.
pub(super) type Fault = (Reason, String);

/// Counts dropped records by reason, and keeps the text of the first fault.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) dropped: Dropped,
    pub(super) first: Option<String>,
}

impl Faults {
    pub(super) fn add(&mut self, (reason, text): Fault) {
        self.dropped.add(reason);
        self.first.get_or_insert(text);
    }

    /// Returns the value of a sound record; a broken one is counted.
    pub(super) fn sound<T>(&mut self, record: Result<T, Fault>) -> Option<T> {
        record.map_err(|fault| self.add(fault)).ok()
    }
}

/// The attributes of a resource, span or event: a list of `{"key": "step.id", "value": {"intValue": "12"}}`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes<'a>(&'a Value);

impl<'a> Attributes<'a> {
    /// The attributes of an object.
    pub(super) fn of(object: &'a Value) -> Self {
        Attributes(&object["attributes"])
    }

    /// The type of an attribute's value, such as `intValue`, and the value.
    fn get(&self, key: &str) -> Option<(&'a str, &'a Value)> {
        let attribute = self.0.as_array()?.iter().find(|attribute| attribute["key"] == key)?;
        attribute["value"].as_object()?.iter().next().map(|(kind, value)| (kind.as_str(), value))
    }

    /// A duration in seconds, as ns.
    pub(super) fn seconds_as_ns(&self, key: &str) -> Result<Option<u64>, Fault> {
        let Some((_, value)) = self.get(key) else { return Ok(None) };
        match value.as_f64() {
            Some(seconds) if (0.0..MAX_SECONDS).contains(&seconds) => Ok(Some(seconds_to_ns(seconds))),
            _ => Err(self.fault(key, "a number of seconds from 0".to_owned())),
        }
    }

    /// `ts.monotonic` in ns: an integer is nanoseconds, a floating-point number seconds.
    pub(super) fn monotonic_ns(&self) -> Result<Option<u64>, Fault> {
        const KEY: &str = "ts.monotonic";
        match self.get(KEY) {
            Some(("doubleValue", _)) => self.seconds_as_ns(KEY),
            _ => self.unsigned(KEY),
        }
    }

    /// A text that is not empty.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        let (kind, value) = self.get(key)?;
        value.as_str().filter(|text| kind == "stringValue" && !text.is_empty())
    }

    /// A text or an integer as text, where not empty.
    pub(super) fn name(&self, key: &str) -> Option<String> {
        match self.get(key)? {
            ("intValue", number) => Some(number.to_string().trim_matches('"').to_owned()),
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

    /// Texts and floating-point numbers of a whole number (`"12"`, `12.0`) are numbers too.
    fn unsigned(&self, name: &str) -> Result<Option<u64>, Fault> {
        let Some((_, value)) = self.get(name) else { return Ok(None) };
        let whole = |number: f64| {
            ((0.0..=MAX_EXACT).contains(&number) && number.fract() < f64::EPSILON).then_some(number as u64)
        };
        let number = match value {
            Value::String(digits) => digits.parse().ok(),
            value => value.as_u64().or_else(|| whole(value.as_f64()?)),
        };
        number.map(Some).ok_or_else(|| self.fault(name, format!("a whole number up to {}", u64::MAX)))
    }

    fn fault(&self, name: &str, expected: String) -> Fault {
        match self.get(name) {
            Some((_, value)) => {
                (Reason::BadValue, format!("{name} is {}, expected {expected}", cut(&value.to_string())))
            }
            None => (Reason::Incomplete, format!("{name} is missing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(key: &str, value: Value) -> Value {
        json!({ "attributes": [{ "key": key, "value": value }] })
    }

    #[test]
    fn counts_have_three_types_and_no_others() {
        for value in [json!({ "intValue": 12 }), json!({ "doubleValue": 12.0 }), json!({ "stringValue": "12" })] {
            assert_eq!(Attributes::of(&one("n", value)).unsigned("n"), Ok(Some(12)));
        }
        for value in [
            json!({ "intValue": -1 }),
            json!({ "intValue": "-1" }),
            json!({ "doubleValue": 1.5 }),
            json!({ "doubleValue": "NaN" }),
            json!({ "doubleValue": 1e300 }),
            json!({ "stringValue": "many" }),
            json!({ "boolValue": true }),
            json!({ "arrayValue": {} }),
        ] {
            let fault = Attributes::of(&one("n", value)).unsigned("n").unwrap_err();
            assert_eq!(fault.0, Reason::BadValue);
            assert!(fault.1.starts_with("n is "), "{fault:?}");
        }
        let large = one("n", json!({ "intValue": 1u64 << 33 }));
        assert_eq!(Attributes::of(&large).count::<u32>("n").unwrap_err().0, Reason::BadValue);
        assert_eq!(
            Attributes::of(&json!({})).required::<u64>("n").unwrap_err(),
            (Reason::Incomplete, "n is missing".to_owned())
        );
    }

    #[test]
    fn integers_are_nanoseconds_and_floats_seconds() {
        let ns = |value| Attributes::of(&one("ts.monotonic", value)).monotonic_ns();
        assert_eq!(ns(json!({ "intValue": 20_020_938_183_118u64 })), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(json!({ "intValue": "20020938183118" })), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(json!({ "stringValue": "20020938183118" })), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(json!({ "doubleValue": 20_020.5 })), Ok(Some(20_020_500_000_000)));
        // A unix time in seconds, or nanoseconds as a float: the two cannot be told apart.
        for value in [json!(1_700_000_000.0), json!(2.0e13), json!(-1.0), json!("NaN"), json!("Infinity")] {
            assert!(ns(json!({ "doubleValue": value })).is_err(), "{value}");
        }
        assert!(ns(json!({ "intValue": -5 })).is_err());
    }
}
