//! The routes, and what every request goes through: the token, the count, the log, headers of answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use hyper::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Request, StatusCode};

use crate::app::App;
use crate::problem::{Problem, not_found, wrong_method};
use crate::{answer, catalogue, kv_capacity, page, predict, simulate, sweep};

/// A route's path, how it is matched, and whether it takes a token where one is set.
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

/// Paths of the API that nothing is at.
const UNKNOWN: &str = "/v1/{*unknown}";

const ROUTES: [Route; 17] = [
    open("/", || reads(get(page::index))),
    open("/{*file}", || reads(get(page::file))),
    open("/healthz", || reads(get(catalogue::healthz))),
    route("/metrics", || reads(get(metrics))),
    route("/openapi.json", || reads(get(catalogue::openapi))),
    route("/v1/version", || reads(get(catalogue::version))),
    route("/v1/models", || reads(get(catalogue::models))),
    route("/v1/models/{*name}", || reads(get(catalogue::model))),
    route("/v1/hardware", || reads(get(catalogue::hardware))),
    route("/v1/hardware/{*name}", || reads(get(catalogue::gpu))),
    route("/v1/support", || reads(get(catalogue::support))),
    route("/v1/measured", || reads(get(catalogue::measured))),
    route("/v1/predict-step", || computes(post(predict::predict_step))),
    route("/v1/simulate", || computes(post(simulate::simulate))),
    route("/v1/sweep", || computes(post(sweep::sweep))),
    route("/v1/kv-capacity", || computes(post(kv_capacity::kv_capacity))),
    route(UNKNOWN, || any(not_found)),
];

/// A path that is only read.
fn reads(of: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
    of.fallback(|| async { wrong_method("GET, HEAD") })
}

/// A path that computes something from a body.
fn computes(of: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
    of.fallback(|| async { wrong_method("POST") })
}

/// The routes' paths.
#[cfg(test)]
pub fn names() -> [&'static str; ROUTES.len()] {
    ROUTES.map(|route| route.name)
}

/// All routes of a server.
pub fn routes(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for Route { name, of, .. } in ROUTES {
        router = router.route(name, of());
    }
    router.fallback(not_found).layer(from_fn_with_state(Arc::clone(&app), around)).with_state(app)
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    answer::of_bytes(StatusCode::OK, app.metrics.text(&app), text)
}

/// Checks the token, answers, counts and logs.
async fn around(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let started = Instant::now();
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let route = matched.and_then(|path| ROUTES.iter().find(|route| route.name == path));
    let name = route.map_or("none", |route| route.name);
    let line = app.log.map(|print| (print, format!("{} {}", request.method(), request.uri())));
    let is_allowed = match &app.token {
        Some(token) if route.is_none_or(|route| route.needs_token) => token.is_in(request.headers()),
        _ => true,
    };
    let is_api = name.starts_with("/v1/") && name != UNKNOWN;
    let mut response = if is_allowed && is_api && request.uri().query().is_some() {
        let message = "the routes of the API read no query: send keys in the body, or leave them out";
        Problem::new(StatusCode::BAD_REQUEST, "query", message).into_response()
    } else if is_allowed {
        guarded(next.run(request), app.last_panic).await
    } else {
        let message = "this server wants a token: send it as Authorization: Bearer TOKEN";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorised", message).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    let took = started.elapsed();
    app.metrics.count(name, response.status(), took);
    if let Some((print, line)) = line {
        print(&format!("{line} {} {:.3} ms", response.status().as_u16(), took.as_secs_f64() * 1e3));
    }
    response
}

/// A panic becomes an answer.
async fn guarded(answer: impl Future<Output = Response>, last_panic: fn() -> String) -> Response {
    let mut answer = Box::pin(answer);
    let polled =
        std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(_) => Poll::Ready(Problem::defect(&last_panic()).into_response()),
        });
    polled.await
}
