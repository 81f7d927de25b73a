//! Reads JSON files of any size document by document: lines of objects, a list of objects, or one object.

use std::fmt;
use std::io::BufReader;
use std::marker::PhantomData;
use std::path::Path;

use ridgepoint::input::{Bounded, FileKind, Record, RecordCount, json_error};
use ridgepoint::{Error, Location, Result};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::de::IoRead;

/// Hands over each object of a file: its documents, which follow each other with or without line breaks, and the elements of
/// those that are lists. One object at a time is held, and of it the fields of `T` alone.
///
/// # Errors
/// A file that cannot be read; with line and column, a file that is not JSON, is cut short, or holds other objects than `T`.
pub(super) fn for_each_object<T: DeserializeOwned>(path: &Path, mut take: impl FnMut(T)) -> Result<()> {
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
