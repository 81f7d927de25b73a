//! The routes, and what every request goes through: the host, the token, limits, the count, the log, headers of answers.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, MatchedPath, State};
use axum::middleware::{Next, from_fn_with_state, map_response_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use hyper::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Request, StatusCode};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;
use tower_http::csrf::CsrfLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::app::App;
use crate::problem::{Problem, in_json, not_found};
use crate::{answer, catalogue, kv_capacity, page, predict, simulate, sweep};

/// Shorter bodies are cheaper to send than to compress.
const MIN_GZIP_BYTES: u64 = 16 * 1024;

/// A route's path, its methods, and whether it takes a token where one is set.
struct Route {
    name: &'static str,
    needs_token: bool,
    of: fn() -> MethodRouter<Arc<App>>,
}

const fn route(name: &'static str, of: fn() -> MethodRouter<Arc<App>>) -> Route {
    Route { name, needs_token: true, of }
}

/// A route that clients without the token may use.
const fn open(name: &'static str, of: fn() -> MethodRouter<Arc<App>>) -> Route {
    Route { name, needs_token: false, of }
}

/// Returns 404 for unknown paths of the API.
const UNKNOWN: &str = "/v1/{*unknown}";

static ROUTES: [Route; 18] = [
    open("/", || get(page::index)),
    open("/{*file}", || get(page::file)),
    open("/healthz", || get(catalogue::healthz)),
    route("/metrics", || get(metrics)),
    route("/openapi.json", || get(catalogue::openapi)),
    route("/v1/version", || get(catalogue::version)),
    route("/v1/models", || get(catalogue::models)),
    route("/v1/models/{*name}", || get(catalogue::model)),
    route("/v1/hardware", || get(catalogue::hardware)),
    route("/v1/hardware/{*name}", || get(catalogue::gpu)),
    route("/v1/arguments", || get(catalogue::arguments)),
    route("/v1/support", || get(catalogue::support)),
    route("/v1/measured", || get(catalogue::measured)),
    route("/v1/predict-step", || post(predict::predict_step)),
    route("/v1/simulate", || post(simulate::simulate)),
    route("/v1/sweep", || post(sweep::sweep)),
    route("/v1/kv-capacity", || post(kv_capacity::kv_capacity)),
    route(UNKNOWN, || any(not_found)),
];

/// The routes' paths.
#[cfg(test)]
pub fn names() -> [&'static str; ROUTES.len()] {
    ROUTES.each_ref().map(|route| route.name)
}

/// All routes of a server.
pub fn routes(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for Route { name, of, .. } in &ROUTES {
        router = router.route(name, of());
    }
    let last_panic = app.last_panic;
    let in_order = ServiceBuilder::new()
        .layer(SetResponseHeaderLayer::overriding(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")))
        .layer(SetResponseHeaderLayer::if_not_present(CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(MIN_GZIP_BYTES)));
    // The last layer is the first that a request meets.
    router
        .fallback(not_found)
        .layer(DefaultBodyLimit::disable())
        .layer(RequestBodyLimitLayer::new(app.bodies.max_bytes()))
        .layer(from_fn_with_state(Arc::clone(app), if_allowed))
        .layer(CsrfLayer::new())
        .layer(CatchPanicLayer::custom(move |_| Problem::defect(&last_panic()).into_response()))
        .layer(map_response_with_state(Arc::clone(app), with_reason))
        .layer(in_order)
        .layer(from_fn_with_state(Arc::clone(app), counted))
        .with_state(Arc::clone(app))
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    answer::of_bytes(StatusCode::OK, app.metrics.text(&app).await, text)
}

fn matched(request: &Request<Body>) -> Option<&'static Route> {
    let path = request.extensions().get::<MatchedPath>()?.as_str();
    ROUTES.iter().find(|route| route.name == path)
}

/// Counts an answer, and logs it.
async fn counted(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let started = Instant::now();
    let name = matched(&request).map_or("none", |route| route.name);
    let line = app.log.map(|print| (print, format!("{} {}", request.method(), request.uri())));
    let response = next.run(request).await;
    let took = started.elapsed();
    app.metrics.count(name, response.status(), took);
    if let Some((print, line)) = line {
        print(&format!("{line} {} {:.3} ms", response.status().as_u16(), took.as_secs_f64() * 1e3));
    }
    response
}

/// Gives the errors of libraries the form of the others.
async fn with_reason(State(app): State<Arc<App>>, response: Response) -> Response {
    in_json(response, || app.bodies.too_long())
}

/// Answers a request that asks this server, has its token and no query.
async fn if_allowed(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let route = matched(&request);
    let is_api = route.is_some_and(|route| route.name.starts_with("/v1/") && route.name != UNKNOWN);
    if !app.hosts.is_allowed(&request) {
        let message =
            "the request asks another host: --allowed-host gives this server more names than localhost and its address";
        return Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", message).into_response();
    }
    if let Some(token) = &app.token
        && route.is_none_or(|route| route.needs_token)
        && !token.is_in(request.headers())
    {
        let message = "this server wants a token: send it as Authorization: Bearer TOKEN";
        return Problem::new(StatusCode::UNAUTHORIZED, "unauthorised", message).into_response();
    }
    if is_api && request.uri().query().is_some() {
        let message = "the routes of the API read no query: send keys in the body, or leave them out";
        return Problem::new(StatusCode::BAD_REQUEST, "query", message).into_response();
    }
    next.run(request).await
}
