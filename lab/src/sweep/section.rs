//! Reading the tables of a grid: a key has one value or a list of them, wrong and unknown ones are collected. Uses `catalog`.

use toml::{Table, Value};

use ridgepoint::internals::error::cut;
use ridgepoint::internals::input;

/// One table of a grid. Keys that nobody asked for are unknown.
pub(super) struct Section<'a> {
    name: &'static str,
    table: &'a Table,
    asked: Vec<&'static str>,
    problems: &'a mut Vec<String>,
}

impl<'a> Section<'a> {
    pub(super) fn new(name: &'static str, table: &'a Table, problems: &'a mut Vec<String>) -> Self {
        Section { name, table, asked: Vec::new(), problems }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.asked.push(key);
        self.table.get(key)
    }

    /// Records a fault of a key's value.
    fn wrong(&mut self, key: &str, value: &Value, reason: &str) {
        self.problems.push(format!("{}.{key} = {} {reason}", self.name, shown(value)));
    }

    /// Records a fault of the section.
    pub(super) fn problem(&mut self, text: &str) {
        self.problems.push(format!("[{}] {text}", self.name));
    }

    /// Records a key that has no place beside `other`.
    pub(super) fn refuse(&mut self, key: &'static str, reason: &str) {
        if let Some(value) = self.get(key) {
            self.wrong(key, value, reason);
        }
    }

    /// The values of a key, none where it is absent. Wrong ones, an empty list and equal ones are recorded.
    pub(super) fn list<T>(&mut self, key: &'static str, expected: &str, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let values = values(value);
        if values.is_empty() {
            self.wrong(key, value, "has no value: give one, or leave the key out");
        }
        let mut found = Vec::new();
        for (index, value) in values.iter().enumerate() {
            if values.iter().take(index).any(|before| before == value) {
                self.wrong(key, value, "is listed twice: leave one of them out");
            }
            match read(value) {
                Some(read) => found.push(read),
                None => self.wrong(key, value, &format!("must be {expected}")),
            }
        }
        found
    }

    /// The value of a key that takes no list.
    pub(super) fn one<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key)?;
        let found = read(value);
        if found.is_none() {
            let no_list = if value.is_array() { ", not a list" } else { "" };
            self.wrong(key, value, &format!("must be {expected}{no_list}"));
        }
        found
    }

    /// Records every key that nobody asked for.
    pub(super) fn finish(self) {
        for (key, value) in self.table {
            if !self.asked.contains(&key.as_str()) {
                let near = input::near_matches(key, self.asked.iter().copied());
                let hint = match near.as_slice() {
                    [] => format!("known are {}", self.asked.join(", ")),
                    near => format!("did you mean {}?", near.join(", ")),
                };
                self.problems.push(format!("{}.{} = {} is not a known key: {hint}", self.name, cut(key), shown(value)));
            }
        }
    }
}

/// The values of a key: those of its list, or the one.
pub(super) fn values(value: &Value) -> &[Value] {
    match value {
        Value::Array(list) => list,
        one => std::slice::from_ref(one),
    }
}

/// A value as TOML has it, cut to a readable length.
pub(super) fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

/// A whole number from `least` to `most`.
pub(super) fn count(value: &Value, least: u64, most: u64) -> Option<u64> {
    u64::try_from(value.as_integer()?).ok().filter(|count| (least..=most).contains(count))
}

/// A finite number, whole or not.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Integer(whole) => *whole as f64,
        Value::Float(number) => *number,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// A text that is not empty.
pub(super) fn text(value: &Value) -> Option<String> {
    let text = value.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<u64>, Option<f64>, Vec<String>) {
        let table: Table = text.parse().unwrap();
        let mut problems = Vec::new();
        let mut section = Section::new("load", &table, &mut problems);
        let seeds = section.list("seed", "a whole number from 0 to 9", |value| count(value, 0, 9));
        let share = section.one("share", "a number", number);
        section.finish();
        (seeds, share, problems)
    }

    #[test]
    fn a_value_is_a_list_of_one() {
        assert_eq!(read("seed = 3"), (vec![3], None, vec![]));
        assert_eq!(read("seed = [3, 0]\nshare = 2"), (vec![3, 0], Some(2.0), vec![]));
    }

    #[test]
    fn every_fault_has_its_key_and_value() {
        let (_, _, problems) = read("seed = [3, -1, 3, \"x\"]\nshare = [1.0]\nsede = 1\nzzz = true");
        assert_eq!(
            problems,
            [
                "load.seed = -1 must be a whole number from 0 to 9",
                "load.seed = 3 is listed twice: leave one of them out",
                "load.seed = \"x\" must be a whole number from 0 to 9",
                "load.share = [1.0] must be a number, not a list",
                "load.sede = 1 is not a known key: did you mean seed?",
                "load.zzz = true is not a known key: known are seed, share",
            ]
        );
        assert_eq!(read("seed = []").2, ["load.seed = [] has no value: give one, or leave the key out"]);
        assert_eq!(read("share = nan").2, ["load.share = nan must be a number"]);
    }
}
