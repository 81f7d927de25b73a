//! Typed reading of a profile's keys: every wrong, unknown or unsupported one becomes a line in the shared [`Log`], so
//! that all problems come out together. Uses `rows` for cutting long values.

use std::cell::RefCell;

use serde_json::{Map, Value};

use crate::input::near_matches;
use crate::workload::rows::cut;

/// What reading found: faults, and things that a user should know.
#[derive(Debug, Default)]
pub(super) struct Log {
    problems: RefCell<Vec<String>>,
    notes: RefCell<Vec<String>>,
}

impl Log {
    pub(super) fn problem(&self, text: String) {
        self.problems.borrow_mut().push(text);
    }

    pub(super) fn note(&self, text: String) {
        self.notes.borrow_mut().push(text);
    }

    /// Faults and notes in the order they were found.
    pub(super) fn into_parts(self) -> (Vec<String>, Vec<String>) {
        (self.problems.into_inner(), self.notes.into_inner())
    }
}

/// One object of the profile. Keys that nobody asked for are unknown; null is absent.
pub(super) struct Section<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
    asked: RefCell<Vec<&'static str>>,
    pub(super) log: &'a Log,
}

impl<'a> Section<'a> {
    /// The object `value`, or an empty one where it is none, whose keys are reported behind `path`.
    pub(super) fn new(path: &str, value: Option<&'a Value>, log: &'a Log) -> Self {
        if let Some(value) = value
            && !value.is_object()
        {
            let name = if path.is_empty() { "the profile" } else { path };
            log.problem(format!("{name} = {} must be an object of keys and values", shown(value)));
        }
        let path = if path.is_empty() { String::new() } else { format!("{path}.") };
        Section { path, map: value.and_then(Value::as_object), asked: RefCell::default(), log }
    }

    /// Full name of a key for messages.
    pub(super) fn path_of(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    /// The value of a key that is present and not null.
    pub(super) fn get(&self, key: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().push(key);
        self.map?.get(key).filter(|value| !value.is_null())
    }

    /// An object in this one, empty where it is absent.
    pub(super) fn section(&self, key: &'static str) -> Section<'a> {
        Section::new(&self.path_of(key), self.get(key), self.log)
    }

    /// Keys without influence on the load, whatever they hold.
    pub(super) fn ignore(&self, keys: &[&'static str]) {
        self.asked.borrow_mut().extend(keys);
    }

    /// A key that would change the load in a way that is not replayed: an error where it is set to anything.
    pub(super) fn refuse(&self, key: &'static str, reason: &str) {
        let empty = |value: &Value| match value {
            Value::Bool(on) => !on,
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        if let Some(value) = self.get(key).filter(|value| !empty(value)) {
            self.problem(key, value, reason);
        }
    }

    /// Records a fault of a key's value.
    pub(super) fn problem(&self, key: &str, value: &Value, reason: &str) {
        self.log.problem(format!("{} = {} {reason}", self.path_of(key), shown(value)));
    }

    /// Records that a required key is absent.
    pub(super) fn missing(&self, key: &str, expected: &str) {
        self.log.problem(format!("{} is missing: {expected}", self.path_of(key)));
    }

    /// The value of a key, or inference-perf's default with a note that says so.
    fn or_default<T: std::fmt::Display + Copy>(&self, key: &str, found: Option<T>, default: T) -> T {
        found.unwrap_or_else(|| {
            let path = self.path_of(key);
            self.log.note(format!("{path} is not given: inference-perf's default, {default}, is used"));
            default
        })
    }

    /// A number in a range; a wrong one is recorded and gives `None` as an absent one does.
    pub(super) fn number(&self, key: &'static str, range: NumberRange) -> Option<f64> {
        let value = self.get(key)?;
        let number = value.as_f64().filter(|number| range.contains(*number));
        if number.is_none() {
            self.problem(key, value, &range.expected());
        }
        number
    }

    /// A number in a range, or a default that is noted.
    pub(super) fn number_or(&self, key: &'static str, range: NumberRange, default: f64) -> f64 {
        let present = self.get(key).is_some();
        let found = self.number(key, range);
        if present { found.unwrap_or(default) } else { self.or_default(key, found, default) }
    }

    /// A whole number in a range; a wrong one is recorded and gives `None` as an absent one does.
    pub(super) fn count(&self, key: &'static str, min: u64, max: u64) -> Option<u64> {
        let value = self.get(key)?;
        let whole = || value.as_f64().filter(|number| number.fract().abs() < f64::EPSILON && *number >= 0.0);
        let count = value.as_u64().or_else(|| whole().map(|number| number as u64));
        let count = count.filter(|count| (min..=max).contains(count));
        if count.is_none() {
            self.problem(key, value, &format!("must be a whole number from {min} to {max}"));
        }
        count
    }

    /// A whole number that goes by two names, or a default that is noted; both names at once are a fault.
    pub(super) fn count_or(&self, keys: [&'static str; 2], min: u64, max: u64, default: u64) -> u64 {
        let [first, second] = keys;
        let present = keys.map(|key| self.get(key));
        if first != second
            && let [Some(_), Some(value)] = present
        {
            self.problem(second, value, &format!("says the same as {}: keep one", self.path_of(first)));
        }
        let key = if present[0].is_some() { first } else { second };
        let found = self.count(key, min, max);
        if present.iter().any(Option::is_some) {
            found.unwrap_or(default)
        } else {
            self.or_default(first, found, default)
        }
    }

    /// A switch; absent means `default`.
    pub(super) fn flag(&self, key: &'static str, default: bool) -> bool {
        match self.get(key) {
            None => default,
            Some(Value::Bool(on)) => *on,
            Some(other) => {
                self.problem(key, other, "must be true or false");
                default
            }
        }
    }

    /// A string that may be absent.
    pub(super) fn text(&self, key: &'static str) -> Option<&'a str> {
        let value = self.get(key)?;
        if !value.is_string() {
            self.problem(key, value, "must be a string");
        }
        value.as_str()
    }

    /// A string, or a default that is noted.
    pub(super) fn text_or(&self, key: &'static str, default: &'static str) -> &'a str {
        match self.get(key) {
            Some(_) => self.text(key).unwrap_or(default),
            None => self.or_default(key, None, default),
        }
    }

    /// Records every key that nobody asked for.
    pub(super) fn finish(self) {
        let asked = self.asked.into_inner();
        for (key, value) in self.map.into_iter().flatten() {
            if !asked.contains(&key.as_str()) {
                let near = near_matches(key, asked.iter().copied());
                let hint = near.first().map_or(String::new(), |name| format!(" (did you mean {name}?)"));
                let path = format!("{}{}", self.path, cut(key));
                self.log.problem(format!("{path} = {} is an unknown key{hint}: remove it", shown(value)));
            }
        }
    }
}

/// What a number may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberRange {
    min: f64,
    /// Whether the number must be above `min`.
    above: bool,
    max: f64,
    unit: &'static str,
}

impl NumberRange {
    /// Numbers above 0.
    pub(super) fn positive(max: f64, unit: &'static str) -> Self {
        NumberRange { min: 0.0, above: true, max, unit }
    }

    /// Numbers from 0.
    pub(super) fn from_zero(max: f64, unit: &'static str) -> Self {
        NumberRange { min: 0.0, above: false, max, unit }
    }

    fn contains(&self, number: f64) -> bool {
        let high_enough = if self.above { number > self.min } else { number >= self.min };
        high_enough && number <= self.max
    }

    fn expected(&self) -> String {
        let least = if self.above { "above" } else { "at least" };
        format!("must be a number {least} {} and at most {} {}", self.min, self.max, self.unit)
    }
}

/// A value as JSON, cut to a readable length.
pub(super) fn shown(value: &Value) -> String {
    cut(&value.to_string())
}
