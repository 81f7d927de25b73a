//! How the command ends: a result on stdout, remarks and errors on stderr, an exit code. No other file writes to either.

use std::io::Write;

use clap::ValueEnum;
use ridgepoint::Error;
use serde::Serialize;

use crate::hint;
use crate::text::{Page, printable};

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table
    Table,
    /// JSON
    Json,
}

/// A result that can be printed: serde writes its JSON, `lay_out` its text for people.
pub trait Report: Serialize {
    /// Puts the text for people on a page.
    fn lay_out(&self, page: &mut Page);

    /// The text for people, with a line break at its end.
    fn table(&self) -> String {
        let mut page = Page::new();
        self.lay_out(&mut page);
        page.text()
    }
}

/// The result of a subcommand.
pub struct Outcome<T> {
    /// The result itself.
    pub result: T,
    /// Remarks for stderr, one per line.
    pub notes: Vec<String>,
    /// The requested tolerance that the result misses, with the excess.
    pub missed: Option<String>,
}

impl<T> Outcome<T> {
    /// A result without remarks.
    pub fn of(result: T) -> Self {
        Outcome { result, notes: Vec::new(), missed: None }
    }
}

/// Why a subcommand failed.
#[derive(Debug)]
pub enum Failure {
    /// The input is at fault; one message per problem. Exit code 1.
    Input(Vec<String>),
    /// The command line is at fault. Exit code 2.
    Usage(String),
}

impl Failure {
    /// One problem of the input.
    pub fn input(message: impl Into<String>) -> Self {
        Failure::Input(vec![message.into()])
    }

    /// Flags that are missing or do not go together.
    pub fn usage(message: impl Into<String>) -> Self {
        Failure::Usage(message.into())
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

/// Prints the argument parser's report: help to stdout, faults to stderr. Returns the exit code.
pub fn usage(error: &clap::Error) -> u8 {
    if let Some(answer) = hint::not_modelled(error) {
        return fail(2, &[answer]);
    }
    // A closed pipe is no reason to fail.
    let _ = if error.use_stderr() {
        std::io::stderr().lock().write_all(printable(&error.render().to_string()).as_bytes())
    } else {
        error.print()
    };
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Prints how a subcommand ended; returns the exit code.
pub fn print<T: Report>(outcome: Result<Outcome<T>, Failure>, format: Format) -> u8 {
    let Outcome { result, notes, missed } = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => return failed(failure),
    };
    let text = match format {
        Format::Table => result.table(),
        Format::Json => match serde_json::to_string_pretty(&result) {
            Ok(text) => text + "\n",
            Err(error) => return fail(1, &[format!("the result cannot be written as JSON: {error}")]),
        },
    };
    report("warning", &notes);
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(printable(&text).as_bytes()).and_then(|()| stdout.flush()) {
        // A reader such as `head` closes the pipe when it has seen enough: that is no failure.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => fail(1, &[format!("standard output: {error}")]),
        _ => missed.map_or(0, |message| fail(1, &[message])),
    }
}

/// Prints a line on stdout while the command runs on.
#[cfg(feature = "serve")]
pub fn announce(line: &str) {
    let mut stdout = std::io::stdout().lock();
    // A closed pipe is no reason to stop.
    let _ = writeln!(stdout, "{}", printable(line)).and_then(|()| stdout.flush());
}

/// Prints a line of a log on stderr.
#[cfg(feature = "serve")]
pub fn log(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(line));
}

/// Prints why a subcommand failed; returns the exit code.
pub fn failed(failure: Failure) -> u8 {
    match failure {
        Failure::Input(problems) => fail(1, &problems),
        Failure::Usage(message) => fail(2, &[message]),
    }
}

fn fail(code: u8, problems: &[String]) -> u8 {
    report("error", problems);
    code
}

fn report(kind: &str, lines: &[String]) {
    let mut stderr = std::io::stderr().lock();
    for line in lines {
        let _ = writeln!(stderr, "{kind}: {}", printable(line));
    }
}
