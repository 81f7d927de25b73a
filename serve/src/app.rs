//! The state that all routes share: limits, caches, threads, counts.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::answer::Kept;
use crate::body::Bodies;
use crate::cache::Cache;
use crate::jobs::Jobs;
use crate::metrics::Metrics;
use crate::openapi::ServerKeysSchema;
use crate::page::Page;
use crate::predict::Compiled;
use crate::simulate::Replayable;
use crate::token::Token;

/// The state of a server.
pub struct App {
    pub data_dir: Option<PathBuf>,
    pub timeout: Duration,
    pub max_memory_gib: f64,
    pub token: Option<Token>,
    /// Prints a line per request.
    pub log: Option<fn(&str)>,
    /// Takes the text of the last panic.
    pub last_panic: fn() -> String,
    /// The keys of a server in bodies.
    pub server_keys: ServerKeysSchema,
    pub bodies: Bodies,
    pub jobs: Jobs,
    pub step_models: Cache<Compiled>,
    pub replayables: Cache<Replayable>,
    pub metrics: Metrics,
    pub page: Page,
    pub documents: Documents,
}

/// Long answers that never change, made when they are first asked for.
#[derive(Default)]
pub struct Documents {
    pub models: OnceCell<Kept>,
    pub hardware: OnceCell<Kept>,
    pub support: OnceCell<Kept>,
    pub openapi: OnceCell<Kept>,
    pub measured: OnceCell<Kept>,
}

impl App {
    /// The time by which a request that begins now must have its answer.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }
}
