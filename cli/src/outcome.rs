//! How the command ends: a result on stdout, remarks and errors on stderr, an exit code. No other file writes to either.

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use ridgepoint::Error;
use serde::Serialize;

use crate::common::Format;
use crate::hint;

/// A result that can be printed: serde writes its JSON, `table` its text for people.
pub trait Report: Serialize {
    /// The text for people, with a line break at its end.
    fn table(&self) -> String;
}

/// The result of a subcommand.
pub struct Outcome<T> {
    /// The result itself.
    pub result: T,
    /// Remarks for stderr, one per line.
    pub notes: Vec<String>,
    /// Which requested tolerance the result misses, and by how much.
    pub missed: Option<String>,
}

impl<T: Report> Outcome<T> {
    /// A result without remarks.
    pub fn of(result: T) -> Self {
        Outcome { result, notes: Vec::new(), missed: None }
    }

    /// The result as text in the requested format.
    ///
    /// # Errors
    /// A result that cannot be written as JSON.
    pub fn output(self, format: Format) -> Result<Output, Failure> {
        let stdout = match format {
            Format::Table => self.result.table(),
            Format::Json => json(&self.result)?,
        };
        Ok(Output { stdout, notes: self.notes, missed: self.missed })
    }
}

/// A value as indented JSON with a line break at its end.
///
/// # Errors
/// A value that cannot be written as JSON.
pub fn json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::input(format!("the result cannot be written as JSON: {error}")))?;
    Ok(text + "\n")
}

/// What is printed at the end of a run.
pub struct Output {
    /// Text for stdout.
    pub stdout: String,
    /// Warnings for stderr, one per line.
    pub notes: Vec<String>,
    /// The missed tolerance; it makes the exit code 1.
    pub missed: Option<String>,
}

impl Output {
    /// A text without remarks.
    pub fn of(stdout: String) -> Self {
        Output { stdout, notes: Vec::new(), missed: None }
    }
}

/// Why a subcommand failed.
#[derive(Debug)]
pub enum Failure {
    /// The input is at fault; one message per problem. Exit code 1.
    Input(Vec<String>),
    /// The command line is at fault. Exit code 2.
    Usage(ErrorKind, String),
}

impl Failure {
    /// One problem of the input.
    pub fn input(message: impl Into<String>) -> Self {
        Failure::Input(vec![message.into()])
    }

    /// Flags that do not go together.
    pub fn conflict(message: impl Into<String>) -> Self {
        Failure::Usage(ErrorKind::ArgumentConflict, message.into())
    }

    /// A flag that is missing.
    pub fn missing(message: impl Into<String>) -> Self {
        Failure::Usage(ErrorKind::MissingRequiredArgument, message.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::input(hint::explained(&error))
    }
}

impl From<Vec<Error>> for Failure {
    fn from(errors: Vec<Error>) -> Self {
        Failure::Input(errors.iter().map(hint::explained).collect())
    }
}

/// Both results, or the problems of both.
///
/// # Errors
/// Those of either.
pub fn both<A, B>(a: ridgepoint::Result<A>, b: ridgepoint::Result<B>) -> Result<(A, B), Failure> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (a, b) => Err(a.err().into_iter().chain(b.err()).collect::<Vec<Error>>().into()),
    }
}

/// Prints what the argument parser reports: help to stdout, faults to stderr.
pub fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe is no reason to fail.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Prints an output; returns the exit code.
pub fn print(output: Output) -> ExitCode {
    report("warning", &output.notes);
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(output.stdout.as_bytes()).and_then(|()| stdout.flush());
    // A reader such as `head` closes the pipe when it has seen enough: that is no failure.
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        return fail(&[format!("standard output: {error}")]);
    }
    output.missed.map_or(ExitCode::SUCCESS, |message| fail(&[message]))
}

/// Prints problems of the input; returns exit code 1.
pub fn fail(problems: &[String]) -> ExitCode {
    report("error", problems);
    ExitCode::from(1)
}

fn report(kind: &str, lines: &[String]) {
    let mut stderr = std::io::stderr().lock();
    for line in lines {
        let _ = writeln!(stderr, "{kind}: {line}");
    }
}
