//! The arguments of `sweep` and the help text beside them.

use std::path::PathBuf;

use clap::Args;

use crate::common::PredictionArgs;

const OUTPUT: &str = "Output";

#[derive(Debug, Args)]
pub struct Sweep {
    /// Grid of servers and loads, TOML; docs/sweep.md has its keys
    #[arg(value_name = "GRID.toml")]
    pub grid: PathBuf,
    /// File of results, a row per configuration: .csv, .json or .jsonl
    #[arg(long, value_name = "FILE", required_unless_present = "dry_run", help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
    /// Run everything anew; without it, rows of an earlier run of this grid in FILE are kept
    #[arg(long, help_heading = OUTPUT)]
    pub fresh: bool,
    /// List the configurations and run none
    #[arg(long, help_heading = OUTPUT)]
    pub dry_run: bool,
    /// Configurations that run at once; 0 is one per core
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, help_heading = OUTPUT)]
    #[arg(value_parser = clap::value_parser!(u16).range(..=1024))]
    pub threads: u16,
    #[command(flatten)]
    pub prediction: PredictionArgs,
}
