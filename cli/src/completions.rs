//! `ridgepoint completions`: a script that completes subcommands, flags and their values. Uses `args`.

use clap::CommandFactory;

use super::args::{Cli, Completions};
use super::output::Output;

/// Writes the script for a shell.
pub fn run(args: &Completions) -> Output {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ridgepoint", &mut script);
    Output::of(String::from_utf8_lossy(&script).into_owned())
}
