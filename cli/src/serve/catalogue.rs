//! Routes that list what is there: models, GPUs, measured runs, the version.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use ridgepoint::internals::BUILD;
use ridgepoint::{Deployment, Error, Hardware, Model};
use serde::Serialize;
use tokio::sync::OnceCell;

use super::answer::{self, Kept};
use super::app::App;
use super::problem::Problem;
use super::support::Support;
use crate::hardware::HardwareReport;
use crate::models::ModelReport;

/// Public measured runs with the predictions beside.
const MEASURED: &[u8] = include_bytes!("measured.json");

/// That the server answers.
#[derive(Debug, Serialize)]
pub struct Health {
    /// `ok`.
    status: &'static str,
}

/// What answers.
#[derive(Debug, Serialize)]
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
    kept(&app, &app.documents.models, &headers, move || Ok(Kept::json(&ModelReport::list(data_dir.as_deref())?)?)).await
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
    let list = move || Ok(Kept::json(&HardwareReport::list(data_dir.as_deref())?)?);
    kept(&app, &app.documents.hardware, &headers, list).await
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
    kept(&app, &app.documents.support, &headers, move || Kept::json(&Support::new(data_dir.as_deref())?)).await
}

pub async fn measured(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    let text = || Ok(Kept::new(Bytes::from_static(MEASURED), "application/json"));
    kept(&app, &app.documents.measured, &headers, text).await
}

/// A document that is made once, on a thread for long work.
pub async fn kept(
    app: &App,
    cell: &OnceCell<Kept>,
    headers: &HeaderMap,
    make: impl FnOnce() -> Result<Kept, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let made = cell.get_or_try_init(|| app.jobs.run(app.deadline(), |_| make())).await?;
    Ok(made.answer(headers))
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
