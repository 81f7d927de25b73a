//! Runs mutations of the corpora through the targets and counts cases and findings. Each target has a process of its own, so that
//! an abort is a finding as well.
//! A finding is a panic, an abort, a case of more than a second, or one that takes more than 256 MB.
#![allow(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

mod parent;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Run mutations of the corpora through fuzz targets
#[derive(Debug, Clone, Parser)]
struct Args {
    /// Targets to run; all if none is named
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Most cases of each target
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    cases: u64,
    /// The cases; the same seed gives the same ones
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// CPU time of a case that counts as hanging, ms
    #[arg(long, default_value_t = 1000)]
    limit_ms: u64,
    /// Memory of a case that counts as too much, MB
    #[arg(long, default_value_t = 256)]
    limit_mb: u64,
    /// Folder for the inputs of findings
    #[arg(long, default_value = "target/fuzz-findings")]
    findings: PathBuf,
    /// Run files instead of mutations
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "targets")]
    replay: Vec<PathBuf>,
    /// Print the names of the targets
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    worker: WorkerArgs,
}

/// Arguments that the program passes to the process of a target.
#[derive(Debug, Clone, clap::Args)]
struct WorkerArgs {
    /// Folder in which the process reports
    #[arg(long, hide = true)]
    report: Option<PathBuf>,
    /// Number of the first case
    #[arg(long, hide = true, default_value_t = 0)]
    first: u64,
    /// Save each case before it runs
    #[arg(long, hide = true)]
    careful: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match &args.worker.report {
        Some(report) => worker::run(&args, report),
        None => parent::run(&args),
    }
}
