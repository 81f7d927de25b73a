//! Routes that list what is there: models, GPUs, measured runs, the version.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use ridgepoint::BUILD;
use ridgepoint::{Deployment, Error, Hardware, Model};
use ridgepoint_lab::hardware_report::HardwareReport;
use ridgepoint_lab::model_report::ModelReport;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::answer::{self, Kept};
use crate::app::{App, Documents};
use crate::openapi;
use crate::problem::Problem;
use crate::support::Support;

/// Public measured runs with the predictions beside.
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

pub async fn models(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    kept(&app, |of| &of.models, &headers, move || Kept::json(&ModelReport::list(data_dir.as_deref())?)).await
}

pub async fn model(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    one(&app, headers, move || ModelReport::one(Model::named_in(data_dir.as_deref(), &name)?, Deployment::default()))
        .await
}

pub async fn hardware(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    let list = move || Kept::json(&HardwareReport::list(data_dir.as_deref())?);
    kept(&app, |of| &of.hardware, &headers, list).await
}

pub async fn gpu(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    one(&app, headers, move || {
        HardwareReport::one(Hardware::named_in(data_dir.as_deref(), &name)?, data_dir.as_deref())
    })
    .await
}

pub async fn support(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    let data_dir = app.data_dir.clone();
    kept(&app, |of| &of.support, &headers, move || Kept::json(&Support::new(data_dir.as_deref())?)).await
}

pub async fn measured(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    let text = || Ok(Kept::new(Bytes::from_static(MEASURED), "application/json"));
    kept(&app, |of| &of.measured, &headers, text).await
}

pub async fn openapi(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    let server_keys = app.server_keys;
    kept(&app, |of| &of.openapi, &headers, move || Kept::json(&openapi::document(server_keys))).await
}

/// A document that is made once, on a thread for long work. It is made to its end, even if the client that asked first leaves.
pub async fn kept(
    app: &Arc<App>,
    document: fn(&Documents) -> &OnceCell<Kept>,
    headers: &HeaderMap,
    make: impl FnOnce() -> Result<Kept, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let deadline = app.deadline();
    if let Some(made) = document(&app.documents).get() {
        return Ok(made.answer(headers));
    }
    let (app, headers) = (Arc::clone(app), headers.clone());
    let making = tokio::spawn(async move {
        let at_most = Instant::now() + LONGEST;
        let made = document(&app.documents).get_or_try_init(|| app.jobs.run(at_most, |_| make())).await?;
        Ok(made.answer(&headers))
    });
    let Ok(made) = timeout_at(deadline, making).await else {
        return Err(Problem::busy("this document is still being made; ask again"));
    };
    made.unwrap_or_else(|error| Err(Problem::defect(&error.to_string())))
}

/// One model or GPU; a name that is unknown is a path that nothing is at.
async fn one<T: Serialize + 'static>(
    app: &App,
    headers: HeaderMap,
    find: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<Response, Problem> {
    let found = app.jobs.run(app.deadline(), move |_| Ok(answer::result(&headers, &find()?))).await;
    found.map_err(Problem::at_its_path)
}
