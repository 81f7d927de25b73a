//! The command `ridgepoint`: one file or folder per subcommand, with its arguments, its run and its table. Exit codes: 0 done, 1
//! bad input or a missed tolerance, 2 wrong usage.
#![cfg_attr(test, allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

mod arguments;
mod calibrate;
mod cold_start;
mod common;
mod completions;
mod data_dir;
mod defect;
mod deployment;
mod evaluate;
mod examples;
mod export;
mod fit;
mod flags;
mod hardware;
mod hint;
mod ingest;
mod input_paths;
mod models;
mod outcome;
mod output;
mod plan;
mod plots;
mod predict_step;
#[cfg(feature = "probe")]
mod probe;
mod progress;
#[cfg(feature = "serve")]
mod serve;
mod server;
mod simulate;
mod sweep;
mod text;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use common::Common;
use outcome::print;
pub use output::remove_unfinished;
#[cfg(feature = "serve")]
pub use ridgepoint_serve::stop as stop_server;

/// Predict how long one step of an LLM serving engine takes
///
/// A step is one iteration of the engine: a batch of prefill chunks and decodes. Its operators follow from the model's
/// config.json. Their times follow from the GPU's roofline and from efficiency tables calibrated on measured kernels.
#[derive(Debug, Parser)]
#[command(name = "ridgepoint", version, after_help = examples::TOP, arg_required_else_help = true)]
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
    /// Predict the time from the start of a server to its first token, or fit it to logs of starts
    #[command(after_help = examples::COLD_START)]
    ColdStart(Box<cold_start::ColdStartArgs>),
    /// Replay a grid of servers and loads, or find the highest rate of each server that meets latency limits
    #[command(after_help = examples::SWEEP)]
    Sweep(sweep::Sweep),
    /// Find the cheapest deployment that holds a load within latency limits, and how it starts
    #[command(after_help = examples::PLAN)]
    Plan(Box<plan::PlanArgs>),
    /// Serve predictions over HTTP, and a page to explore them
    #[cfg(feature = "serve")]
    #[command(after_help = examples::SERVE)]
    Serve(serve::Serve),
    /// Build efficiency tables from kernel measurements, or score tables on measurements
    #[command(after_help = examples::CALIBRATE)]
    Calibrate(calibrate::Calibrate),
    /// Convert traces of engines and reports of load generators into a step table and a request table
    #[command(after_help = examples::INGEST)]
    Ingest(Box<ingest::Ingest>),
    /// Measure a running server: its first request, warm ones, a ladder of lengths and concurrencies
    #[cfg(feature = "probe")]
    #[command(after_help = examples::PROBE)]
    Probe(Box<probe::Probe>),
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
    /// List the arguments of servers, predictions and loads, or show one
    #[command(after_help = examples::ARGUMENTS)]
    Arguments(arguments::ArgumentsArgs),
    /// Print a completion script for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(completions::Completions),
}

/// Runs the command and returns its exit code. The first argument is the name of the program. A panic is exit code 1 and an error
/// on stderr.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    defect::guarded(&arguments, || run_unguarded(&arguments))
}

/// [`run`] without the guard: a panic stays one, as a fuzz target needs it.
pub fn run_unguarded(arguments: &[OsString]) -> u8 {
    let mut definition = Cli::command();
    let parsed = definition.try_get_matches_from_mut(flags::with_two_dashes(arguments)).and_then(|matches| {
        let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut definition))?;
        cli.common.named = input_paths::named(&definition, &matches);
        Ok(cli)
    });
    let Cli { command, common } = match parsed {
        Ok(cli) => cli,
        Err(error) => return outcome::usage(&error),
    };
    let (common, format) = (&common, common.format);
    if let Err(failure) = common.check() {
        return outcome::failed(failure);
    }
    match &command {
        Command::PredictStep(args) => print(predict_step::run(args, common), format),
        Command::Simulate(args) => print(simulate::run(args, common), format),
        Command::ColdStart(args) => print(cold_start::run(args, common), format),
        Command::Sweep(args) => print(sweep::run(args, common), format),
        Command::Plan(args) => print(plan::run(args, common), format),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(args, common).map_or_else(outcome::failed, |()| 0),
        Command::Calibrate(args) => print(calibrate::run(args, common), format),
        Command::Evaluate(args) => evaluate::run(args, common),
        #[cfg(feature = "probe")]
        Command::Probe(args) => print(probe::run(args, common), format),
        Command::Ingest(args) => print(ingest::run(args, common), format),
        Command::Fit(args) => print(fit::run(args, common), format),
        Command::Export(args) => export::run(args, common),
        Command::Models(args) => print(models::run(args, common), format),
        Command::Hardware(args) => print(hardware::run(args, common), format),
        Command::Arguments(args) => print(arguments::run(args), format),
        Command::Completions(args) => print(Ok(completions::run(args, &mut Cli::command())), format),
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
