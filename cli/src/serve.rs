//! `ridgepoint serve`: its flags, and where its URL and its log are printed.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use ridgepoint::Error;
use ridgepoint_serve::{Settings, Token};
use serde::Serialize;

use crate::common::{Common, MemoryArg, above_zero};
use crate::outcome::{Failure, Format, announce, log};

const LIMITS: &str = "Limits";

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
    /// Name of this machine under which requests may ask it, besides localhost and the address; give those of a proxy in front
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Listen on other addresses than this machine's own without a token
    #[arg(long)]
    insecure: bool,
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
struct Listening<'a> {
    url: &'a str,
}

/// Serves until the process gets a signal to stop.
///
/// # Errors
/// A token that cannot be read; an address that cannot be listened on.
pub fn run(args: &Serve, common: &Common) -> Result<(), Failure> {
    let token = Token::find(args.token_file.as_deref())?;
    if token.is_none() && !args.host.is_loopback() && !args.insecure {
        return Err(Failure::usage(format!(
            "--host {} is open to other machines, and no token is set: give --token-file or RIDGEPOINT_TOKEN, or --insecure to serve \
             everybody",
            args.host
        )));
    }
    let settings = Settings {
        address: SocketAddr::new(args.host, args.port),
        token,
        allowed_hosts: args.allowed_host.clone(),
        data_dir: common.data_dir.clone(),
        max_body_bytes: usize::from(args.max_body_mib) << 20,
        request_timeout: Duration::from_secs_f64(args.request_timeout_s.min(1e6)),
        max_queued: args.max_queued.into(),
        threads: args.threads.into(),
        cache_bytes: (args.cache_mib as usize) << 20,
        max_connections: args.max_connections,
        max_memory_gib: args.memory.max_memory_gib,
        log: args.log.then_some(log),
        last_panic: crate::defect::last,
    };
    let started = |url: &str| match common.format {
        Format::Table => announce(&format!("ridgepoint serves {url}")),
        Format::Json => announce(&serde_json::to_string(&Listening { url }).unwrap_or_default()),
    };
    ridgepoint_serve::run(settings, started).map_err(|error| match is_address(&error) {
        true => Failure::input(format!("{error}; --port takes another one")),
        false => error.into(),
    })
}

/// Whether an error is that of an address, and not of a file.
fn is_address(error: &Error) -> bool {
    error.location().is_some_and(|place| place.path.parse::<SocketAddr>().is_ok())
}
