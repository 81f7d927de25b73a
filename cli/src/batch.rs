//! The batch of a step: a strict JSON file, or the shorthand flags. A fault names the request, the key and the place.

use ridgepoint::ErrorKind;
use ridgepoint::internals::error::Detail;
use std::fmt::{self, Display};
use std::io::Read;
use std::path::Path;

use ridgepoint::{Error, Request, Result};
use serde::Deserializer;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::output::Failure;
use super::shorthand::{self, DecodeItem, Flags, PrefillItem};

/// Requests, and where each of them was asked for.
pub struct Batch {
    /// The requests.
    pub requests: Vec<Request>,
    origin: Origin,
}

enum Origin {
    File(String),
    Flags(Flags),
}

/// How many faulty requests are shown before the rest is only counted.
const MAX_SHOWN: usize = 5;

impl Batch {
    /// Reads a batch file, or standard input for `-`.
    pub fn read(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        let origin = if path == Path::new("-") {
            let stdin = std::io::stdin().lock().read_to_end(&mut bytes);
            stdin.map_err(|error| Error::io("standard input", error))?;
            "standard input".to_owned()
        } else {
            bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
            path.display().to_string()
        };
        let requests = parse(&bytes).map_err(|message| Error::parse(origin.clone(), message))?;
        Ok(Batch { requests, origin: Origin::File(origin) })
    }

    /// The batch that the shorthand flags stand for.
    pub fn from_flags(prefill: &[PrefillItem], decode: &[DecodeItem]) -> std::result::Result<Self, Failure> {
        let (requests, flags) = shorthand::expand(prefill, decode).map_err(Failure::input)?;
        Ok(Batch { requests, origin: Origin::Flags(flags) })
    }

    /// Explains why the batch as a whole was refused: `single` says what is wrong with one request, so that every faulty
    /// one is named and not only the first.
    pub fn refused(&self, error: &Error, single: impl Fn(&Request) -> Result<()>) -> Failure {
        if error.kind() != ErrorKind::InvalidRequest {
            return Failure::input(match &self.origin {
                Origin::File(origin) => format!("{origin}: {error}"),
                Origin::Flags(_) => error.to_string(),
            });
        }
        let mut problems = Vec::new();
        let mut last_flag = None;
        let mut more = 0;
        for (index, request) in self.requests.iter().enumerate() {
            let Err(error) = single(request) else { continue };
            let Detail::InvalidRequest { field, value, reason, .. } = error.into_detail() else { continue };
            let place = match &self.origin {
                Origin::File(origin) => format!("{origin}: request {index}"),
                Origin::Flags(flags) => {
                    let flag = flags.iter().position(|(end, _)| index < *end);
                    if flag.is_some() && flag == last_flag {
                        continue;
                    }
                    last_flag = flag;
                    flag.and_then(|at| flags.get(at)).map_or_else(String::new, |(_, text)| text.clone())
                }
            };
            if problems.len() < MAX_SHOWN {
                problems.push(format!("{place}: {field} = {value} {reason}"));
            } else {
                more += 1;
            }
        }
        if more > 0 {
            problems.push(format!("{more} more requests have such problems"));
        }
        if problems.is_empty() {
            problems.push(error.to_string());
        }
        Failure::Input(problems)
    }
}

/// Parses `{"requests": [...]}`.
///
/// # Errors
/// A message with request, key, line and column.
pub fn parse(bytes: &[u8]) -> std::result::Result<Vec<Request>, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(format!("is empty; expected {SHAPE}"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let requests = json.deserialize_any(File).map_err(|error| error.to_string())?;
    json.end().map_err(|error| format!("text after the end of the batch: {error}"))?;
    Ok(requests)
}

const SHAPE: &str = r#"{"requests": [{"num_computed_tokens": 2048, "num_scheduled_tokens": 1}, ...]}"#;

/// An error of `inner`, with what it is about in front; its line and column survive in the text.
fn about<E: de::Error>(what: impl Display, inner: impl Display) -> E {
    E::custom(format!("{what}: {inner}"))
}

struct File;

impl<'de> Visitor<'de> for File {
    type Value = Vec<Request>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SHAPE}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut requests = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "requests" if requests.is_some() => return Err(de::Error::custom("key `requests` stands twice")),
                "requests" => requests = Some(map.next_value_seed(Requests)?),
                _ => {
                    return Err(de::Error::custom(format!("unknown key `{key}`; a batch has `requests` only")));
                }
            }
        }
        requests.ok_or_else(|| de::Error::custom(format!("missing key `requests`; expected {SHAPE}")))
    }
}

struct Requests;

impl<'de> DeserializeSeed<'de> for Requests {
    type Value = Vec<Request>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Requests {
    type Value = Vec<Request>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of requests")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Self::Value, A::Error> {
        let mut requests = Vec::new();
        loop {
            let next = seq.next_element_seed(One);
            match next.map_err(|error| about(format_args!("request {}", requests.len()), error))? {
                Some(request) => requests.push(request),
                None => return Ok(requests),
            }
        }
    }
}

struct One;

impl<'de> DeserializeSeed<'de> for One {
    type Value = Request;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Request, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for One {
    type Value = Request;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a request such as {"num_computed_tokens": 2048, "num_scheduled_tokens": 1}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Request, A::Error> {
        let (mut computed, mut scheduled, mut samples) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            let is_new = match key.as_str() {
                "num_computed_tokens" | "progress_index" => {
                    computed.replace(map.next_value_seed(Tokens).map_err(|e| about(&key, e))?).is_none()
                }
                "num_scheduled_tokens" | "num_new_tokens" => {
                    scheduled.replace(map.next_value_seed(Tokens).map_err(|e| about(&key, e))?).is_none()
                }
                "samples" => samples.replace(map.next_value::<bool>().map_err(|e| about(&key, e))?).is_none(),
                _ => {
                    return Err(de::Error::custom(format!(
                        "unknown key `{key}`; known are num_computed_tokens (or progress_index), num_scheduled_tokens \
                         (or num_new_tokens) and samples"
                    )));
                }
            };
            if !is_new {
                return Err(de::Error::custom(format!("`{key}` is given twice, perhaps under its other name")));
            }
        }
        let missing = |key: &str| de::Error::custom(format!("missing key {key}"));
        Ok(Request::new(
            computed.ok_or_else(|| missing("`num_computed_tokens` (or `progress_index`)"))?,
            scheduled.ok_or_else(|| missing("`num_scheduled_tokens` (or `num_new_tokens`)"))?,
            samples.unwrap_or(true),
        ))
    }
}

struct Tokens;

impl<'de> DeserializeSeed<'de> for Tokens {
    type Value = u32;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<u32, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Tokens {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", u32::MAX)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> std::result::Result<u32, E> {
        u32::try_from(value).map_err(|_| E::custom(format!("{value} is more than {}", u32::MAX)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> std::result::Result<u32, E> {
        Err(E::custom(format!("{value} is negative; expected a whole number from 0 to {}", u32::MAX)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> std::result::Result<u32, E> {
        Err(E::custom(format!("{value:?} is not a whole number from 0 to {}, written in digits", u32::MAX)))
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
