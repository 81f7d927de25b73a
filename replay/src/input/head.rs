//! Looks at the beginning of a file to detect its format: the first keys of JSON or the columns of a csv header.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The beginning of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The kind of text.
    pub kind: HeadKind,
    /// The columns; of JSON, keys of the outermost object or of the objects in the outermost list, each once.
    pub names: Vec<String>,
}

/// The kind of text that a file begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// Nothing but white space.
    Empty,
    /// A JSON object.
    JsonObject,
    /// A JSON list.
    JsonList,
    /// Anything else, read as a csv header.
    Csv,
}

impl Head {
    /// Whether it is JSON.
    pub fn is_json(&self) -> bool {
        matches!(self.kind, HeadKind::JsonObject | HeadKind::JsonList)
    }

    /// Whether `name` is among the keys or columns.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// Looks at the beginning of a file, which may end anywhere. Lines that start with `#` are no csv header.
pub fn head(bytes: &[u8]) -> Head {
    let text = bytes.trim_ascii_start();
    let mut names = Vec::new();
    let kind = match text.first() {
        None => HeadKind::Empty,
        Some(first @ (b'{' | b'[')) => {
            // The text is cut off, so it may end in an error; the keys before that count.
            let _ = serde_json::Deserializer::from_slice(text).deserialize_any(FirstKeys(&mut names));
            match first {
                // A line of a log may begin with a bracket.
                _ if names.is_empty() && !is_json(text) => csv_header(text, &mut names),
                b'[' => HeadKind::JsonList,
                _ => HeadKind::JsonObject,
            }
        }
        Some(_) => csv_header(text, &mut names),
    };
    Head { kind, names }
}

/// Whether a text is JSON as far as its second value, or where it is cut off.
fn is_json(text: &[u8]) -> bool {
    let values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    values.take(2).all(|value| value.map_or_else(|error| !error.is_syntax(), |_| true))
}

fn csv_header(text: &[u8], names: &mut Vec<String>) -> HeadKind {
    let text = String::from_utf8_lossy(text);
    let header = text.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
    names.extend(header.split(',').map(|name| name.trim().trim_matches('"').to_owned()));
    HeadKind::Csv
}

/// Collects keys of an object, or of each object in a list.
struct FirstKeys<'k>(&'k mut Vec<String>);

impl<'de> DeserializeSeed<'de> for FirstKeys<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FirstKeys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            // Formats differ in their first keys, so a file of many keys needs no more.
            if self.0.len() < 1000 && !self.0.contains(&key) {
                self.0.push(key);
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(FirstKeys(self.0))?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        head(text.as_bytes()).names
    }

    #[test]
    fn keys_in_strings_and_inner_objects_do_not_count() {
        assert_eq!(names(r#"{"a\"b": {"x": [1, {"y": 2}]}, "c" : ["d:", "e"], "f": tru"#), ["a\"b", "c", "f"]);
        assert_eq!(names("\n[{\"a\": 1}, {\"a\": 2, \"b\": \"{\\\"c\\\": 1}\"}"), ["a", "b"]);
        assert!(names("{\"a\\").is_empty());
        assert_eq!(head(b"[1, 2]").kind, HeadKind::JsonList);
        for cut_off in ["[", "[{", "{", "{\"a", "[1, 2", "[[\"x\"", "{\"a\": 1} {\"b"] {
            assert!(head(cut_off.as_bytes()).is_json(), "{cut_off}");
        }
    }

    #[test]
    fn a_line_with_a_bracket_in_front_is_no_json() {
        for line in [
            "[2026-01-10 10:00:00] server_args",
            "[INFO] x",
            "[12345] INFO z",
            "[rank0]: y",
            "{name} z",
            "[TensorRT-LLM][INFO] a, b",
        ] {
            assert_eq!(head(line.as_bytes()).kind, HeadKind::Csv, "{line}");
        }
    }

    #[test]
    fn a_header_comes_after_comments() {
        assert_eq!(names("# made by hand\narrival, \"input_len\"\n1,2"), ["arrival", "input_len"]);
        assert_eq!(head(b" \n").kind, HeadKind::Empty);
    }
}
