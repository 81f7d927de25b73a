//! Errors of the API: a status, a kind for programs, sentences for people, and the place in the body.

use std::path::Path;

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use ridgepoint::{Error, ErrorKind, Location};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer;

/// Seconds after which a client may try again if the queue was full.
const RETRY_AFTER_S: u32 = 1;

/// Why a request has no result.
#[derive(Debug, Clone)]
pub struct Problem(Box<ErrorDetail>);

/// The body of an error.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    error: ErrorDetail,
}

/// An error for programs and for people.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct ErrorDetail {
    #[serde(skip)]
    status: StatusCode,
    /// Name of the kind of error, such as `unknown_model`.
    kind: &'static str,
    /// All of it in one line.
    message: String,
    /// One sentence per problem.
    problems: Vec<String>,
    /// The place in the body of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<BodyPlace>,
}

/// A place in the body of a request.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct BodyPlace {
    /// The part of the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
}

impl From<&Location> for BodyPlace {
    fn from(of: &Location) -> Self {
        let path = (!of.path.is_empty()).then(|| of.path.clone());
        BodyPlace { path, key: of.key.clone(), line: of.line, column: of.column }
    }
}

impl Problem {
    /// An error of one sentence.
    pub fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Problem(Box::new(ErrorDetail { status, kind, problems: vec![message.clone()], message, location: None }))
    }

    /// The body of the request is at fault.
    pub fn invalid(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
    }

    /// The body of the request is not what its header says.
    pub fn malformed(message: impl Into<String>, location: Option<&Location>) -> Self {
        let mut problem = Problem::new(StatusCode::BAD_REQUEST, "malformed", message);
        problem.0.location = location.map(BodyPlace::from);
        problem
    }

    /// The server works on as many requests as it may.
    pub fn busy(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    }

    /// A defect of the server.
    pub fn defect(message: &str) -> Self {
        let message = format!(
            "this is a defect of ridgepoint or of a crate that it uses: {message}; please report it with the request"
        );
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "defect", message)
    }

    /// The same of a name in the path: one that is unknown is nowhere.
    #[must_use]
    pub fn at_its_path(mut self) -> Self {
        if matches!(self.0.kind, "unknown_model" | "unknown_hardware") {
            self.0.status = StatusCode::NOT_FOUND;
        }
        self
    }

    /// Whether the time or the place in the queue of the request that builds a value ran out.
    pub fn is_of_time(&self) -> bool {
        matches!(self.0.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
    }

    /// The same as a fault of the server where a file of its data folder is at fault; paths are those within the folder.
    #[must_use]
    pub fn of_data_folder(mut self, folder: &Path) -> Self {
        let folder = folder.display().to_string();
        let ErrorDetail { problems, message, location, .. } = &mut *self.0;
        let path = location.as_mut().and_then(|place| place.path.as_mut());
        let texts = || std::iter::once(&*message).chain(&*problems).chain(path.as_deref());
        if !texts().any(|text| text.contains(folder.as_str())) {
            return self;
        }
        let within = format!("{}/", folder.trim_end_matches('/'));
        let hidden = |text: &mut String| *text = text.replace(&within, "").replace(folder.as_str(), "the data folder");
        problems.iter_mut().chain([message]).chain(path).for_each(hidden);
        (self.0.status, self.0.kind) = (StatusCode::INTERNAL_SERVER_ERROR, "data_folder");
        self
    }

    /// Replaces the texts of problems that `better` knows a better one for.
    #[must_use]
    pub fn reworded(mut self, better: impl Fn(&str) -> Option<String>) -> Self {
        let ErrorDetail { problems, message, .. } = &mut *self.0;
        for problem in problems {
            if let Some(text) = better(problem) {
                *message = message.replace(problem.as_str(), &text);
                *problem = text;
            }
        }
        self
    }
}

fn status_and_name(kind: ErrorKind) -> (StatusCode, &'static str) {
    let name = match kind {
        // Only files of the data folder are read.
        ErrorKind::Io => return (StatusCode::INTERNAL_SERVER_ERROR, "data_folder"),
        ErrorKind::Parse => "parse",
        ErrorKind::UnknownModel => "unknown_model",
        ErrorKind::UnknownHardware => "unknown_hardware",
        ErrorKind::UnsupportedModel => "unsupported_model",
        ErrorKind::MissingPeak => "missing_peak",
        ErrorKind::EmptyStep => "empty_step",
        ErrorKind::InvalidRequest => "invalid_request",
        ErrorKind::MissingTable => "missing_table",
        ErrorKind::InvalidArgument => "invalid_argument",
        _ => "invalid",
    };
    (StatusCode::UNPROCESSABLE_ENTITY, name)
}

/// The way out of an error in terms of the API.
fn hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::UnknownModel => "; GET /v1/models lists the names, and a config.json may be given in place of one",
        ErrorKind::UnknownHardware => {
            "; GET /v1/hardware lists the names, and the figures of a hardware file may be given in place of one"
        }
        _ => "",
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, kind) = status_and_name(error.kind());
        Problem(Box::new(ErrorDetail {
            status,
            kind,
            message: format!("{error}{}", hint(error.kind())),
            problems: error.problems().to_vec(),
            location: error.location().map(BodyPlace::from),
        }))
    }
}

/// Several problems of the body as one.
impl From<Vec<Error>> for Problem {
    fn from(errors: Vec<Error>) -> Self {
        let all = errors.into_iter().map(Problem::from).reduce(|mut first, next| {
            first.0.problems.extend(next.0.problems);
            first.0.message = format!("{}; {}", first.0.message, next.0.message);
            first.0.location = first.0.location.or(next.0.location);
            first
        });
        all.unwrap_or_else(|| Problem::invalid("the request is at fault"))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.0.status;
        let mut response = answer::json(status, &ErrorBody { error: *self.0 });
        let headers = response.headers_mut();
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// The error of a path that no route has.
pub async fn not_found() -> Problem {
    let message = "there is nothing at this path; GET /openapi.json lists the routes";
    Problem::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// An answer that says why there is none as all others do: errors of the libraries that read requests are short texts.
pub fn in_json(response: Response, too_long: impl Fn() -> Problem) -> Response {
    let status = response.status();
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|of| of.as_bytes() == b"application/json");
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let allowed = response.headers().get(ALLOW).cloned();
    let problem = match status {
        StatusCode::PAYLOAD_TOO_LARGE => too_long(),
        StatusCode::METHOD_NOT_ALLOWED => {
            let methods = allowed.as_ref().and_then(|methods| methods.to_str().ok()).unwrap_or_default();
            Problem::new(status, "method_not_allowed", format!("this path is for {methods} alone"))
        }
        StatusCode::FORBIDDEN => {
            Problem::new(status, "other_site", "a page of another site asks, and the API is for its own page alone")
        }
        _ if status.is_client_error() => {
            Problem::new(status, "malformed", "the path or a header of the request is malformed")
        }
        _ => Problem::defect("a request was answered without a reason"),
    };
    let mut response = problem.into_response();
    if let Some(allowed) = allowed {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_data_folder_is_the_servers_and_has_no_path_of_it() {
        let error = Error::parse("/srv/data/hardware/bad.toml", "is no TOML");
        let problem = Problem::from(error).of_data_folder(Path::new("/srv/data"));
        let text = format!("{problem:?}");
        assert!(text.contains("500") && text.contains("hardware/bad.toml") && !text.contains("/srv"), "{text}");
        let problem = Problem::from(Error::parse("model", "is no JSON")).of_data_folder(Path::new("/srv/data"));
        assert!(format!("{problem:?}").contains("422"));
    }
}
