//! Parses JSON, TOML and YAML into JSON values.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::reader::read_error;
use crate::error::{Error, Location, Result, cut};

/// Parses JSON. Errors call it `origin` and carry line and column.
///
/// # Errors
/// A text that is not JSON, or has a key twice.
pub fn parse_json(origin: &str, text: &str) -> Result<Value> {
    distinct_json(text.as_bytes()).map_err(|error| json_error(origin, error))
}

/// Parses JSON as Python writes it: `NaN`, `Infinity` and `-Infinity`, which JSON does not have, are read as absent.
///
/// # Errors
/// Those of [`parse_json`].
pub fn parse_python_json(origin: &str, text: &str) -> Result<Value> {
    const NUMBERS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    if !NUMBERS.iter().any(|number| text.contains(number)) {
        return parse_json(origin, text);
    }
    let mut plain = String::with_capacity(text.len());
    let (mut rest, mut in_string) = (text, false);
    while let Some(next) = rest.chars().next() {
        let number = NUMBERS.iter().find(|number| !in_string && rest.starts_with(**number));
        let taken = match number {
            Some(number) => {
                plain.push_str("null");
                number.len()
            }
            None => {
                // An escaped quote does not end a text.
                let escaped = rest.chars().nth(1).filter(|_| in_string && next == '\\').map_or(0, char::len_utf8);
                in_string ^= next == '"';
                let taken = next.len_utf8() + escaped;
                plain.push_str(rest.get(..taken).unwrap_or_default());
                taken
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    parse_json(origin, &plain)
}

/// Parses JSON whose objects have distinct keys.
pub fn distinct_json(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text).map(|Distinct(value)| value)
}

/// A JSON value whose objects have distinct keys. `Value` alone would keep the last of equal keys.
#[derive(Debug, Default)]
pub struct Distinct(pub Value);

struct DistinctVisitor;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(DistinctVisitor).map(Distinct)
    }
}

impl<'de> Visitor<'de> for DistinctVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Distinct(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if values.contains_key(&key) {
                return Err(serde::de::Error::custom(format!("key '{}' appears twice", cut(&key))));
            }
            let Distinct(value) = map.next_value()?;
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

/// The object that an argument has, as an object or as its JSON text.
pub fn object_or_text(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// Turns an error of `serde_json` into one with line and column.
pub fn json_error(origin: &str, error: serde_json::Error) -> Error {
    if error.is_io() {
        return read_error(origin, error.into());
    }
    let place = Location::of(origin).line(error.line()).column(error.column());
    Error::parse(place, format!("is not well-formed JSON: {}", json_cause(&error)))
}

/// The text of an error of `serde_json` without its place.
pub fn json_cause(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message.split(" at line ").next().unwrap_or(&message).to_owned()
}

/// Parses TOML. Numbers that JSON does not have, and dates, become texts.
///
/// # Errors
/// A text that is not TOML, with line and column.
pub fn parse_toml(origin: &str, text: &str) -> Result<Value> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let mut place = Location::of(origin);
        if let Some(before) = error.span().and_then(|span| text.get(..span.start)) {
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            place = place.line(before.matches('\n').count() + 1).column(before[line_start..].chars().count() + 1);
        }
        Error::parse(place, format!("is not well-formed TOML: {}", error.message()))
    })?;
    Ok(from_toml(toml::Value::Table(table)))
}

fn from_toml(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(whole) => Value::from(whole),
        toml::Value::Float(number) => Number::from_f64(number).map_or_else(|| value.to_string().into(), Value::Number),
        toml::Value::Boolean(switch) => Value::Bool(switch),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Array(list) => list.into_iter().map(from_toml).collect(),
        toml::Value::Table(table) => {
            Value::Object(table.into_iter().map(|(key, value)| (key, from_toml(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn syntax_errors_have_line_and_column() {
        let place = |error: Error| error.location().map(|place| (place.line, place.column));
        assert_eq!(parse_json("f.json", "{\n \"a\": }").map_err(place), Err(Some((Some(2), Some(7)))));
        assert_eq!(parse_toml("f.toml", "a = 1\nb = ?\n").map_err(place), Err(Some((Some(2), Some(5)))));
        assert_eq!(parse_toml("f", "a = [inf, 2]\n[t]\nb = 1.5").unwrap(), json!({"a": ["inf", 2], "t": {"b": 1.5}}));
    }
}
