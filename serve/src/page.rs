//! The page: the files of `page/dist`, inside the binary.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use include_dir::{Dir, include_dir};

use crate::answer::Kept;
use crate::app::App;
use crate::problem;

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../page/dist");

/// The page loads nothing from elsewhere, runs no inline script and is in no frame.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// The files by path.
pub struct Page {
    files: HashMap<&'static str, File>,
}

struct File {
    body: Kept,
    etag: HeaderValue,
}

impl Page {
    /// Compresses every file once.
    pub fn new() -> Self {
        let mut files = HashMap::new();
        add(&FILES, &mut files);
        Page { files }
    }

    fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        let file = self.files.get(path)?;
        let is_known = headers.get_all(IF_NONE_MATCH).iter().any(|value| is_among(value, &file.etag));
        let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { file.body.answer(headers) };
        let to_send = response.headers_mut();
        to_send.insert(ETAG, file.etag.clone());
        // Names of assets have no hash for certain: clients ask each time, and get a short answer if nothing changed.
        to_send.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        to_send.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        Some(response)
    }
}

fn add(dir: &'static Dir<'static>, files: &mut HashMap<&'static str, File>) {
    for file in dir.files() {
        let Some(path) = file.path().to_str() else { continue };
        let mut hasher = DefaultHasher::new();
        file.contents().hash(&mut hasher);
        let etag = format!("W/\"{:016x}\"", hasher.finish());
        let Ok(etag) = HeaderValue::try_from(etag) else { continue };
        let body = Kept::new(Bytes::from_static(file.contents()), content_type(path));
        files.insert(path, File { body, etag });
    }
    dir.dirs().for_each(|dir| add(dir, files));
}

/// Whether a list of tags names this one, or any.
fn is_among(list: &HeaderValue, etag: &HeaderValue) -> bool {
    let (list, etag) = (list.to_str().unwrap_or_default(), etag.to_str().unwrap_or_default());
    list.split(',')
        .map(str::trim)
        .any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag.trim_start_matches("W/"))
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        "webmanifest" => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

pub async fn index(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    found(&app, "index.html", &headers).await
}

pub async fn file(State(app): State<Arc<App>>, Path(path): Path<String>, headers: HeaderMap) -> Response {
    found(&app, &path, &headers).await
}

async fn found(app: &App, path: &str, headers: &HeaderMap) -> Response {
    match app.page.answer(path, headers) {
        Some(response) => response,
        None => problem::not_found().await.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_tag_is_found_in_any_list() {
        let etag = HeaderValue::from_static("W/\"0a\"");
        for (list, expected) in [
            ("W/\"0a\"", true),
            ("\"0a\"", true),
            ("\"1\", W/\"0a\"", true),
            ("*", true),
            ("\"0\"", false),
            ("", false),
        ] {
            assert_eq!(is_among(&HeaderValue::from_static(list), &etag), expected, "{list}");
        }
    }
}
