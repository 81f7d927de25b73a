//! `ridgepoint serve`: the command's results over HTTP, and the page. `listen` keeps connections, `routes` sends requests to the files
//! that answer them, `jobs` bounds work that takes long, `cache` keeps step models. It prints nothing: [`Settings`] say who does.

mod answer;
mod app;
mod body;
mod cache;
mod catalogue;
mod hosts;
mod jobs;
mod kv_capacity;
mod listen;
mod metrics;
mod openapi;
mod page;
mod predict;
mod problem;
mod routes;
mod series;
mod server_keys;
mod simulate;
mod stop;
mod support;
mod sweep;
mod token;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ridgepoint::{Error, Result};
use tokio::net::TcpListener;

use app::{App, Documents};
pub use stop::stop;
pub use token::Token;

/// Where a server listens, who may ask, and how much it takes on.
pub struct Settings {
    /// The address; port 0 takes a free one.
    pub address: SocketAddr,
    /// The token that requests must carry.
    pub token: Option<Token>,
    /// Names of this machine that requests may ask, besides `localhost` and the address.
    pub allowed_hosts: Vec<String>,
    /// Folder whose models, GPUs and tables take precedence over the built-in ones.
    pub data_dir: Option<PathBuf>,
    /// Longest body of a request, bytes.
    pub max_body_bytes: usize,
    /// Longest time of a request.
    pub request_timeout: Duration,
    /// Most requests that wait for a thread.
    pub max_queued: usize,
    /// Threads for replays, sweeps and building step models; 0 is one per core.
    pub threads: usize,
    /// Memory for step models that are kept, bytes.
    pub cache_bytes: usize,
    /// Most open connections.
    pub max_connections: u32,
    /// Memory that replays may take, GiB.
    pub max_memory_gib: f64,
    /// Prints a line per request; `None` for no log.
    pub log: Option<fn(&str)>,
    /// Takes the text of the last panic.
    pub last_panic: fn() -> String,
}

/// Serves until [`stop`] is called. `started` gets the URL when the server listens.
///
/// # Errors
/// `ErrorKind::Io` for threads that cannot be started; `ErrorKind::Invalid` for an address that cannot be listened on.
pub fn run(settings: Settings, started: impl FnOnce(&str)) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if settings.threads == 0 { cores } else { settings.threads };
    let max_connections = raise_open_files(settings.max_connections);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        // Jobs take a thread each.
        .max_blocking_threads(threads + 1)
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Error::io("threads of the server", error))?;
    let app = Arc::new(App {
        data_dir: settings.data_dir,
        timeout: settings.request_timeout,
        max_memory_gib: settings.max_memory_gib,
        token: settings.token,
        log: settings.log,
        last_panic: settings.last_panic,
        bodies: body::Bodies::new(settings.max_body_bytes),
        hosts: hosts::Hosts::new(settings.address.ip(), &settings.allowed_hosts),
        jobs: jobs::Jobs::new(threads, settings.max_queued, settings.last_panic),
        step_models: cache::Cache::new(settings.cache_bytes / 2),
        replayables: cache::Cache::new(settings.cache_bytes / 2),
        metrics: metrics::Metrics::new(),
        documents: Documents::default(),
    });
    let address = settings.address;
    let grace = app.timeout;
    runtime
        .block_on(async {
            let failed = |error| Error::invalid(address.to_string(), vec![format!("cannot be listened on: {error}")]);
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let url = format!("http://{}", listener.local_addr().map_err(failed)?);
            let stopped = stop::receiver();
            started(&url);
            let routes = routes::routes(&app);
            listen::serve(listener, routes, app, max_connections, stopped, grace).await;
            Ok(())
        })
        .inspect(|()| runtime.shutdown_timeout(Duration::from_secs(1)))
}

/// Files that the process keeps open besides connections.
const OTHER_FILES: u64 = 64;

/// Allows the process as many open files as the connections need; returns how many connections that makes.
#[cfg(unix)]
fn raise_open_files(max_connections: u32) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = u64::from(max_connections) + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    }
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHER_FILES).max(1);
    usize::try_from(allowed.min(u64::from(max_connections))).unwrap_or(usize::MAX)
}

#[cfg(not(unix))]
fn raise_open_files(max_connections: u32) -> usize {
    max_connections as usize
}
