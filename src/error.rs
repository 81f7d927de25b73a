//! The one error type of the library. A message names the place, the value and the way out; every problem of an
//! input is reported at once where that is possible. Uses nothing else of the crate but `dtype`.

use std::path::PathBuf;

use crate::dtype::DType;

/// What the library's fallible functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong, by kind. Callers match on kinds or ask the predicates, never on message text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not well-formed JSON, TOML or csv, or lacks the keys that its kind of file has.
    #[error("{origin}: {message}")]
    Parse {
        /// Path or name of what was read, with line and column where known.
        origin: String,
        /// What is wrong and what was expected.
        message: String,
    },
    /// No built-in model has this name and no file is there.
    #[error(
        "unknown model '{}'{}; `ridgepoint models` lists the built-in ones, a path to a config.json works too",
        cut(name),
        near_matches(near)
    )]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// Built-in names that are close to it.
        near: Vec<String>,
    },
    /// No built-in GPU has this name and no file is there.
    #[error(
        "unknown hardware '{}'{}; `ridgepoint hardware` lists the built-in ones, a path to a TOML file works too",
        cut(name),
        near_matches(near)
    )]
    UnknownHardware {
        /// What was asked for.
        name: String,
        /// Built-in names that are close to it.
        near: Vec<String>,
    },
    /// A configuration (model, hardware or deployment) is well-formed but can't be right; all its problems are listed.
    #[error("{origin}: {}", problems.join("; "))]
    Invalid {
        /// Path or name of the configuration.
        origin: String,
        /// Each names the key, its value and what is allowed.
        problems: Vec<String>,
    },
    /// The model has a kind of layer whose physics is not known.
    #[error("{origin}: model_type '{model_type}' is not supported: `{key}` {reason}")]
    UnsupportedModel {
        /// Path or name of the configuration.
        origin: String,
        /// `model_type` of the configuration.
        model_type: String,
        /// The key that gives the unsupported layer away.
        key: String,
        /// Why it is not supported.
        reason: String,
    },
    /// The chip has no matrix unit for this number format.
    #[error("{hardware} has no {dtype} peak: its datasheet lists {}", listed(known))]
    MissingPeak {
        /// The GPU.
        hardware: String,
        /// The number format asked for.
        dtype: DType,
        /// The formats that it does have.
        known: Vec<DType>,
    },
    /// A step without requests has no duration.
    #[error("the batch has no requests: a step needs at least one request with num_scheduled_tokens >= 1")]
    EmptyStep,
    /// A request of a batch can't be.
    #[error("request {index}: {field} = {value} {reason}")]
    InvalidRequest {
        /// Position in the batch, from 0.
        index: usize,
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        reason: String,
    },
    /// A row of a table or measurement file is unusable.
    #[error("{origin}: row {row}: column '{column}': found {found}, expected {expected}")]
    BadRow {
        /// Path of the file.
        origin: String,
        /// Row number, the first row after the header being 1.
        row: usize,
        /// Column name.
        column: String,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
    /// No efficiency table covers the operator and none can be borrowed.
    #[error("no {operator} efficiency table for {hardware}: {hint}")]
    MissingTable {
        /// The GPU.
        hardware: String,
        /// The operator.
        operator: String,
        /// The way out.
        hint: String,
    },
    /// A command line value that is well-formed for the parser but has no meaning.
    #[error("{what}: '{value}' {reason}")]
    InvalidArgument {
        /// The flag or shorthand.
        what: String,
        /// Its value.
        value: String,
        /// What is allowed.
        reason: String,
    },
}

impl Error {
    /// Wraps an I/O error with the path it happened at.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Error::Io { path: path.into(), source }
    }

    /// True where a measurement or table is missing, so that a caller may fall back; false for any fault.
    pub fn is_missing_measurement(&self) -> bool {
        matches!(self, Error::MissingTable { .. })
    }
}

/// A text cut to a length that reads well in a message.
pub fn cut(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

fn near_matches(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" (did you mean {}?)", near.join(", ")) }
}

fn listed(known: &[DType]) -> String {
    let names: Vec<&str> = known.iter().map(|d| d.name()).collect();
    names.join(", ")
}
