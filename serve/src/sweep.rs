//! `POST /v1/sweep`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use hyper::{Request, StatusCode};
use ridgepoint::Error;
use ridgepoint_lab::sweep::{Grid, GridLimits, InPlace, Row, Sweep, SweepSummary};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::{App, RequestLimits};
use crate::body::ORIGIN;
use crate::problem::Problem;
use crate::server_keys::{Described, options};
use crate::{answer, body};
use ridgepoint_lab::prediction::prediction_arguments;
use ridgepoint_lab::served::both;

/// Most configurations of a request; a larger grid is for the command, which saves its rows.
const MOST_CONFIGURATIONS: usize = 2_000;

/// The rows of a grid, and the same in short.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SweepAnswer {
    /// A row per configuration.
    rows: Vec<Row>,
    /// The rows in short.
    summary: SweepSummary,
}

/// Replays a grid.
pub async fn sweep(
    State(app): State<Arc<App>>,
    limits: RequestLimits,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let body::Json { map, reservation, .. } = body::json(&app, limits, request).await?;
    let (data_dir, max_memory_gib, threads) = (app.data_dir.clone(), app.max_memory_gib, app.jobs.num_threads());
    let result = app.run(limits, move |stop| {
        let sweep = grid(map, data_dir.as_deref())?;
        drop(reservation);
        // As many sweeps as there are threads may run at once.
        sweep.check_memory(threads * threads, max_memory_gib)?;
        let sweep = sweep.stopped_by(Arc::clone(stop));
        let rows = sweep.run(threads, &[], &|_| match stop.load(Ordering::Relaxed) {
            true => Err(Error::invalid(ORIGIN, vec!["the sweep was stopped".to_owned()])),
            false => Ok(()),
        })?;
        let summary = SweepSummary::new(&rows, 0, "rows");
        Ok(answer::json(StatusCode::OK, &SweepAnswer { rows, summary }))
    });
    result.await
}

fn grid(mut map: Map<String, Value>, data_dir: Option<&std::path::Path>) -> Result<Sweep, Problem> {
    let prediction = prediction_arguments().taken(&mut map);
    let described = map.get_mut("server").and_then(Value::as_object_mut).map(Described::taken).unwrap_or_default();
    let limits = GridLimits { configurations: MOST_CONFIGURATIONS, names_only: true, ..GridLimits::default() };
    let grid = Grid::from_keys(ORIGIN, &Value::Object(map), limits);
    let (options, grid) = both(options(&prediction, data_dir), grid)?;
    let (model, hardware) = both(described.model(None).transpose(), described.hardware(data_dir).transpose())?;
    Ok(Sweep::with(grid, options, &InPlace { model, hardware })?)
}
