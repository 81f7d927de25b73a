//! Keys of a grid that have one value or a list of them. Uses `ridgepoint::internals::input`.

use ridgepoint::internals::input::{Keys, shown};
use serde_json::Value;

/// The values of a key: those of its list, or the one.
pub(super) fn values(value: &Value) -> &[Value] {
    match value {
        Value::Array(list) => list,
        one => std::slice::from_ref(one),
    }
}

/// Reads a key with one value or a list of them; an absent key has none. Wrong and equal values and an empty list are problems.
pub(super) fn list<T>(keys: &Keys<'_>, key: &str, expected: &str, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    let Some(value) = keys.get(key) else { return Vec::new() };
    let values = values(value);
    if values.is_empty() {
        keys.problem(key, "has no value: give one, or leave the key out");
    }
    let mut found = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let wrong = |reason: &str| keys.log.problem(format!("{} = {} {reason}", keys.path_of(key), shown(value)));
        if values.iter().take(index).any(|before| before == value) {
            wrong("is listed twice: keep one");
        }
        match read(value) {
            Some(read) => found.push(read),
            None => wrong(&format!("must be {expected}")),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use ridgepoint::internals::input::Log;
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> (Vec<u64>, Vec<String>) {
        let log = Log::default();
        let seeds = list(&Keys::new("load", value, &log), "seed", "a whole number", Value::as_u64);
        let problems = log.finish("grid", Some(())).err().map(|error| error.problems().to_vec());
        (seeds, problems.unwrap_or_default())
    }

    #[test]
    fn a_value_is_a_list_of_one_and_every_fault_is_listed() {
        assert_eq!(read(&json!({"seed": 3})), (vec![3], vec![]));
        assert_eq!(read(&json!({"seed": [3, 0]})), (vec![3, 0], vec![]));
        assert_eq!(
            read(&json!({"seed": [3, -1, 3]})).1,
            ["load.seed = -1 must be a whole number", "load.seed = 3 is listed twice: keep one"]
        );
        assert_eq!(read(&json!({"seed": []})).1, ["load.seed = [] has no value: give one, or leave the key out"]);
    }
}
