//! Bodies of requests: JSON of bounded size and depth, read within the request's time. All bodies together take a bounded amount of memory,
//! as texts and as the values that they are parsed into.

use std::sync::Arc;

use axum::body::Body;
use http_body_util::{BodyExt, LengthLimitError};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Request, StatusCode};
use ridgepoint::input::{Distinct, json_error};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use crate::app::{App, RequestLimits};
use crate::problem::Problem;

/// The name of the body in errors.
pub const ORIGIN: &str = "the request body";

/// Bodies up to this size are taken even if the memory for bodies is used up, so that small requests go on.
const FREE_BYTES: usize = 16 * 1024;

/// Longer bodies are parsed, and their faults collected, on the threads for long work.
pub const MOST_BYTES_AT_ONCE: usize = 100 * 1024;

/// Memory for all bodies, as multiples of the longest one: 512 MiB for bodies of 4 MiB.
const TOGETHER: usize = 128;

/// Bytes of a permit.
const PERMIT_BYTES: usize = 1024;

/// Estimated bytes of what a character of JSON begins: an object is a node of a tree with room for eleven keys. Handlers copy some values,
/// so that everything counts twice.
const OBJECT_BYTES: usize = 2 * 640;
const KEY_BYTES: usize = 2 * 64;
const ITEM_BYTES: usize = 2 * 64;

/// Deeper nesting than the parser of JSON takes.
const MOST_DEPTH: usize = 128;

/// The limits of bodies, and the memory that they may take together.
#[derive(Debug)]
pub struct Bodies {
    max_bytes: usize,
    together: Arc<Semaphore>,
}

/// Memory of a body out of that for all bodies. It is free again when this is dropped.
#[derive(Debug)]
pub struct BodyReservation {
    together: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl BodyReservation {
    /// Reserves this many bytes instead of fewer.
    fn grow_to(&mut self, bytes: usize) -> Result<(), Problem> {
        let reserved = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = bytes.saturating_sub(FREE_BYTES).div_ceil(PERMIT_BYTES);
        let more = u32::try_from(wanted.saturating_sub(reserved)).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        let Ok(more) = Arc::clone(&self.together).try_acquire_many_owned(more) else {
            return Err(Problem::busy("the bodies of other requests take all memory that is set aside for them"));
        };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

/// A JSON object with the memory that is reserved for it.
pub struct Json {
    pub map: Map<String, Value>,
    /// Bytes of the text.
    pub bytes: usize,
    pub reservation: BodyReservation,
}

impl Bodies {
    /// Bodies of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        let permits = max_bytes.saturating_mul(TOGETHER) / PERMIT_BYTES;
        Bodies { max_bytes, together: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))) }
    }

    /// Most bytes of a body.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    async fn read(&self, mut body: Body, reservation: &mut BodyReservation) -> Result<Vec<u8>, Problem> {
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match is_too_long(&error) {
                true => self.too_long(),
                false => Problem::malformed(format!("the body ends early: {error}"), None),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            text.extend_from_slice(&data);
            reservation.grow_to(text.len())?;
        }
        Ok(text)
    }

    /// Reserves what the values of a text take.
    fn reserve_values(&self, text: &[u8], reservation: &mut BodyReservation) -> Result<(), Problem> {
        let bytes = value_bytes(text);
        let most = self.max_bytes.saturating_mul(TOGETHER / 2);
        if bytes > most {
            let message = format!(
                "the body has so many values that they may take {} MiB, and {} are allowed: send fewer",
                bytes >> 20,
                most >> 20
            );
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", message));
        }
        reservation.grow_to(bytes)
    }

    /// The error of a longer body than those that are read.
    pub fn too_long(&self) -> Problem {
        let message = format!("the body is longer than {} bytes, which --max-body-mib allows", self.max_bytes);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", message)
    }
}

/// Reads a JSON object. A long one is parsed on the threads for long work.
///
/// # Errors
/// A body of another type (415), too long (413), too slow (408), cut short or malformed (400).
pub async fn json(app: &App, limits: RequestLimits, request: Request<Body>) -> Result<Json, Problem> {
    let (parts, body) = request.into_parts();
    check_type(&parts.headers)?;
    let mut reservation = BodyReservation { together: Arc::clone(&app.bodies.together), permit: None };
    let read = timeout_at(limits.deadline, app.bodies.read(body, &mut reservation));
    let text = read.await.map_err(|_| {
        let message = "the body did not arrive within --request-timeout-s";
        Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message)
    })??;
    app.bodies.reserve_values(&text, &mut reservation)?;
    let bytes = text.len();
    let map = match bytes {
        0..=MOST_BYTES_AT_ONCE => object(&text)?,
        _ => app.run(limits, move |_| object(&text)).await?,
    };
    Ok(Json { map, bytes, reservation })
}

/// An estimate of the memory that the values of a JSON text take, from above, without parsing it. It ends where the parser does: at the nesting
/// that is too deep for it.
fn value_bytes(text: &[u8]) -> usize {
    let (mut bytes, mut depth) = (text.len(), 0_usize);
    let (mut in_text, mut is_escaped) = (false, false);
    for character in text {
        match character {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' => (bytes, depth) = (bytes + OBJECT_BYTES, depth + 1),
            b'[' => (bytes, depth) = (bytes + ITEM_BYTES, depth + 1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' => bytes += KEY_BYTES,
            b',' => bytes += ITEM_BYTES,
            _ => {}
        }
        if depth > MOST_DEPTH {
            break;
        }
    }
    bytes
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
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

    #[test]
    fn bodies_take_a_bounded_amount_of_memory_together() {
        let bodies = Bodies::new(1 << 20);
        let reservation = || BodyReservation { together: Arc::clone(&bodies.together), permit: None };
        let (mut first, mut second, mut small) = (reservation(), reservation(), reservation());
        first.grow_to(100 << 20).unwrap();
        first.grow_to(50 << 20).unwrap();
        assert!(second.grow_to(100 << 20).is_err());
        small.grow_to(FREE_BYTES).unwrap();
        drop(first);
        second.grow_to(100 << 20).unwrap();
    }

    #[test]
    fn values_of_few_characters_count_as_what_they_take() {
        let bodies = Bodies::new(4 << 20);
        let judged = |text: &str| {
            let mut reservation = BodyReservation { together: Arc::clone(&bodies.together), permit: None };
            bodies.reserve_values(text.as_bytes(), &mut reservation)
        };
        let objects = "{\"\":0},".repeat((4 << 20) / 7);
        assert!(format!("{:?}", judged(&objects).unwrap_err()).contains("body_too_long"));
        let requests = "{\"num_computed_tokens\":2048,\"num_scheduled_tokens\":1},".repeat((4 << 20) / 54);
        assert!(judged(&requests).is_ok());
        // What looks like nesting within a text is none.
        let hidden = format!("[\"{}\\\"[\",{objects}]", "[".repeat(200));
        assert!(judged(&hidden).is_err());
        assert!(judged(&"{\"a\":".repeat(600_000)).is_ok());
    }
}
