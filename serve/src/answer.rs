//! Bodies of answers: JSON that is compact, and gzip for clients that take it if a body is long.

use std::io::Write;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::StatusCode;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use serde::Serialize;

use crate::problem::Problem;

/// Shorter bodies are cheaper to send than to compress.
const MIN_GZIP_BYTES: usize = 16 * 1024;

/// A predicted step takes fewer bytes.
const USUAL_BYTES: usize = 8 * 1024;

/// An answer in JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => of_bytes(status, text.into(), "application/json"),
        Err(error) => Problem::defect(&format!("the result cannot be written as JSON: {error}")).into_response(),
    }
}

/// An answer of this type.
pub fn of_bytes(status: StatusCode, body: Bytes, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A long answer that is kept in both forms.
#[derive(Debug)]
pub struct Kept {
    plain: Bytes,
    gzip: Bytes,
    content_type: &'static str,
}

impl Kept {
    /// Compresses a body once.
    pub fn new(plain: Bytes, content_type: &'static str) -> Self {
        Kept { gzip: gzip(&plain, Compression::best()), plain, content_type }
    }

    /// The JSON of a value.
    ///
    /// # Errors
    /// A value that cannot be written.
    pub fn json(value: &impl Serialize) -> Result<Self, Problem> {
        let text = serde_json::to_vec(value).map_err(|error| Problem::defect(&error.to_string()))?;
        Ok(Kept::new(text.into(), "application/json"))
    }

    /// The body in the form that the client takes.
    pub fn answer(&self, headers: &HeaderMap) -> Response {
        let is_smaller = self.gzip.len() < self.plain.len();
        if is_smaller && takes_gzip(headers) {
            return encoded(of_bytes(StatusCode::OK, self.gzip.clone(), self.content_type));
        }
        let mut response = of_bytes(StatusCode::OK, self.plain.clone(), self.content_type);
        if is_smaller {
            response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        response
    }
}

/// A result in JSON, compressed if it is long and the client takes gzip.
pub fn result(headers: &HeaderMap, value: &impl Serialize) -> Response {
    let mut text = Vec::with_capacity(USUAL_BYTES);
    if let Err(error) = serde_json::to_writer(&mut text, value) {
        return Problem::defect(&format!("the result cannot be written as JSON: {error}")).into_response();
    }
    if text.len() >= MIN_GZIP_BYTES && takes_gzip(headers) {
        return encoded(of_bytes(StatusCode::OK, gzip(&text, Compression::fast()), "application/json"));
    }
    of_bytes(StatusCode::OK, text.into(), "application/json")
}

fn encoded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    response
}

fn gzip(plain: &[u8], level: Compression) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), level);
    // Writing to memory cannot fail.
    let _ = encoder.write_all(plain);
    encoder.finish().unwrap_or_default().into()
}

/// Whether the client names gzip, and does not refuse it by a weight of zero.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let named = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|value| value.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = parts.any(|part| part.strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0));
        is_gzip && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_taken_where_it_is_named_and_not_refused() {
        for (header, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0, br", false),
            ("identity", false),
            ("x-gzip", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(header));
            assert_eq!(takes_gzip(&headers), expected, "{header}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
