//! `ridgepoint serve`: the command's results over HTTP, and the page. `listen` keeps connections, `routes` sends requests to the files
//! that answer them, `jobs` bounds work that takes long, `cache` keeps step models.

mod answer;
mod app;
mod body;
mod cache;
mod catalogue;
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

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use ridgepoint::Error;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::common::{Common, MemoryArg, above_zero};
use crate::outcome::{Failure, Format, announce, remark};
use app::{App, Documents};
pub use stop::stop;
use token::Token;

const LIMITS: &str = "Limits";

/// Bodies of this many requests at the limit may be read at once.
const BODIES_AT_ONCE: usize = 32;

/// The arguments of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Address to listen on; 0.0.0.0 is every network of this machine, which wants a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// File of a token that requests must carry as `Authorization: Bearer TOKEN` [default: the variable RIDGEPOINT_TOKEN, if it is set]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print a line on stderr for each request
    #[arg(long)]
    log: bool,
    /// Longest body of a request, MiB
    #[arg(long, value_name = "MIB", default_value_t = 4, value_parser = value_parser!(u16).range(1..=1024), help_heading = LIMITS)]
    max_body_mib: u16,
    /// Longest time of a request, s
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = above_zero, allow_negative_numbers = true, help_heading = LIMITS)]
    request_timeout_s: f64,
    /// Most requests that wait for a thread; more are answered with 503
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u16), help_heading = LIMITS)]
    max_queued: u16,
    /// Threads for replays, sweeps and building step models; 0 is one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u16).range(..=1024), help_heading = LIMITS)]
    threads: u16,
    /// Memory for step models that are kept, MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = value_parser!(u32).range(..=1_048_576), help_heading = LIMITS)]
    cache_mib: u32,
    /// Most open connections
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = value_parser!(u32).range(1..=1_000_000), help_heading = LIMITS)]
    max_connections: u32,
    #[command(flatten)]
    memory: MemoryArg,
}

/// The address of the server, as JSON.
#[derive(Debug, Serialize)]
struct Listening {
    url: String,
}

/// Serves until the process is told to stop.
///
/// # Errors
/// A token that cannot be read; an address that cannot be listened on.
pub fn run(args: &Serve, common: &Common) -> Result<(), Failure> {
    let token = Token::find(args.token_file.as_deref())?;
    if token.is_none() && !args.host.is_loopback() {
        remark(&format!(
            "{} is open to other machines and no token is set: give --token-file or RIDGEPOINT_TOKEN",
            args.host
        ));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if args.threads == 0 { cores } else { args.threads.into() };
    let max_connections = raise_open_files(args.max_connections);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        // Jobs take a thread each.
        .max_blocking_threads(threads + 1)
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Error::io("threads of the server", error))?;
    let max_body_bytes = usize::from(args.max_body_mib) << 20;
    let cache_bytes = (args.cache_mib as usize) << 20;
    let app = Arc::new(App {
        data_dir: common.data_dir.clone(),
        timeout: Duration::from_secs_f64(args.request_timeout_s.min(1e6)),
        max_memory_gib: args.memory.max_memory_gib,
        token,
        log: args.log,
        bodies: body::Bodies::new(max_body_bytes, max_body_bytes.saturating_mul(BODIES_AT_ONCE)),
        jobs: jobs::Jobs::new(threads, args.max_queued.into()),
        step_models: cache::Cache::new(cache_bytes / 2),
        replayables: cache::Cache::new(cache_bytes / 2),
        metrics: metrics::Metrics::new(),
        page: page::Page::new(),
        documents: Documents::default(),
    });
    let address = SocketAddr::new(args.host, args.port);
    let grace = app.timeout;
    runtime
        .block_on(async {
            let failed =
                |error| Failure::input(format!("{address}: cannot be listened on: {error}; --port takes another one"));
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let url = format!("http://{}", listener.local_addr().map_err(failed)?);
            let stopped = stop::receiver();
            match common.format {
                Format::Table => announce(&format!("ridgepoint serves {url}")),
                Format::Json => announce(&serde_json::to_string(&Listening { url }).unwrap_or_default()),
            }
            let routes = routes::routes(Arc::clone(&app));
            listen::serve(listener, routes, app, max_connections, stopped, grace).await;
            Ok(())
        })
        .inspect(|()| runtime.shutdown_timeout(Duration::from_secs(1)))
}

/// Files that the process keeps open beside connections.
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
