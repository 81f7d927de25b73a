//! The arguments of `evaluate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ridgepoint::evaluate::split::SplitKey;

use super::args::percent;
use super::examples;

/// What measured runs are judged.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Evaluate {
    #[command(subcommand)]
    pub of: Of,
}

#[derive(Debug, Subcommand)]
pub enum Of {
    /// Serving runs under a load generator: folders of profile.yaml, exp-config.yaml and measured.csv
    #[command(after_help = examples::EVALUATE_SERVING)]
    Serving(Serving),
    /// Servers with a fixed number of requests in flight: rows of a csv file
    #[command(after_help = examples::EVALUATE_CLOSED_LOOP)]
    ClosedLoop(ClosedLoop),
}

#[derive(Debug, Args)]
pub struct Serving {
    /// Experiments, or folders of experiments
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Where the error comes from: replace one component of the prediction at a time
    #[arg(long)]
    pub attribute: bool,
    /// Tolerance: exit with 1 where the median absolute error of E2E is above X percent
    #[arg(long, value_name = "X", value_parser = percent, allow_negative_numbers = true)]
    pub max_median_e2e_pct: Option<f64>,
    #[command(flatten)]
    pub view: View,
}

#[derive(Debug, Args)]
pub struct ClosedLoop {
    /// csv files; the columns are in the examples below
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Run the rows of these serving engines alone [default: all, each with vLLM's scheduler and kernels]
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub backend: Vec<String>,
    #[command(flatten)]
    pub view: View,
}

#[derive(Debug, Args)]
pub struct View {
    /// Sum up by group too
    #[arg(long, value_name = "model|workload|hardware|backend-version", value_parser = str::parse::<SplitKey>)]
    pub split: Option<SplitKey>,
    /// Seed of arrival times and lengths that are random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Correction learned from real steps: none, global, auto (the best there is) or a file
    #[arg(long, value_name = "none|global|auto|FILE", default_value = "auto")]
    pub correction: String,
}
