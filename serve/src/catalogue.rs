//! Routes that list what is there: models, GPUs, arguments, measured runs, the version.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use hyper::StatusCode;
use ridgepoint::BUILD;
use ridgepoint::{Deployment, Error, Hardware, Model};
use ridgepoint_lab::argument_report::ArgumentReport;
use ridgepoint_lab::hardware_report::HardwareReport;
use ridgepoint_lab::model_report::ModelReport;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::answer;
use crate::app::{App, Documents, RequestLimits};
use crate::openapi;
use crate::problem::Problem;
use crate::support::Support;

/// Public measured runs with their predictions.
const MEASURED: &[u8] = include_bytes!("measured.json");

/// Longest time in which a document is made.
const LONGEST: Duration = Duration::from_secs(600);

/// That the server answers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Health {
    /// `ok`.
    status: &'static str,
}

/// What answers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Version {
    /// The release.
    version: &'static str,
    /// The release, and a hash of the built-in models, GPUs, tables and corrections: equal requests have equal answers where it is
    /// equal.
    build: &'static str,
}

pub async fn healthz() -> Response {
    answer::json(StatusCode::OK, &Health { status: "ok" })
}

pub async fn version() -> Response {
    answer::json(StatusCode::OK, &Version { version: env!("CARGO_PKG_VERSION"), build: BUILD })
}

pub async fn models(State(app): State<Arc<App>>, limits: RequestLimits) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    document(&app, limits, |of| &of.models, move || answer::text(&ModelReport::list(data_dir.as_deref())?)).await
}

pub async fn model(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    limits: RequestLimits,
) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    let find = move || ModelReport::one(Model::named_in(data_dir.as_deref(), &name)?, Deployment::default());
    one(&app, limits, find).await
}

pub async fn hardware(State(app): State<Arc<App>>, limits: RequestLimits) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    document(&app, limits, |of| &of.hardware, move || answer::text(&HardwareReport::list(data_dir.as_deref())?)).await
}

pub async fn gpu(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    limits: RequestLimits,
) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    let find = move || {
        let data_dir = data_dir.as_deref();
        HardwareReport::one(Hardware::named_in(data_dir, &name)?, data_dir)
    };
    one(&app, limits, find).await
}

pub async fn support(State(app): State<Arc<App>>, limits: RequestLimits) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    document(&app, limits, |of| &of.support, move || answer::text(&Support::new(data_dir.as_deref())?)).await
}

pub async fn arguments() -> Response {
    answer::json(StatusCode::OK, &ArgumentReport::list())
}

pub async fn measured() -> Response {
    answer::of_bytes(StatusCode::OK, Bytes::from_static(MEASURED), "application/json")
}

pub async fn openapi(State(app): State<Arc<App>>, limits: RequestLimits) -> Result<Response, Problem> {
    document(&app, limits, |of| &of.openapi, || answer::text(&openapi::document())).await
}

/// A document that is made once, on a thread for long work. It is made to its end, even if the client that asked first leaves.
async fn document(
    app: &Arc<App>,
    limits: RequestLimits,
    of: fn(&Documents) -> &OnceCell<Bytes>,
    make: impl FnOnce() -> Result<Bytes, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let response = |text: &Bytes| answer::of_bytes(StatusCode::OK, text.clone(), "application/json");
    if let Some(made) = of(&app.documents).get() {
        return Ok(response(made));
    }
    let app = Arc::clone(app);
    let making = tokio::spawn(async move {
        let at_most = RequestLimits { deadline: Instant::now() + LONGEST, ..limits };
        let made = of(&app.documents).get_or_try_init(|| app.run(at_most, |_| make())).await?;
        Ok(response(made))
    });
    let Ok(made) = timeout_at(limits.deadline, making).await else {
        return Err(Problem::busy("this document is still being made; ask again"));
    };
    made.unwrap_or_else(|error| Err(Problem::defect(&error.to_string())))
}

/// Returns one model or GPU, or 404 for an unknown name.
async fn one<T: Serialize + 'static>(
    app: &App,
    limits: RequestLimits,
    find: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<Response, Problem> {
    let found = app.run(limits, move |_| Ok(answer::json(StatusCode::OK, &find()?))).await;
    found.map_err(Problem::at_its_path)
}
