//! The command `ridgepoint`: one file or folder per subcommand, with its arguments, its run and its table. Exit codes: 0 done, 1
//! bad input or a missed tolerance, 2 wrong usage.

mod calibrate;
mod common;
mod completions;
mod deployment;
mod evaluate;
mod examples;
mod export;
mod fit;
mod hardware;
mod hint;
mod ingest;
mod models;
mod outcome;
mod plots;
mod predict_step;
mod progress;
mod simulate;
mod sweep;
mod text;
mod whole_file;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use common::Common;
use outcome::{Failure, Output};

/// Predict how long one step of an LLM serving engine takes
#[derive(Debug, Parser)]
#[command(
    name = "ridgepoint",
    version,
    about = "Predict how long one step of an LLM serving engine takes.",
    long_about = "Predict how long one step of an LLM serving engine takes.\n\nA step is one iteration of the engine: a batch \
        of prefill chunks and decodes. Its operators follow from the model's config.json. Their times follow from the \
        GPU's roofline and from efficiency tables calibrated on measured kernels.",
    after_help = examples::TOP,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Predict the time of one step, operator by operator
    #[command(after_help = examples::PREDICT_STEP)]
    PredictStep(Box<predict_step::PredictStep>),
    /// Replay a load on a server: TTFT, ITL and E2E as its clients see them
    #[command(after_help = examples::SIMULATE)]
    Simulate(Box<simulate::Simulate>),
    /// Replay a grid of servers and loads, or find the highest rate of each server that meets latency limits
    #[command(after_help = examples::SWEEP)]
    Sweep(sweep::Sweep),
    /// Build efficiency tables from kernel measurements, or score tables on measurements
    #[command(after_help = examples::CALIBRATE)]
    Calibrate(calibrate::Calibrate),
    /// Convert traces of engines and reports of load generators into a step table and a request table
    #[command(after_help = examples::INGEST)]
    Ingest(Box<ingest::Ingest>),
    /// Compare predictions with measured serving runs
    #[command(after_help = examples::EVALUATE)]
    Evaluate(evaluate::Evaluate),
    /// Fit a correction to measured steps or serving runs
    #[command(after_help = examples::FIT)]
    Fit(Box<fit::Fit>),
    /// Write a step model's lookup tables as JSON, for simulators in other languages
    #[command(after_help = examples::EXPORT)]
    Export(Box<export::Export>),
    /// List the built-in models, or show one
    #[command(after_help = examples::MODELS)]
    Models(models::Models),
    /// List the built-in GPUs, or show one
    #[command(after_help = examples::HARDWARE)]
    Hardware(hardware::HardwareArgs),
    /// Print a completion script for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(completions::Completions),
}

fn main() -> ExitCode {
    let parsed = Cli::command().try_get_matches();
    let parsed = parsed.and_then(|found| Ok((Cli::from_arg_matches(&found)?, found)));
    let (cli, found) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return outcome::usage(&error),
    };
    match dispatch(&cli) {
        Ok(output) => outcome::print(output),
        Err(Failure::Input(problems)) => outcome::fail(&problems),
        Err(Failure::Usage(kind, message)) => {
            let mut command = Cli::command();
            command.build();
            let name = found.subcommand_name().unwrap_or_default();
            let error = match command.find_subcommand_mut(name) {
                Some(found) => found.error(kind, message),
                None => command.error(kind, message),
            };
            outcome::usage(&error)
        }
    }
}

fn dispatch(cli: &Cli) -> Result<Output, Failure> {
    let common = &cli.common;
    common.check()?;
    let format = common.format;
    match &cli.command {
        Command::PredictStep(args) => predict_step::run(args, common)?.output(format),
        Command::Simulate(args) => simulate::run(args, common)?.output(format),
        Command::Sweep(args) => sweep::run(args, common)?.output(format),
        Command::Calibrate(args) => calibrate::run(args, common)?.output(format),
        Command::Evaluate(args) => evaluate::run(args, common),
        Command::Ingest(args) => ingest::run(args, common)?.output(format),
        Command::Fit(args) => fit::run(args, common)?.output(format),
        Command::Export(args) => export::run(args, common)?.output(format),
        Command::Models(args) => models::run(args, common)?.output(format),
        Command::Hardware(args) => hardware::run(args, common)?.output(format),
        Command::Completions(args) => Ok(completions::run(args, &mut Cli::command())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
