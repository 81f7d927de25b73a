//! The page: the files of `page/dist`, inside the binary.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use headers::{ETag, HeaderMapExt, IfNoneMatch};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue};
use include_dir::{Dir, include_dir};

use crate::{answer, problem};

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../page/dist");

/// The page loads nothing from elsewhere, runs no inline script and is in no frame. Its plots have style sheets of their own.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

pub async fn index(headers: HeaderMap) -> Response {
    found("index.html", &headers).await
}

pub async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    found(&path, &headers).await
}

async fn found(path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = FILES.get_file(path) else { return problem::not_found().await.into_response() };
    let etag = etag(file.contents());
    let is_known = headers
        .typed_get::<IfNoneMatch>()
        .zip(etag.as_ref())
        .is_some_and(|(known, etag)| !known.precondition_passes(etag));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => answer::of_bytes(StatusCode::OK, Bytes::from_static(file.contents()), content_type(path)),
    };
    let to_send = response.headers_mut();
    if let Some(etag) = etag {
        to_send.typed_insert(etag);
    }
    // Names of assets have no hash for certain: clients ask each time, and get a short answer if nothing changed.
    to_send.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    to_send.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// A weak tag, as the content may be compressed.
fn etag(contents: &[u8]) -> Option<ETag> {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    format!("W/\"{:016x}\"", hasher.finish()).parse().ok()
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_type() {
        let files = FILES.files().chain(FILES.dirs().flat_map(|dir| dir.files()));
        let untyped = files.filter(|file| content_type(file.path().to_str().unwrap()) == "application/octet-stream");
        assert_eq!(untyped.count(), 0);
    }
}
