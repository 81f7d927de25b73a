//! The batch of a step, from a JSON file or from the shorthand flags. An error names the request, the key and the place.

use std::fmt;
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use ridgepoint::internals::error::Detail;
use ridgepoint::{Error, ErrorKind, Request};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::shorthand::{Item, expand};
use crate::outcome::Failure;

/// Most faulty requests that are reported one by one.
const MAX_SHOWN: usize = 5;

const SHAPE: &str = r#"{"requests": [{"num_computed_tokens": 2048, "num_scheduled_tokens": 1}, ...]}"#;

/// Requests, and where they come from.
pub struct Batch {
    /// The requests.
    pub requests: Vec<Request>,
    origin: Origin,
}

enum Origin {
    File(String),
    /// The flags, each with the index behind its last request.
    Flags(Vec<(usize, String)>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    requests: Vec<Object<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(alias = "progress_index", deserialize_with = "tokens")]
    num_computed_tokens: u32,
    #[serde(alias = "num_new_tokens", deserialize_with = "tokens")]
    num_scheduled_tokens: u32,
    #[serde(default = "samples_by_default")]
    samples: bool,
}

fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let tokens = number.as_u64().and_then(|tokens| u32::try_from(tokens).ok());
    tokens.ok_or_else(|| serde::de::Error::custom(format!("{number} must be a whole number from 0 to {}", u32::MAX)))
}

fn samples_by_default() -> bool {
    true
}

/// A struct that is read from an object only. Serde would also read it from an array of its values.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

impl Batch {
    /// Reads a batch file, or standard input for `-`.
    ///
    /// # Errors
    /// A file that cannot be read or is no batch.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let is_stdin = path == Path::new("-");
        let origin = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let mut bytes = Vec::new();
        let read = if is_stdin {
            std::io::stdin().lock().read_to_end(&mut bytes).map(drop)
        } else {
            std::fs::read(path).map(|found| bytes = found)
        };
        read.map_err(|error| Error::io(&origin, error))?;
        let requests = parse(&bytes).map_err(|message| Failure::input(format!("{origin}: {message}")))?;
        Ok(Batch { requests, origin: Origin::File(origin) })
    }

    /// The batch that the shorthand flags stand for, prefill chunks first.
    ///
    /// # Errors
    /// Too many requests.
    pub fn from_flags(prefill: &[Item], decode: &[Item]) -> Result<Self, Failure> {
        let items: Vec<&Item> = prefill.iter().chain(decode).collect();
        let (requests, ends) = expand(&items).map_err(Failure::input)?;
        let flags = ends.into_iter().zip(items.iter().map(|item| item.flag.clone())).collect();
        Ok(Batch { requests, origin: Origin::Flags(flags) })
    }
}

impl Batch {
    /// Explains why the batch was refused. `single` checks one request, so that every faulty one is named.
    pub fn refused(&self, error: &Error, single: impl Fn(&Request) -> ridgepoint::Result<()>) -> Failure {
        if error.kind() != ErrorKind::InvalidRequest {
            return Failure::input(match &self.origin {
                Origin::File(origin) => format!("{origin}: {error}"),
                Origin::Flags(_) => error.to_string(),
            });
        }
        let mut problems: Vec<String> = Vec::new();
        let mut last_flag = None;
        for (index, request) in self.requests.iter().enumerate() {
            let Err(error) = single(request) else { continue };
            let Detail::InvalidRequest { field, value, reason, .. } = error.into_detail() else { continue };
            let place = match &self.origin {
                Origin::File(origin) => format!("{origin}: request {index}"),
                Origin::Flags(flags) => {
                    let flag = flags.iter().find(|(end, _)| index < *end);
                    if flag.is_some() && flag == last_flag {
                        continue;
                    }
                    last_flag = flag;
                    flag.map_or_else(String::new, |(_, text)| text.clone())
                }
            };
            problems.push(format!("{place}: {field} = {value} {reason}"));
        }
        if problems.is_empty() {
            problems.push(error.to_string());
        }
        let more = problems.len().saturating_sub(MAX_SHOWN);
        if more > 0 {
            problems.truncate(MAX_SHOWN);
            problems.push(format!("{more} more requests have such problems"));
        }
        Failure::Input(problems)
    }
}

/// Parses `{"requests": [...]}`.
///
/// # Errors
/// A message with request, key, value, line and column.
fn parse(bytes: &[u8]) -> Result<Vec<Request>, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(format!("is empty; expected {SHAPE}"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let Object(file): Object<File> = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner();
        if path.contains('[') { format!("{path}: {message}") } else { format!("{message}; expected {SHAPE}") }
    })?;
    json.end().map_err(|error| format!("text after the end of the batch: {error}"))?;
    let request = |Object(entry): Object<Entry>| {
        Request::new(entry.num_computed_tokens, entry.num_scheduled_tokens, entry.samples)
    };
    Ok(file.requests.into_iter().map(request).collect())
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
