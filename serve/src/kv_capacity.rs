//! `POST /v1/kv-capacity`: the memory equation of a server, term by term, also of one that does not fit.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use hyper::{Request, StatusCode};
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::{Deployment, Error};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::{App, RequestLimits};
use crate::problem::Problem;
use crate::server_keys::{ResolvedServer, ServerKeys};
use crate::{answer, body};

/// The memory of one GPU.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KvCapacityAnswer {
    /// Model, by its own name.
    model: String,
    /// GPU, by its own name.
    hardware: String,
    /// How the model is served.
    deployment: Deployment,
    /// The terms of the equation.
    #[serde(flatten)]
    capacity: KvCapacity,
    /// Device memory that the engine may use.
    usable_bytes: f64,
    /// Tokens of all blocks.
    kv_tokens: u64,
    /// Tokens that one request can have.
    usable_tokens: u64,
    /// The terms with their signs; their sum is `kv_cache_bytes`.
    equation: Vec<EquationTerm>,
    /// Whether the server starts: weights and one request of `max_model_len` fit.
    fits: bool,
    /// What is missing otherwise, and which change of one argument would do.
    problems: Vec<String>,
    /// Remarks on the server.
    warnings: Vec<String>,
}

/// A term of the memory equation.
#[derive(Debug, Serialize, JsonSchema)]
struct EquationTerm {
    /// What takes or gives the memory.
    name: &'static str,
    /// Its bytes, negative where it takes them.
    bytes: f64,
}

/// Evaluates the memory equation.
pub async fn kv_capacity(
    State(app): State<Arc<App>>,
    limits: RequestLimits,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let body::Json { map, reservation, .. } = body::json(&app, limits, request).await?;
    let data_dir = app.data_dir.clone();
    let result = app.run(limits, move |_| {
        let found = ServerKeys::new(map).find(data_dir.as_deref(), &[]);
        drop(reservation);
        Ok(answer::json(StatusCode::OK, &evaluated(found?)?))
    });
    result.await
}

fn evaluated(of: ResolvedServer) -> Result<KvCapacityAnswer, Error> {
    let ResolvedServer { server, model, hardware, notes, options, .. } = of;
    let deployment = server.deployment_on(&model, &hardware, &options.engine);
    let capacity = KvCapacity::estimate(&model, &hardware, &deployment, &options.engine)?;
    let problems = match KvCapacity::for_engine(&model, &hardware, &deployment, &options.engine) {
        Ok(_) => Vec::new(),
        Err(error) => error.problems().to_vec(),
    };
    let equation = capacity.equation().into_iter().map(|(name, bytes)| EquationTerm { name, bytes });
    Ok(KvCapacityAnswer {
        model: model.name,
        hardware: hardware.name,
        deployment,
        usable_bytes: capacity.device_memory_bytes * capacity.gpu_memory_utilization,
        kv_tokens: u64::from(capacity.num_gpu_blocks) * u64::from(capacity.block_size),
        usable_tokens: capacity.usable_tokens(),
        equation: equation.collect(),
        fits: problems.is_empty(),
        problems,
        warnings: notes,
        capacity,
    })
}
