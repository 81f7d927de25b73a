//! How the command ends: text to stdout, diagnostics to stderr, an exit code. The only file that writes to either.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// What a subcommand has to say when it went through.
pub struct Output {
    /// The result, for stdout.
    pub stdout: String,
    /// Remarks beside the result, for stderr, a line each.
    pub notes: Vec<String>,
    /// The result misses a tolerance that was asked for, and how.
    pub missed: Option<String>,
}

impl Output {
    /// A result without remarks.
    pub fn of(stdout: String) -> Self {
        Output { stdout, notes: Vec::new(), missed: None }
    }

    /// A value as indented JSON.
    pub fn json(value: &impl serde::Serialize) -> Result<Self, Failure> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::input(format!("the result can't be written as JSON: {error}")))?;
        text.push('\n');
        Ok(Output::of(text))
    }
}

/// Why a subcommand did not go through.
pub enum Failure {
    /// The input is at fault; one message per problem. Exit code 1.
    Input(Vec<String>),
    /// The command line is at fault. Exit code 2.
    Usage(clap::Error),
}

impl Failure {
    /// One problem of the input.
    pub fn input(message: impl Into<String>) -> Self {
        Failure::Input(vec![message.into()])
    }

    /// Flags that don't go together, said as the argument parser says it.
    pub fn usage(kind: clap::error::ErrorKind, subcommand: &str, message: &str) -> Self {
        let mut command = <super::args::Cli as clap::CommandFactory>::command();
        command.build();
        let error = match command.find_subcommand_mut(subcommand) {
            Some(found) => found.error(kind, message),
            None => command.error(kind, message),
        };
        Failure::Usage(error)
    }
}

impl From<ridgepoint::Error> for Failure {
    fn from(error: ridgepoint::Error) -> Self {
        Failure::input(error.to_string())
    }
}

/// Both results, or the problems of both.
pub fn both<A, B>(a: ridgepoint::Result<A>, b: ridgepoint::Result<B>) -> Result<(A, B), Failure> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(a), Err(b)) => Err(Failure::Input(vec![a.to_string(), b.to_string()])),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error.into()),
    }
}

/// Prints what the argument parser says: help to stdout, faults to stderr.
pub fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe is no reason to fail.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Prints the result of a subcommand.
pub fn finish(result: Result<Output, Failure>) -> ExitCode {
    let output = match result {
        Ok(output) => output,
        Err(Failure::Usage(error)) => return usage(&error),
        Err(Failure::Input(problems)) => {
            say(problems.iter().map(|problem| format!("error: {problem}")));
            return ExitCode::from(1);
        }
    };
    say(output.notes.iter().map(|note| format!("warning: {note}")));
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(output.stdout.as_bytes()).and_then(|()| stdout.flush());
    // A reader that has seen enough, as `head` does, closes the pipe: that is no failure.
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        say([format!("error: standard output: {error}")]);
        return ExitCode::from(1);
    }
    match output.missed {
        Some(message) => {
            say([format!("error: {message}")]);
            ExitCode::from(1)
        }
        None => ExitCode::SUCCESS,
    }
}

fn say(lines: impl IntoIterator<Item = String>) {
    let mut stderr = std::io::stderr().lock();
    for line in lines {
        let _ = writeln!(stderr, "{line}");
    }
}
