//! Reads JSON files of any size: hands over the values at some paths and skips the rest, so that no document is held whole.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use ridgepoint::internals::input::json_error;
use ridgepoint::{Error, Location, Result};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Takes values from a stream of JSON documents.
pub(super) trait JsonVisitor {
    /// Paths of the values that are handed over: keys joined by dots. A path that ends in `[]` is handed over element by
    /// element. Other lists on the way have no place in a path.
    const PATHS: &'static [&'static str];

    /// Takes the value at one of the paths.
    fn value(&mut self, path: &'static str, value: Value);

    /// Called at the end of each object on the way to one of the paths.
    fn end(&mut self, _path: &str) {}
}

/// Visits all documents of a file, which follow each other with or without line breaks.
///
/// # Errors
/// A file that cannot be read; with line and column, a file that is not JSON, is cut short, or has a number or text where a path
/// goes on.
pub(super) fn visit_json<V: JsonVisitor>(path: &Path, visitor: &mut V) -> Result<()> {
    let io = |error| Error::io(path, error);
    let mut reader = BufReader::with_capacity(1 << 18, File::open(path).map_err(io)?);
    if reader.fill_buf().map_err(io)?.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    let mut parser = serde_json::Deserializer::from_reader(reader);
    // `end` fails where another document follows.
    while parser.end().is_err() {
        Node { path: String::new(), visitor }.deserialize(&mut parser).map_err(|error| fault(path, error))?;
    }
    Ok(())
}

fn fault(path: &Path, error: serde_json::Error) -> Error {
    let origin = path.display().to_string();
    if error.is_eof() {
        let place = Location::of(origin).line(error.line()).column(error.column());
        return Error::parse(place, "ends within a value: is the file cut short?");
    }
    if error.is_io() { Error::io(path, error.into()) } else { json_error(&origin, &error) }
}

/// A value of a document and its path; that of a list's element ends in `[]`.
struct Node<'v, V> {
    path: String,
    visitor: &'v mut V,
}

impl<V> Node<'_, V> {
    /// The path that keys below this value continue.
    fn base(&self) -> &str {
        self.path.trim_end_matches("[]")
    }
}

impl<'de, V: JsonVisitor> DeserializeSeed<'de> for Node<'_, V> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        if let Some(path) = V::PATHS.iter().find(|path| **path == self.path) {
            self.visitor.value(path, Value::deserialize(deserializer)?);
            return Ok(());
        }
        if V::PATHS.iter().any(|path| path.starts_with(self.base())) {
            return deserializer.deserialize_any(self);
        }
        IgnoredAny::deserialize(deserializer).map(drop)
    }
}

impl<'de, V: JsonVisitor> Visitor<'de> for Node<'_, V> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object or a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        let base = self.base().to_owned();
        while let Some(key) = map.next_key::<String>()? {
            let path = if base.is_empty() { key } else { format!("{base}.{key}") };
            map.next_value_seed(Node { path, visitor: &mut *self.visitor })?;
        }
        self.visitor.end(&base);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        let path = format!("{}[]", self.base());
        while list.next_element_seed(Node { path: path.clone(), visitor: &mut *self.visitor })?.is_some() {}
        Ok(())
    }

    /// Null stands for an empty object or list.
    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        Ok(())
    }
}
