//! Bodies of requests: JSON of bounded size and depth, read within the request's time. All bodies that are being read together take a
//! bounded amount of memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use http_body_util::BodyExt;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use hyper::{Request, StatusCode};
use ridgepoint::input::{Distinct, json_error};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use crate::problem::Problem;

/// The name of the body in errors.
pub const ORIGIN: &str = "the request body";

/// Bodies up to this size are read even if the memory for bodies is used up, so that small requests go on.
const ALWAYS_BYTES: usize = 16 * 1024;

/// The limits of bodies, and the bytes of those that are being read.
#[derive(Debug)]
pub struct Bodies {
    max_bytes: usize,
    max_together: usize,
    together: AtomicUsize,
}

/// Bytes of a body that is being read.
struct Held<'a> {
    of: &'a Bodies,
    bytes: usize,
}

impl Held<'_> {
    fn add(&mut self, bytes: usize) -> usize {
        self.bytes += bytes;
        self.of.together.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.of.together.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A JSON object with the headers that came with it.
pub struct Json {
    pub headers: HeaderMap,
    pub map: Map<String, Value>,
    /// Bytes of the text.
    pub bytes: usize,
}

impl Bodies {
    /// Bodies of at most `max_bytes`, and as many of them at once as take `max_together`.
    pub fn new(max_bytes: usize, max_together: usize) -> Self {
        Bodies { max_bytes, max_together, together: AtomicUsize::new(0) }
    }

    /// Reads a JSON object.
    ///
    /// # Errors
    /// A body of another type (415), too long (413), too slow (408), cut short or malformed (400).
    pub async fn json(&self, request: Request<Body>, deadline: Instant) -> Result<Json, Problem> {
        let (parts, body) = request.into_parts();
        check_type(&parts.headers)?;
        let announced = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|bytes| bytes > self.max_bytes as u64) {
            return Err(self.too_long());
        }
        let read = timeout_at(deadline, self.read(body));
        let text = read.await.map_err(|_| {
            let message = "the body did not arrive within --request-timeout-s";
            Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message)
        })??;
        let map = object(&text)?;
        Ok(Json { headers: parts.headers, map, bytes: text.len() })
    }

    async fn read(&self, mut body: Body) -> Result<Vec<u8>, Problem> {
        let mut text = Vec::new();
        let mut held = Held { of: self, bytes: 0 };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Problem::malformed(format!("the body ends early: {error}"), None))?;
            let Ok(data) = frame.into_data() else { continue };
            if text.len() + data.len() > self.max_bytes {
                return Err(self.too_long());
            }
            text.extend_from_slice(&data);
            if held.add(data.len()) > self.max_together && text.len() > ALWAYS_BYTES {
                return Err(Problem::busy("the bodies of other requests take all memory that is set aside for them"));
            }
        }
        Ok(text)
    }

    fn too_long(&self) -> Problem {
        let message = format!("the body is longer than {} bytes, which --max-body-mib allows", self.max_bytes);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", message)
    }
}

/// Any other type than JSON is refused. Browsers send one across sites only after asking, and the answer is no.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("none");
    let essence = given.split(';').next().unwrap_or(given).trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("the content type is {}: send application/json", ridgepoint::unstable::error::cut(given));
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", message))
}

/// Parses an object whose keys are distinct.
fn object(text: &[u8]) -> Result<Map<String, Value>, Problem> {
    match serde_json::from_slice(text) {
        Ok(Distinct(Value::Object(map))) => Ok(map),
        Ok(_) => Err(Problem::malformed(format!("{ORIGIN} must be a JSON object"), None)),
        Err(error) => {
            let error = json_error(ORIGIN, error);
            Err(Problem::malformed(error.to_string(), error.location()))
        }
    }
}

/// Moves the entries of these keys out of a body.
pub fn taken(map: &mut Map<String, Value>, keys: &[&str]) -> Map<String, Value> {
    keys.iter().filter_map(|key| map.remove_entry(*key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        format!("{:?}", object(text.as_bytes()).unwrap_err())
    }

    #[test]
    fn only_a_well_formed_object_is_read() {
        assert_eq!(object(br#"{"a": 1}"#).unwrap().len(), 1);
        assert!(fault("[1]").contains("must be a JSON object"));
        assert!(fault("{\"a\": 1,\n\"a\": 2}").contains("appears twice"));
        assert!(fault("{\"a\":\n}").contains("line: Some(2)"));
        assert!(fault(&"[".repeat(100_000)).contains("recursion limit"));
        assert!(fault("{\"a\": \u{0}}").contains("malformed"));
    }

    #[test]
    fn a_body_is_json_by_its_header() {
        for (given, is_json) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
        ] {
            let headers = [(CONTENT_TYPE, given.parse().unwrap())].into_iter().collect();
            assert_eq!(check_type(&headers).is_ok(), is_json, "{given}");
        }
        assert!(check_type(&HeaderMap::new()).is_err());
    }
}
