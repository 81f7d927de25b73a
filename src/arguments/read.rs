//! Reads arguments from keys and values, wherever they come from: files, bodies, flags, axes. All faults of a source are recorded
//! together; what was read has the arguments' own names and the forms of their kinds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Argument, ArgumentSupport, Engines, Kind};
use crate::error::{Result, cut};
use crate::input::{Keys, Log, MAX_PROBLEMS, contradiction, did_you_mean, object_or_text, shown};

/// The arguments that a source may have: lists of rows, of one engine.
#[derive(Debug, Clone)]
pub struct ArgumentRows {
    rows: Vec<&'static Argument>,
}

/// Values that were given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// In the forms of their kinds, under the fields that they set.
    values: Map<String, Value>,
    /// As they were written, under the names of their rows.
    written: Map<String, Value>,
    path: String,
}

impl Given {
    /// Returns the value of a field; `None` if it was not given, or is `auto`.
    pub fn get<T: DeserializeOwned>(&self, field: &str) -> Option<T> {
        // Values have the forms of their kinds, so that they are always of the field's type.
        T::deserialize(self.values.get(field)?).ok()
    }

    /// Returns whether a field was given.
    pub fn has(&self, field: &str) -> bool {
        self.values.contains_key(field)
    }

    /// Returns the names of the fields that were given.
    pub fn names(&self) -> std::collections::BTreeSet<String> {
        self.values.keys().cloned().collect()
    }

    /// Returns the values, each in the form of its kind.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Returns a reader of the values as they were written, under the names of their rows.
    pub fn keys<'a>(&'a self, log: &'a Log) -> Keys<'a> {
        Keys::of_map(&self.path, &self.written, log)
    }
}

/// A value as a source has it.
struct SourceValue<'a> {
    /// The key as it was written.
    written: Cow<'a, str>,
    /// The key spelled as an argument.
    name: String,
    value: Cow<'a, Value>,
    /// Whether the key is the argument's `no_` form.
    is_negated: bool,
}

impl ArgumentRows {
    /// Joins lists of rows, and takes those of `engines`.
    pub fn new(lists: &[&'static [Argument]], engines: Engines) -> Self {
        let rows = lists.iter().copied().flatten().filter(|row| row.engines.meets(engines)).collect();
        ArgumentRows { rows }
    }

    /// Takes rows one by one.
    pub fn of(rows: Vec<&'static Argument>) -> Self {
        ArgumentRows { rows }
    }

    /// Adds a list of rows.
    #[must_use]
    pub fn with(mut self, rows: &'static [Argument]) -> Self {
        self.rows.extend(rows);
        self
    }

    /// Leaves out the rows of these names.
    #[must_use]
    pub fn without_rows(mut self, names: &[&str]) -> Self {
        self.rows.retain(|row| !names.contains(&row.name));
        self
    }

    /// Moves the entries that name one of the rows out of an object.
    pub fn taken(&self, map: &mut Map<String, Value>) -> Map<String, Value> {
        let (taken, rest) = std::mem::take(map).into_iter().partition(|(key, _)| self.name_of(key).is_some());
        *map = rest;
        taken
    }

    /// Returns the names of the rows that are modelled.
    pub fn modelled_names(&self) -> Vec<&'static str> {
        self.rows.iter().filter(|row| row.support == ArgumentSupport::Modelled).map(|row| row.name).collect()
    }

    /// Returns the rows in order.
    pub fn iter(&self) -> impl Iterator<Item = &'static Argument> {
        self.rows.iter().copied()
    }

    /// Returns the place of the row that a key names, and whether the key is its `no_` form.
    fn find(&self, name: &str) -> Option<(usize, bool)> {
        let place = |name: &str| self.rows.iter().position(|row| row.is_named(name));
        if let Some(at) = place(name) {
            return Some((at, false));
        }
        if let Some(at) = name.strip_prefix("no_").and_then(place) {
            let is_switch =
                |row: &&&Argument| matches!(row.kind, Kind::Switch) || row.support != ArgumentSupport::Modelled;
            return self.rows.get(at).filter(|row| is_switch(row)).map(|_| (at, true));
        }
        None
    }

    /// Returns the name of the row that a flag names as vLLM's parser reads it, by a beginning that begins no other.
    pub fn name_of_flag(&self, flag: &str) -> Option<&'static str> {
        let name = spelled(flag);
        let mut begun = self.rows.iter().filter(|row| row.name.starts_with(&name));
        self.name_of(flag).or_else(|| begun.next().map(|row| row.name).filter(|_| begun.next().is_none()))
    }

    /// Returns the name of the row that a key names, in whatever spelling.
    pub fn name_of(&self, key: &str) -> Option<&'static str> {
        let name = spelled(key);
        let (at, _) = self.find(self.without_object(&name))?;
        self.rows.get(at).map(|row| row.name)
    }

    /// Returns the field that a key sets, by whatever engine's name for it.
    fn field_of(&self, key: &str) -> Option<&'static str> {
        let name = spelled(key);
        let (at, _) = self.find(self.without_object(&name))?;
        self.rows.get(at).map(|row| row.sets)
    }

    /// Returns the fields that the keys of an object set.
    pub fn names(&self, map: &Map<String, Value>) -> impl Iterator<Item = &'static str> {
        map.iter().filter(|(_, value)| !value.is_null()).filter_map(|(key, _)| self.field_of(key))
    }

    /// Returns an object without the arguments that `over` has too.
    pub fn without(&self, map: &Map<String, Value>, over: &Map<String, Value>) -> Map<String, Value> {
        let taken: Vec<&str> = self.names(over).collect();
        let is_left = |key: &str| self.field_of(key).is_none_or(|field| !taken.contains(&field));
        let left = map.iter().filter(|(key, _)| is_left(key)).map(|(key, value)| {
            let nested = self.nested(&spelled(key), value);
            let value = nested.map_or_else(
                || value.clone(),
                |mut nested| {
                    nested.retain(|key, _| is_left(key));
                    Value::Object(nested)
                },
            );
            (key.clone(), value)
        });
        left.collect()
    }

    /// Reads the arguments of an object that has nothing else.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` of `origin` with all faults that [`ArgumentRows::read`] records.
    pub fn read_all(&self, origin: &str, map: &Map<String, Value>) -> Result<Given> {
        let log = Log::default();
        let given = self.read("", map, &log);
        log.finish(origin, Some(given)).map(|(given, _)| given)
    }

    /// Reads the arguments of an object. A key whose value is null counts as absent, and one that no row has is a fault. Messages put
    /// `path` before keys.
    pub fn read(&self, path: &str, map: &Map<String, Value>, log: &Log) -> Given {
        let mut found: BTreeMap<usize, SourceValue<'_>> = BTreeMap::new();
        let mut unknown = Vec::new();
        for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
            let name = spelled(key);
            if let Some(nested) = self.nested(&name, value) {
                for (key, value) in nested.iter().filter(|(_, value)| !value.is_null()) {
                    match self.find(key).filter(|(at, _)| self.is_within(*at, &name)) {
                        Some(place) => self.enter(&mut found, place, SourceValue::of(key.clone(), value.clone()), log),
                        None => log.note(format!("{name}.{} has no influence here", cut(key))),
                    }
                }
            } else if let Some(place) = self.find(self.without_object(&name)) {
                let entry = SourceValue { written: key.into(), name, value: Cow::Borrowed(value), is_negated: place.1 };
                self.enter(&mut found, place, entry, log);
            } else if name
                .split_once('.')
                .is_some_and(|(object, _)| self.rows.iter().any(|row| row.within == Some(object)))
            {
                log.note(format!("{} has no influence here", cut(&name)));
            } else {
                unknown.push(name);
            }
        }
        let given = self.check(path, &found, log);
        self.report_unknown(path, &unknown, log);
        given
    }

    /// Returns the object of a key in which rows are nested, as `compilation_config`.
    fn nested(&self, name: &str, value: &Value) -> Option<Map<String, Value>> {
        self.rows.iter().find(|row| row.within == Some(name))?;
        object_or_text(value)
    }

    fn is_within(&self, at: usize, object: &str) -> bool {
        self.rows.get(at).is_some_and(|row| row.within == Some(object))
    }

    /// Returns the argument of a dotted key: one that is nested, as in `compilation_config.cudagraph_mode`, or an object that is not modelled,
    /// as in `limit_mm_per_prompt.video`.
    fn without_object<'k>(&self, name: &'k str) -> &'k str {
        let Some((object, nested)) = name.split_once('.') else { return name };
        let is_nested = self.rows.iter().any(|row| row.within == Some(object) && row.name == nested);
        let is_object = |row: &&&Argument| row.name == object && row.support != ArgumentSupport::Modelled;
        match (is_nested, self.rows.iter().find(is_object)) {
            (true, _) => nested,
            (false, Some(_)) => object,
            (false, None) => name,
        }
    }

    /// Records a value of a row; several names of one setting must agree.
    fn enter<'a>(
        &self,
        found: &mut BTreeMap<usize, SourceValue<'a>>,
        (at, is_negated): (usize, bool),
        entry: SourceValue<'a>,
        log: &Log,
    ) {
        let entry = SourceValue { is_negated, ..entry };
        let Some(earlier) = found.get(&at) else {
            found.insert(at, entry);
            return;
        };
        let kind = self.rows.get(at).map_or(Kind::Any, |row| row.kind);
        if earlier.read(kind) != entry.read(kind) {
            let is_same_name = earlier.name == entry.name;
            let name = |of: &SourceValue<'_>| if is_same_name { of.written.to_string() } else { of.name.clone() };
            log.problem(contradiction((&name(earlier), &earlier.value), (&name(&entry), &entry.value)));
        }
    }

    /// Brings the values into the forms of their kinds and checks what goes together.
    fn check(&self, path: &str, found: &BTreeMap<usize, SourceValue<'_>>, log: &Log) -> Given {
        let name = |at: &usize| self.rows.get(*at).map_or("", |row| row.name).to_owned();
        let written: Map<String, Value> =
            found.iter().map(|(at, entry)| (name(at), entry.value.clone().into_owned())).collect();
        let mut values = Map::new();
        let keys = Keys::of_map(path, &written, log);
        let is_given = |field: &str| self.rows.iter().any(|row| row.sets == field && keys.has(row.name));
        let missing: Vec<&str> =
            self.rows.iter().filter(|row| row.is_required && !is_given(row.sets)).map(|row| row.name).collect();
        keys.require(&missing);
        let mut without_influence = Vec::new();
        for (at, entry) in found {
            let Some(row) = self.rows.get(*at) else { continue };
            let name = keys.path_of(&entry.name);
            match row.support {
                ArgumentSupport::WithoutInfluence => {
                    without_influence.push(row.name);
                    continue;
                }
                ArgumentSupport::Noted(reason) | ArgumentSupport::NotModelled(reason) => {
                    let is_on = is_set(&entry.value) && !row.off.iter().any(|off| is_text(&entry.value, off));
                    match row.support {
                        _ if !is_on => {}
                        ArgumentSupport::Noted(_) => log.note(format!("{name} = {} {reason}", shown(&entry.value))),
                        _ => log.problem_of(name, format_args!("= {} {reason}", shown(&entry.value))),
                    }
                    continue;
                }
                ArgumentSupport::Modelled => {}
            }
            let Some(value) = entry.read(row.kind) else {
                log.problem_of(name, format_args!("= {} must be {}", shown(&entry.value), row.expected()));
                continue;
            };
            let value = match row.kind {
                Kind::Object(read) => read(&keys, row.name).unwrap_or(value),
                _ => value,
            };
            match values.get(row.sets) {
                Some(other) if *other != value => {
                    let names = found.keys().filter_map(|at| self.rows.get(*at)).filter(|of| of.sets == row.sets);
                    let names: Vec<&str> = names.map(|of| of.name).collect();
                    log.problem(format!("{} contradict each other: keep one", names.join(" and ")));
                }
                _ => drop(values.insert(row.sets.to_owned(), value)),
            }
        }
        if !without_influence.is_empty() {
            let (number, names) = (without_influence.len(), without_influence.join(", "));
            let (s, have) = if number == 1 { ("", "has") } else { ("s", "have") };
            log.note(format!("{number} argument{s} {have} no influence on times: {names}"));
        }
        for row in self.rows.iter().filter(|row| keys.has(row.name)) {
            for (other, reason) in row.excludes.iter().filter(|(other, _)| keys.has(other)) {
                keys.problem(row.name, format_args!("cannot be given with {other}{}", because(reason)));
            }
            for (others, reason) in row.needs.iter().filter(|(others, _)| !others.iter().any(|other| keys.has(other))) {
                keys.problem(row.name, format_args!("needs {}{}", others.join(" or "), because(reason)));
            }
        }
        drop(keys);
        Given { values, written, path: path.to_owned() }
    }

    /// Records every key that no row has, with the nearest names. Only modelled arguments are suggested.
    fn report_unknown(&self, path: &str, unknown: &[String], log: &Log) {
        let (no_keys, prefix) = (Map::new(), Log::default());
        let keys = Keys::of_map(path, &no_keys, &prefix);
        let modelled = self.modelled_names();
        for (at, name) in unknown.iter().enumerate() {
            // The problems beyond these are counted, not shown.
            let hint =
                if at < MAX_PROBLEMS { did_you_mean(name, modelled.iter().copied()) } else { Some(String::new()) };
            let hint = hint.unwrap_or_else(|| "`ridgepoint arguments` lists the known ones".to_owned());
            log.problem_of(keys.path_of(&cut(name)), format_args!("is not a known key: {hint}"));
        }
    }
}

impl<'a> SourceValue<'a> {
    fn of(name: String, value: Value) -> Self {
        SourceValue { written: name.clone().into(), name, value: Cow::Owned(value), is_negated: false }
    }

    /// The value in the form of its kind.
    fn read(&self, kind: Kind) -> Option<Value> {
        match kind.value_of(&self.value)? {
            Value::Bool(on) if self.is_negated => Some(Value::Bool(!on)),
            value => Some(value),
        }
    }
}

/// Spells a key as an argument: `--max-num-seqs` becomes `max_num_seqs`.
pub fn spelled(key: &str) -> String {
    key.trim().trim_start_matches("--").replace('-', "_").to_lowercase()
}

/// Whether a value switches something on: anything but false, null, zero, and an empty text, list or object.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !matches!(text.trim().to_lowercase().as_str(), "" | "none" | "null" | "false" | "0"),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// Whether a value reads as this text.
fn is_text(value: &Value, text: &str) -> bool {
    let written = value.as_str().map_or_else(|| value.to_string(), |given| given.trim().to_owned());
    written == text
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
