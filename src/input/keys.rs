//! Reads the keys of one object into typed values. A [`Log`] collects the faults, so that a user sees all of them.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked in the same expression"
)]

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::log::{Log, MAX_PROBLEMS};
use super::names::did_you_mean;
use super::number_range::NumberRange;
use super::shown::shown;
use crate::error::cut;

/// One object that is being read. A key whose value is null counts as absent.
///
/// Getters return `None` for an absent key and for a wrong value; the latter is recorded as a problem. They accept every
/// alias of a key, and names that contradict each other are a problem.
#[derive(Clone)]
pub struct Keys<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
    aliases: &'static [(&'static str, &'static str)],
    asked: RefCell<Vec<String>>,
    /// Where problems and notes go.
    pub log: &'a Log,
}

impl<'a> Keys<'a> {
    /// Reads `value`, which must be an object. Messages put `path` before its keys; the outermost object has an empty one.
    pub fn new(path: &str, value: &'a Value, log: &'a Log) -> Self {
        if !value.is_object() && !value.is_null() {
            let name = if path.is_empty() { String::new() } else { format!("{path} = ") };
            log.problem(format!("{name}{} must be an object of keys and values", shown(value)));
        }
        Keys { map: value.as_object(), ..Keys::empty(path, log) }
    }

    /// Reads the object `map`.
    pub fn of_map(path: &str, map: &'a Map<String, Value>, log: &'a Log) -> Self {
        Keys { map: Some(map), ..Keys::empty(path, log) }
    }

    fn empty(path: &str, log: &'a Log) -> Self {
        let path = if path.is_empty() { String::new() } else { format!("{path}.") };
        Keys { path, map: None, aliases: &[], asked: RefCell::default(), log }
    }

    /// Accepts other names of keys, given as pairs of alias and key.
    #[must_use]
    pub fn with_aliases(mut self, aliases: &'static [(&'static str, &'static str)]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Returns the full name of a key, as messages have it.
    pub fn path_of(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    /// Returns all entries, whatever was asked for.
    pub fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.map.into_iter().flatten()
    }

    /// Returns whether a key is present.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.find(key).map(|(_, value)| value)
    }

    /// Returns the name under which the object has a key, and the value.
    fn find(&self, key: &str) -> Option<(&'a str, &'a Value)> {
        let mut asked = self.asked.borrow_mut();
        if !asked.iter().any(|known| known == key) {
            asked.push(key.to_owned());
        }
        let map = self.map?;
        let names = std::iter::once(key).chain(aliases_of(self.aliases, key));
        let mut given = names.filter_map(|name| map.get_key_value(name)).filter(|(_, value)| !value.is_null());
        let (first, value) = given.next()?;
        for (other, another) in given.filter(|(_, another)| !is_same(value, another)) {
            let (first, other) = (self.path_of(first), self.path_of(other));
            self.log.problem(contradiction((&first, value), (&other, another)));
        }
        Some((first, value))
    }

    /// Records a problem of a key; the message has its value, if it is present.
    pub fn problem(&self, key: &str, reason: impl Display) {
        match self.find(key) {
            Some((name, value)) => self.log.problem_of(self.path_of(name), format_args!("= {} {reason}", shown(value))),
            None => self.log.problem_of(self.path_of(key), reason),
        }
    }

    /// Records each of `keys` that is absent. An object that is itself absent lacks nothing.
    pub fn require(&self, keys: &[&str]) {
        if self.map.is_none() {
            return;
        }
        for key in keys.iter().filter(|key| !self.has(key)) {
            self.problem(key, format!("is missing{}", other_names(self.aliases, key)));
        }
    }

    /// Returns `found`, or a default of `whose` with a note if the key is absent.
    pub fn or_default<T: Display>(&self, key: &str, found: Option<T>, default: T, whose: &str) -> T {
        if !self.has(key) {
            self.log.note(format!("{} is not given: {whose} default, {default}, is used", self.path_of(key)));
        }
        found.unwrap_or(default)
    }

    /// Converts the value of a key; `expected` completes the sentence "it must be …".
    pub fn read<T>(
        &self,
        key: &str,
        expected: impl Display,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let found = convert(self.get(key)?);
        if found.is_none() {
            self.problem(key, format_args!("must be {expected}"));
        }
        found
    }

    /// Reads a whole number; `16.0` is one.
    pub fn whole<T: TryFrom<u64> + PartialOrd + Display>(&self, key: &str, range: RangeInclusive<T>) -> Option<T> {
        let expected = format_args!("a whole number from {} to {}", range.start(), range.end());
        self.read(key, expected, |value| T::try_from(whole_value(value)?).ok().filter(|number| range.contains(number)))
    }

    /// Reads a number.
    pub fn number(&self, key: &str, range: NumberRange) -> Option<f64> {
        self.read(key, range, |value| value.as_f64().filter(|number| range.contains(*number)))
    }

    /// Reads a switch.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// Reads a text, without white space around it.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.read(key, "a text that is not empty", |value| {
            value.as_str().map(str::trim).filter(|text| !text.is_empty())
        })
    }

    /// Reads a list of texts.
    pub fn texts(&self, key: &str) -> Option<Vec<&'a str>> {
        self.read(key, "a list of texts", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// Reads a list of whole numbers.
    pub fn wholes(&self, key: &str) -> Option<Vec<u64>> {
        self.read(key, "a list of whole numbers", |value| value.as_array()?.iter().map(whole_value).collect())
    }

    /// Reads one of the names of an enum, as its `Deserialize` has them.
    pub fn variant<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let read = T::deserialize(self.get(key)?);
        read.map_err(|error| self.problem(key, format_args!("is wrong: {error}"))).ok()
    }

    /// Returns the object in a key; `None` if the key is absent or holds something else.
    pub fn section(&self, key: &str) -> Option<Keys<'a>> {
        let value = self.get(key)?;
        let section = Keys::new(&self.path_of(key), value, self.log);
        section.map.is_some().then_some(section)
    }

    /// Returns the object in a key; an empty one if there is none.
    pub fn section_or_empty(&self, key: &str) -> Keys<'a> {
        self.section(key).unwrap_or_else(|| Keys::empty(&self.path_of(key), self.log))
    }

    /// Accepts keys that have no influence, whatever they hold.
    pub fn ignore(&self, keys: &[&str]) {
        self.asked.borrow_mut().extend(keys.iter().map(|key| (*key).to_owned()));
    }

    /// Records a key that is set to anything but false or an empty list or object; `reason` says why it can't be.
    pub fn refuse(&self, key: &str, reason: impl Display) {
        let is_set = |value: &Value| match value {
            Value::Bool(on) => *on,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        if self.get(key).is_some_and(is_set) {
            self.problem(key, reason);
        }
    }

    /// Records every key that nothing asked for.
    pub fn finish(self) {
        let asked = self.asked.take();
        let is_known = |name: &str| {
            asked.iter().any(|key| key == name)
                || self.aliases.iter().any(|(alias, key)| *alias == name && asked.iter().any(|a| a == key))
        };
        let known = || asked.iter().map(String::as_str);
        for (at, (name, _)) in self.entries().filter(|(name, _)| !is_known(name)).enumerate() {
            // The problems beyond these are counted, not shown.
            let hint = if at < MAX_PROBLEMS { did_you_mean(name, known()) } else { None }
                .unwrap_or_else(|| format!("known are {}", known().collect::<Vec<_>>().join(", ")));
            self.log.problem_of(self.path_of(&cut(name)), format_args!("is not a known key: {hint}"));
            if self.log.is_full() {
                break;
            }
        }
    }
}

/// The other names of a key, of pairs of alias and key.
fn aliases_of<'k>(aliases: &'static [(&'static str, &'static str)], key: &'k str) -> impl Iterator<Item = &'k str> {
    aliases.iter().filter(move |(_, of)| *of == key).map(|(alias, _)| *alias)
}

/// States the other names of a key, if it has any.
pub fn other_names(aliases: &'static [(&'static str, &'static str)], key: &str) -> String {
    let names: Vec<&str> = aliases_of(aliases, key).collect();
    if names.is_empty() { String::new() } else { format!(" (other names: {})", names.join(", ")) }
}

/// Returns the message about two names of one setting with different values.
pub fn contradiction((one, value): (&str, &Value), (other, another): (&str, &Value)) -> String {
    format!("{one} = {} and {other} = {} are names of one setting: keep one", shown(value), shown(another))
}

fn is_same(one: &Value, other: &Value) -> bool {
    one == other || (one.is_number() && one.as_f64() == other.as_f64())
}

/// Returns a whole number, which may be written as `16.0`.
pub(crate) fn whole_value(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| whole_float(value.as_f64()?))
}

/// Parses a whole number, which may be written as `16.0`.
pub fn whole_text(text: &str) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| whole_float(text.parse().ok()?))
}

/// Converts a float that is a whole number; larger ones than 2⁵³ are not exact and give `None`.
fn whole_float(number: f64) -> Option<u64> {
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract().abs() <= 0.0 && (0.0..=MAX_EXACT).contains(&number)).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(value: &Value, read: impl Fn(&Keys<'_>)) -> Vec<String> {
        let log = Log::default();
        let keys = Keys::new("load", value, &log).with_aliases(&[("tp", "tensor_parallel_size")]);
        read(&keys);
        keys.finish();
        log.into_problems()
    }

    #[test]
    fn every_fault_has_its_key_and_value() {
        let value = json!({"seed": -1, "share": "x", "on": 1, "name": " ", "sede": 1, "zzz": true, "null": null});
        let found = problems(&value, |keys| {
            keys.whole("seed", 0..=9_u32);
            keys.number("share", NumberRange::from_zero(1.0, ""));
            keys.flag("on");
            keys.text("name");
            keys.section("seed");
            keys.require(&["null", "tensor_parallel_size"]);
        });
        assert_eq!(
            found,
            [
                "load.seed = -1 must be a whole number from 0 to 9",
                "load.share = \"x\" must be a number of at least 0 and at most 1",
                "load.on = 1 must be true or false",
                "load.name = \" \" must be a text that is not empty",
                "load.seed = -1 must be an object of keys and values",
                "load.null is missing",
                "load.tensor_parallel_size is missing (other names: tp)",
                "load.sede is not a known key: did you mean seed?",
                "load.zzz is not a known key: known are seed, share, on, name, null, tensor_parallel_size",
            ]
        );
    }

    #[test]
    fn names_of_one_setting_must_agree() {
        let read = |keys: &Keys<'_>| assert_eq!(keys.whole("tensor_parallel_size", 1..=u32::MAX), Some(2));
        assert!(problems(&json!({"tp": 2.0, "tensor_parallel_size": 2}), read).is_empty());
        let found = problems(&json!({"tp": 4, "tensor_parallel_size": 2}), read);
        assert_eq!(found, ["load.tensor_parallel_size = 2 and load.tp = 4 are names of one setting: keep one"]);
    }

    #[test]
    fn an_object_with_very_many_faults_is_not_read_to_its_end() {
        let many: Map<String, Value> = (0..5_000).map(|i| (i.to_string(), Value::Null)).collect();
        let log = Log::default();
        let keys = Keys::of_map("", &many, &log);
        (0..500).for_each(|i| log.note(format!("remark {}", i % 150)));
        keys.finish();
        assert!(log.is_full());
        let error = log.finish("text", Some(())).unwrap_err();
        assert_eq!((error.problems().len(), error.problems()[20].as_str()), (21, "and 980 more"));
        let log = Log::default();
        (0..150).for_each(|i| log.note(format!("remark {i}")));
        let (_, notes) = log.finish("text", Some(())).unwrap();
        assert_eq!((notes.len(), notes[100].as_str()), (101, "and 50 more remarks"));
    }
}
