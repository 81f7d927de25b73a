//! Reads JSON files of any size document by document: lines of objects, a list of objects, or one object.

use std::fmt;
use std::io::BufReader;
use std::marker::PhantomData;
use std::path::Path;

use ridgepoint::input::{Bounded, FileKind, Record, RecordCount, json_error};
use ridgepoint::{Error, Location, Result};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::de::IoRead;

/// Hands over each object of a file: its documents, which follow each other with or without line breaks, and the elements of
/// those that are lists. One object at a time is held, and of it the fields of `T` alone.
///
/// # Errors
/// A file that cannot be read; with line and column, a file that is not JSON, is cut short, or holds other objects than `T`.
pub(crate) fn for_each_object<T: DeserializeOwned>(path: &Path, mut take: impl FnMut(T)) -> Result<()> {
    for_each_document(path, |parser, count| {
        let take = &mut |object| {
            count.begin();
            take(object);
        };
        Document { take, object: PhantomData }.deserialize(parser)
    })
}

/// A parser of a file.
pub(super) type Parser = serde_json::Deserializer<IoRead<BufReader<Bounded<'static>>>>;

/// Has `read` take each document of a file from a parser, with the counter that each record is added to.
///
/// # Errors
/// A file that cannot be read; with line and column, a file that is not JSON or is cut short, and what `read` refuses.
pub(super) fn for_each_document(
    path: &Path,
    mut read: impl FnMut(&mut Parser, &RecordCount) -> serde_json::Result<()>,
) -> Result<()> {
    let (reader, count) = ridgepoint_replay::input::open(FileKind::Trace, path)?.records(Record::Object);
    let mut parser = serde_json::Deserializer::from_reader(reader);
    // `end` fails where another document follows.
    while parser.end().is_err() {
        count.begin();
        read(&mut parser, &count).map_err(|error| fault(path, error))?;
    }
    Ok(())
}

fn fault(path: &Path, error: serde_json::Error) -> Error {
    let origin = path.display().to_string();
    if error.is_eof() || error.io_error_kind() == Some(std::io::ErrorKind::UnexpectedEof) {
        let place = Location::of(origin).line(error.line()).column(error.column());
        return Error::parse(place, "ends within a value: is the file cut short?");
    }
    json_error(&origin, error)
}

struct Document<'t, T, F> {
    take: &'t mut F,
    object: PhantomData<T>,
}

impl<'de, T: DeserializeOwned, F: FnMut(T)> DeserializeSeed<'de> for Document<'_, T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T)> Visitor<'de> for Document<'_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<(), A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(self.take)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        while let Some(object) = list.next_element()? {
            (self.take)(object);
        }
        Ok(())
    }
}

/// Reads a list, and hands over its elements one by one. What the function says of an element is the list's fault.
pub(super) fn for_each_element<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    take: impl FnMut(T) -> std::result::Result<(), String>,
) -> std::result::Result<(), D::Error> {
    deserializer.deserialize_seq(Elements { take, element: PhantomData })
}

struct Elements<T, F> {
    take: F,
    element: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> std::result::Result<(), String>> Visitor<'de> for Elements<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> std::result::Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            (self.take)(element).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// A value of a known key that nothing is read from, and that takes no memory. `IgnoredAny` stands for keys that are not known.
#[derive(Debug, Default)]
pub(super) struct Passed;

impl<'de> Deserialize<'de> for Passed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Passed)
    }
}

impl<'de> Visitor<'de> for Passed {
    type Value = Passed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> std::result::Result<Passed, E> {
        Ok(Passed)
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Passed, E> {
        Ok(Passed)
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Passed, E> {
        Ok(Passed)
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Passed, E> {
        Ok(Passed)
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Passed, E> {
        Ok(Passed)
    }

    fn visit_str<E>(self, _: &str) -> std::result::Result<Passed, E> {
        Ok(Passed)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Passed, A::Error> {
        while list.next_element::<Passed>()?.is_some() {}
        Ok(Passed)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Passed, A::Error> {
        while map.next_entry::<Passed, Passed>()?.is_some() {}
        Ok(Passed)
    }
}
