//! The command line: one file per subcommand, which turns arguments into library calls and hands the result to `report`.
//! Only `output` writes to stdout and stderr. Uses the library's public API and `report`.

mod args;
mod args_evaluate;
mod args_fit;
mod args_ingest;
mod batch;
mod calibrate;
mod catalogue;
mod completions;
mod deployment;
mod evaluate;
mod evaluate_steps;
mod examples;
mod fit;
mod fit_files;
mod fit_serving;
mod fit_steps;
mod ingest;
mod ingest_report;
mod measurements;
mod output;
mod plots;
mod predict_step;
mod progress;
mod shorthand;
mod simulate;
mod sweep;
mod whole_file;

mod report;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
pub use calibrate::Reports;
pub use catalogue::{GpuEntry, GpuTable, ModelEntry};
pub use evaluate::Evaluated;
pub use ingest_report::{Ingestion, JoinReport, Records};
use output::{Failure, Output};
pub use predict_step::Prediction;
pub use sweep::Listed;

/// Parses the command line and runs it. Exit codes: 0 done, 1 bad input or a missed tolerance, 2 wrong usage.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    output::finish(dispatch(&cli))
}

fn dispatch(cli: &Cli) -> Result<Output, Failure> {
    cli.common.check()?;
    match &cli.command {
        Command::PredictStep(args) => predict_step::run(args, &cli.common),
        Command::Simulate(args) => simulate::run(args, &cli.common),
        Command::Sweep(args) => sweep::run(args, &cli.common),
        Command::Calibrate(args) => calibrate::run(args, &cli.common),
        Command::Evaluate(args) => evaluate::run(args, &cli.common),
        Command::Ingest(args) => ingest::run(args, &cli.common),
        Command::Fit(args) => fit::run(args, &cli.common),
        Command::Models(args) => catalogue::models(args, &cli.common),
        Command::Hardware(args) => catalogue::hardware(args, &cli.common),
        Command::Completions(args) => Ok(completions::run(args)),
    }
}

fn main() -> ExitCode {
    run()
}
