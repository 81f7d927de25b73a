//! The state that all routes share: limits, caches, threads, counts.

use std::path::PathBuf;
use std::time::Duration;

use axum::extract::FromRequestParts;
use bytes::Bytes;
use hyper::http::request::Parts;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::body::Bodies;
use crate::cache::Cache;
use crate::hosts::Hosts;
use crate::jobs::{Jobs, Stop};
use crate::listen::Peer;
use crate::metrics::Metrics;
use crate::predict::Compiled;
use crate::problem::Problem;
use crate::simulate::Replayable;
use crate::token::Token;

/// The state of a server.
pub struct App {
    pub data_dir: Option<PathBuf>,
    pub timeout: Duration,
    pub max_memory_gib: f64,
    pub token: Option<Token>,
    pub hosts: Hosts,
    /// Prints a line per request.
    pub log: Option<fn(&str)>,
    /// Takes the text of the last panic.
    pub last_panic: fn() -> String,
    pub bodies: Bodies,
    pub jobs: Jobs,
    pub step_models: Cache<Compiled>,
    pub replayables: Cache<Replayable>,
    pub metrics: Metrics,
    pub documents: Documents,
}

/// Long answers that never change, made when they are first asked for.
#[derive(Default)]
pub struct Documents {
    pub models: OnceCell<Bytes>,
    pub hardware: OnceCell<Bytes>,
    pub support: OnceCell<Bytes>,
    pub openapi: OnceCell<Bytes>,
}

/// Who asks, and the time by which the answer must be there.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    pub peer: Peer,
    pub deadline: Instant,
}

impl FromRequestParts<std::sync::Arc<App>> for RequestLimits {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &std::sync::Arc<App>) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<Peer>().copied();
        let peer = peer.ok_or_else(|| Problem::defect("a connection has no address"))?;
        Ok(RequestLimits { peer, deadline: Instant::now() + app.timeout })
    }
}

impl App {
    /// Runs `work` on one of the threads for long work. Faults of the data folder are those of the server.
    ///
    /// # Errors
    /// Those of [`Jobs::run`].
    pub async fn run<T: Send + 'static>(
        &self,
        limits: RequestLimits,
        work: impl FnOnce(&Stop) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let result = self.jobs.run(limits.peer, limits.deadline, work).await;
        result.map_err(|problem| match &self.data_dir {
            Some(folder) => problem.of_data_folder(folder),
            None => problem,
        })
    }
}
