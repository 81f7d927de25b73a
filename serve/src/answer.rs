//! Bodies of answers: compact JSON. `routes` compresses those that are long.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;

use crate::problem::Problem;

/// A predicted step takes fewer bytes.
const USUAL_BYTES: usize = 8 * 1024;

/// The JSON of a value.
///
/// # Errors
/// A value that cannot be written.
pub fn text(value: &impl Serialize) -> Result<Bytes, Problem> {
    let mut text = Vec::with_capacity(USUAL_BYTES);
    match serde_json::to_writer(&mut text, value) {
        Ok(()) => Ok(text.into()),
        Err(error) => Err(Problem::defect(&format!("the result cannot be written as JSON: {error}"))),
    }
}

/// An answer in JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match text(value) {
        Ok(text) => of_bytes(status, text, "application/json"),
        Err(problem) => problem.into_response(),
    }
}

/// An answer of this type.
pub fn of_bytes(status: StatusCode, body: Bytes, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
