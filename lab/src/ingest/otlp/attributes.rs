//! Attributes of resources, spans and events as counts, names and times.

use csv::StringRecord;
use ridgepoint::input::{NumberRange, whole_text};
use ridgepoint::unstable::error::cut;
use ridgepoint_replay::input::read_texts;
use serde::de::DeserializeOwned;

use crate::ingest::{DropReason, Dropped, seconds_to_ns};

/// Attributes that name the model, on resources and on spans.
const MODEL_KEYS: [&str; 3] = ["gen_ai.response.model", "gen_ai.request.model", "model_name"];
/// Floating-point times count seconds. From here on, 31 years after the machine started, they cannot.
const MAX_SECONDS: f64 = 1e9;
/// The engine's clock.
pub(super) const MONOTONIC: &str = "ts.monotonic";

/// Why a record is dropped.
pub(super) type Fault = (DropReason, String);

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

/// The attributes of a resource, span or event, as texts. Of equal keys the first counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Attributes {
    keys: StringRecord,
    texts: StringRecord,
}

impl Attributes {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.texts.clear();
    }

    /// Adds an attribute. The clock `ts.monotonic` becomes ns: an integer is nanoseconds, a floating-point number seconds.
    pub(super) fn add(&mut self, key: &str, text: &str, is_double: bool) {
        if self.keys.iter().any(|known| known == key) {
            return;
        }
        self.keys.push_field(key);
        if !is_double || key != MONOTONIC {
            self.texts.push_field(text);
            return;
        }
        self.texts.push_field(&match text.parse() {
            Ok(seconds @ 0.0..MAX_SECONDS) => seconds_to_ns(seconds).to_string(),
            _ => format!("{text} s"),
        });
    }

    /// The keys, in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter()
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.keys.iter().zip(&self.texts).find_map(|(known, text)| (known == key).then_some(text))
    }

    /// Reads a struct whose fields have the names of attributes. Numbers may be texts.
    pub(super) fn get<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let read = read_texts(&self.keys, self.texts.clone());
        read.map_err(|(key, expected)| match key.as_str() {
            "" if expected.starts_with("missing") => (DropReason::Incomplete, expected),
            "" => (DropReason::BadValue, expected),
            key => self.fault(key, &expected),
        })
    }

    /// The text of an attribute, where not empty.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.value(key).filter(|text| !text.is_empty())
    }

    /// A whole number, which may be written as `12.0`.
    pub(super) fn whole(&self, key: &str) -> Result<Option<u64>, Fault> {
        let Some(text) = self.text(key) else { return Ok(None) };
        whole_text(text).map(Some).ok_or_else(|| self.fault(key, "a whole number"))
    }

    /// A duration in seconds, as ns.
    pub(super) fn seconds_as_ns(&self, key: &str) -> Result<Option<u64>, Fault> {
        let Some(text) = self.text(key) else { return Ok(None) };
        match text.parse() {
            Ok(seconds) if (0.0..MAX_SECONDS).contains(&seconds) => Ok(Some(seconds_to_ns(seconds))),
            _ => Err(self.fault(key, "a number of seconds from 0")),
        }
    }

    /// A number in a range.
    pub(super) fn number(&self, key: &str, range: NumberRange) -> Result<Option<f64>, Fault> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(*number));
        number.map(Some).ok_or_else(|| self.fault(key, &range.to_string()))
    }

    /// The first of some keys that has a text.
    pub(super) fn first_text(&self, keys: &[&str]) -> Option<String> {
        keys.iter().find_map(|key| self.text(key)).map(str::to_owned)
    }

    /// The model that the attributes name.
    pub(super) fn model(&self) -> Option<String> {
        self.first_text(&MODEL_KEYS)
    }

    /// The fault of an attribute that should be something else.
    pub(super) fn fault(&self, key: &str, expected: &str) -> Fault {
        match self.value(key) {
            Some(text) => (DropReason::BadValue, format!("{key} is {}, expected {expected}", cut(text))),
            None => (DropReason::Incomplete, format!("{key} is missing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// What an attribute of a trace becomes.
    fn one(key: &str, value: Value) -> Attributes {
        let (kind, value) = value.as_object().and_then(|kinds| kinds.iter().next()).unwrap();
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut attributes = Attributes::default();
        attributes.add(key, &text, kind == "doubleValue" && value.is_number());
        attributes
    }

    #[test]
    fn counts_have_three_types_and_no_others() {
        for value in [json!({ "intValue": 12 }), json!({ "doubleValue": 12.0 }), json!({ "stringValue": "12" })] {
            assert_eq!(one("n", value).whole("n"), Ok(Some(12)));
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
            let fault = one("n", value).whole("n").unwrap_err();
            assert_eq!(fault.0, DropReason::BadValue);
            assert!(fault.1.starts_with("n is "), "{fault:?}");
        }
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Needs {
            n: u32,
        }
        assert_eq!(one("n", json!({ "intValue": "7" })).get(), Ok(Needs { n: 7 }));
        assert_eq!(one("n", json!({ "doubleValue": 7.0 })).get(), Ok(Needs { n: 7 }));
        assert_eq!(one("n", json!({ "intValue": 1u64 << 33 })).get::<Needs>().unwrap_err().0, DropReason::BadValue);
        assert_eq!(one("m", json!({ "intValue": 1 })).get::<Needs>().unwrap_err().0, DropReason::Incomplete);
    }

    #[test]
    fn integers_are_nanoseconds_and_floats_seconds() {
        let ns = |value| one(MONOTONIC, value).whole(MONOTONIC);
        assert_eq!(ns(json!({ "intValue": 20_020_938_183_118u64 })), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(json!({ "intValue": "20020938183118" })), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(json!({ "stringValue": "20020938183118" })), Ok(Some(20_020_938_183_118)));
        assert_eq!(ns(json!({ "doubleValue": 20_020.5 })), Ok(Some(20_020_500_000_000)));
        assert_eq!(ns(json!({ "doubleValue": 20_020 })), Ok(Some(20_020_000_000_000)));
        // A unix time in seconds, or nanoseconds as a float: the two cannot be distinguished.
        for value in [json!(1_700_000_000.0), json!(2.0e13), json!(-1.0), json!("NaN"), json!("Infinity")] {
            assert!(ns(json!({ "doubleValue": value })).is_err(), "{value}");
        }
        assert!(ns(json!({ "intValue": -5 })).is_err());
    }
}
