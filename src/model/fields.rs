//! Typed reading of a configuration's keys. Every wrong or missing value becomes one line in the shared [`Log`], so
//! that all problems of a file come out together. Uses nothing else of the crate.

use std::cell::RefCell;

use serde_json::{Map, Value};

/// No dimension of a model is larger; keeps every product of sizes within what can be checked.
pub(super) const MAX_SIZE: u64 = 1 << 40;

/// What reading found: faults, and things that had to be assumed.
#[derive(Default)]
pub(super) struct Log {
    problems: RefCell<Vec<String>>,
    notes: RefCell<Vec<String>>,
}

impl Log {
    /// Records a fault once.
    pub(super) fn problem(&self, text: String) {
        push_once(&self.problems, text);
    }

    /// Records an assumption once.
    pub(super) fn note(&self, text: String) {
        push_once(&self.notes, text);
    }

    /// Faults and assumptions in the order they were found.
    pub(super) fn into_parts(self) -> (Vec<String>, Vec<String>) {
        (self.problems.into_inner(), self.notes.into_inner())
    }
}

fn push_once(list: &RefCell<Vec<String>>, text: String) {
    let mut list = list.borrow_mut();
    if !list.contains(&text) {
        list.push(text);
    }
}

/// One JSON object of the configuration.
#[derive(Clone)]
pub(super) struct Section<'a> {
    path: String,
    map: &'a Map<String, Value>,
    defaults: &'static [(&'static str, u64)],
    pub(super) log: &'a Log,
}

impl<'a> Section<'a> {
    /// The object `map`, whose keys are reported with `path` in front.
    pub(super) fn new(path: &str, map: &'a Map<String, Value>, log: &'a Log) -> Self {
        let path = if path.is_empty() { String::new() } else { format!("{path}.") };
        Section { path, map, defaults: &[], log }
    }

    /// Sizes that the family's configuration class supplies when the file leaves them out.
    pub(super) fn with_defaults(mut self, defaults: &'static [(&'static str, u64)]) -> Self {
        self.defaults = defaults;
        self
    }

    /// Full name of a key for messages.
    pub(super) fn path_of(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    /// The value of a key that is present and not null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// Entries in key order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.map.iter()
    }

    /// True where a key holds something that switches a feature on: not null, false, zero or empty.
    pub(super) fn is_set(&self, key: &str) -> bool {
        match self.get(key) {
            None => false,
            Some(Value::Bool(on)) => *on,
            Some(Value::Number(n)) => n.as_f64().is_none_or(|n| n.abs() > 0.0),
            Some(Value::String(s)) => !s.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::Null) => false,
        }
    }

    /// Records a fault of a key.
    pub(super) fn problem(&self, key: &str, text: &str) {
        self.log.problem(format!("{} {text}", self.path_of(key)));
    }

    /// A required positive size.
    pub(super) fn size(&self, key: &str) -> Option<u64> {
        self.size_up_to(key, MAX_SIZE)
    }

    /// A required positive size with its own upper limit.
    pub(super) fn size_up_to(&self, key: &str, max: u64) -> Option<u64> {
        if self.get(key).is_none() && self.default_of(key).is_none() {
            self.problem(key, "is missing; it must be a whole number of at least 1");
            return None;
        }
        self.optional(key, 1, max)
    }

    /// A positive size that may be absent (then `None`; a wrong value is recorded and gives `None` too).
    pub(super) fn optional_size(&self, key: &str) -> Option<u64> {
        self.optional(key, 1, MAX_SIZE)
    }

    /// A count that may be zero or absent.
    pub(super) fn optional_count(&self, key: &str) -> Option<u64> {
        self.optional(key, 0, MAX_SIZE)
    }

    /// A required size that goes by several names; names that disagree are a fault.
    pub(super) fn aliased_size(&self, keys: &[&str]) -> Option<u64> {
        let mut found: Option<(&str, u64)> = None;
        let mut present = false;
        for key in keys {
            present |= self.get(key).is_some();
            let Some(value) = self.optional_size(key) else { continue };
            match found {
                None => found = Some((key, value)),
                Some((first, other)) if other != value => {
                    self.problem(key, &format!("= {value} disagrees with {first} = {other}"));
                }
                Some(_) => {}
            }
        }
        if !present {
            self.problem(keys.first().unwrap_or(&""), &format!("is missing (other names: {})", keys.join(", ")));
        }
        found.map(|(_, value)| value)
    }

    /// A switch; absent means `default`.
    pub(super) fn flag(&self, key: &str, default: bool) -> bool {
        match self.get(key) {
            None => default,
            Some(Value::Bool(on)) => *on,
            Some(other) => {
                self.problem(key, &format!("= {} must be true or false", shown(other)));
                default
            }
        }
    }

    /// A string that may be absent.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        let value = self.get(key)?;
        if value.as_str().is_none() {
            self.problem(key, &format!("= {} must be a string", shown(value)));
        }
        value.as_str()
    }

    /// A list of strings; absent is empty.
    pub(super) fn texts(&self, key: &str) -> Vec<&'a str> {
        match self.get(key) {
            None => Vec::new(),
            Some(Value::Array(list)) if list.iter().all(Value::is_string) => {
                list.iter().filter_map(Value::as_str).collect()
            }
            Some(other) => {
                self.problem(key, &format!("= {} must be a list of strings", shown(other)));
                Vec::new()
            }
        }
    }

    /// A list of whole numbers; absent, null or empty is `None`.
    pub(super) fn counts(&self, key: &str) -> Option<Vec<u64>> {
        let value = self.get(key)?;
        let list = value.as_array().map(|l| l.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>());
        match list {
            Some(Some(list)) => (!list.is_empty()).then_some(list),
            _ => {
                self.problem(key, &format!("= {} must be a list of whole numbers", shown(value)));
                None
            }
        }
    }

    /// An object inside this one.
    pub(super) fn section(&self, key: &str) -> Option<Section<'a>> {
        let value = self.get(key)?;
        if value.as_object().is_none() {
            self.problem(key, &format!("= {} must be an object", shown(value)));
        }
        value.as_object().map(|map| Section::new(&self.path_of(key), map, self.log))
    }

    fn optional(&self, key: &str, min: u64, max: u64) -> Option<u64> {
        let Some(value) = self.get(key) else {
            let default = self.default_of(key)?;
            self.log.note(format!("{} is absent; the family's default {default} is used", self.path_of(key)));
            return Some(default);
        };
        match value.as_u64() {
            Some(n) if (min..=max).contains(&n) => Some(n),
            _ => {
                let limit = if max == MAX_SIZE { "2^40".to_owned() } else { max.to_string() };
                self.problem(key, &format!("= {} must be a whole number from {min} to {limit}", shown(value)));
                None
            }
        }
    }

    fn default_of(&self, key: &str) -> Option<u64> {
        self.defaults.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }
}

/// A value as JSON, cut to a readable length.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 60 { format!("{}…", text.chars().take(60).collect::<String>()) } else { text }
}
