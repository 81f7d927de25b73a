//! The one error type of the library. A message names the place, the value and the way out. Every problem of an input is
//! reported at once where that is possible.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::dtype::DType;

/// The result of the library's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the library.
///
/// Programs ask for its [`kind`](Error::kind) and [`location`](Error::location); people read its text. The wording may
/// change in any release.
///
/// ```
/// use ridgepoint::{ErrorKind, Model};
///
/// let error = Model::from_config_str("my.json", "my.json", "{\n  \"hidden_size\": }", None).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Parse);
/// let place = error.location().unwrap();
/// assert_eq!((place.path.as_str(), place.line), ("my.json", Some(2)));
/// ```
#[derive(Debug)]
pub struct Error {
    // Boxed, so that a `Result` on a hot path stays small.
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    detail: Detail,
    location: Option<Location>,
}

/// The kind of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file could not be read or written.
    Io,
    /// A file is not well-formed JSON, YAML, TOML or csv, lacks its keys, or has a cell that cannot be used.
    Parse,
    /// A configuration (model, hardware, deployment, workload) is well-formed but contradicts itself or its limits.
    Invalid,
    /// No built-in model has this name, and no file is there.
    UnknownModel,
    /// No built-in GPU has this name, and no file is there.
    UnknownHardware,
    /// The model has a kind of layer whose physics is not known.
    UnsupportedModel,
    /// The GPU has no matrix unit for a number format.
    MissingPeak,
    /// A batch has no requests.
    EmptyStep,
    /// A request of a batch cannot be.
    InvalidRequest,
    /// No efficiency table covers an operator, and there is no fallback.
    MissingTable,
    /// An argument has an unsupported value.
    InvalidArgument,
}

/// The place that an [`Error`] is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Location {
    /// Path of the file, or the name that the caller gave to a text.
    pub path: String,
    /// Line of the text, from 1. For tables, the row after the header, from 1.
    pub line: Option<u64>,
    /// Column of the line, from 1.
    pub column: Option<u64>,
    /// Key of a configuration, with its path (`rope_scaling.factor`), or column name of a table.
    pub key: Option<String>,
}

impl Location {
    /// A place in a file or a named text.
    pub fn of(path: impl Into<String>) -> Self {
        Location { path: path.into(), ..Location::default() }
    }

    /// The same place at a line, from 1.
    #[must_use]
    pub fn line(mut self, line: impl TryInto<u64>) -> Self {
        self.line = line.try_into().ok();
        self
    }

    /// The same place at a column, from 1.
    #[must_use]
    pub fn column(mut self, column: impl TryInto<u64>) -> Self {
        self.column = column.try_into().ok();
        self
    }

    /// The same place at a key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, ": line {line} column {column}"),
            (Some(line), None) => write!(f, ": line {line}"),
            _ => Ok(()),
        }
    }
}

impl From<String> for Location {
    fn from(path: String) -> Self {
        Location::of(path)
    }
}

impl From<&String> for Location {
    fn from(path: &String) -> Self {
        Location::of(path.as_str())
    }
}

impl From<&str> for Location {
    fn from(path: &str) -> Self {
        Location::of(path)
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Self {
        Location::of(path.display().to_string())
    }
}

/// The parts of an error's message. No promise: programs use [`Error::kind`].
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Detail {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{origin}: {message}")]
    Parse { origin: String, message: String },
    #[error("unknown model '{}'{}", cut(name), near_matches(near))]
    UnknownModel { name: String, near: Vec<String> },
    #[error("unknown hardware '{}'{}", cut(name), near_matches(near))]
    UnknownHardware { name: String, near: Vec<String> },
    #[error("{origin}: {}", problems.join("; "))]
    Invalid { origin: String, problems: Vec<String> },
    #[error("{origin}: model_type '{model_type}' is not supported: `{key}` {reason}")]
    UnsupportedModel { origin: String, model_type: String, key: String, reason: String },
    #[error("{hardware} has no {dtype} peak: its datasheet lists {known}")]
    MissingPeak { hardware: String, dtype: DType, known: String },
    #[error("the batch has no requests: a step needs at least one request with num_scheduled_tokens >= 1")]
    EmptyStep,
    #[error("request {index}: {field} = {value} {reason}")]
    InvalidRequest { index: usize, field: &'static str, value: String, reason: String },
    #[error("{origin}: row {row}: column '{column}': found {found}, expected {expected}")]
    BadRow { origin: String, row: usize, column: String, found: String, expected: String },
    #[error("no {operator} efficiency table for {hardware}: {hint}")]
    MissingTable { hardware: String, operator: String, hint: String },
    #[error("{what}: '{value}' {reason}")]
    InvalidArgument { what: String, value: String, reason: String },
}

impl Error {
    pub(crate) fn new(detail: Detail, location: Option<Location>) -> Self {
        Error { inner: Box::new(Inner { detail, location }) }
    }

    /// A file could not be read or written.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        let path = path.into();
        let location = Location::from(path.as_path());
        Error::new(Detail::Io { path, source }, Some(location))
    }

    /// A text is malformed at a place; `message` says what is wrong and what was expected.
    pub fn parse(at: impl Into<Location>, message: impl Into<String>) -> Self {
        let location = at.into();
        Error::new(Detail::Parse { origin: location.to_string(), message: message.into() }, Some(location))
    }

    /// A configuration cannot be right. Each problem names the key, its value and the allowed values.
    pub fn invalid(at: impl Into<Location>, problems: Vec<String>) -> Self {
        let location = at.into();
        Error::new(Detail::Invalid { origin: location.to_string(), problems }, Some(location))
    }

    /// No built-in model has this name; `near` are names that are close to it.
    pub fn unknown_model(name: impl Into<String>, near: Vec<String>) -> Self {
        Error::new(Detail::UnknownModel { name: name.into(), near }, None)
    }

    /// No built-in GPU has this name; `near` are names that are close to it.
    pub fn unknown_hardware(name: impl Into<String>, near: Vec<String>) -> Self {
        Error::new(Detail::UnknownHardware { name: name.into(), near }, None)
    }

    /// A batch has no requests.
    pub fn empty_step() -> Self {
        Error::new(Detail::EmptyStep, None)
    }

    /// A request of a batch cannot be; `index` counts from 0, `reason` says what is allowed.
    pub fn invalid_request(
        index: usize,
        field: &'static str,
        value: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Error::new(Detail::InvalidRequest { index, field, value: value.into(), reason: reason.into() }, None)
    }

    /// A cell of a table cannot be used; `row` counts from 1 after the header.
    pub fn bad_row(
        origin: impl Into<String>,
        row: usize,
        column: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let (origin, column) = (origin.into(), column.into());
        let location = Location::of(origin.as_str()).line(row).key(column.as_str());
        let (found, expected) = (found.into(), expected.into());
        Error::new(Detail::BadRow { origin, row, column, found, expected }, Some(location))
    }

    /// No efficiency table covers an operator; `hint` is the way out.
    pub fn missing_table(hardware: impl Into<String>, operator: impl Into<String>, hint: impl Into<String>) -> Self {
        let (hardware, operator, hint) = (hardware.into(), operator.into(), hint.into());
        Error::new(Detail::MissingTable { hardware, operator, hint }, None)
    }

    /// An argument has an unsupported value; `reason` says what is allowed.
    pub fn invalid_argument(what: impl Into<String>, value: impl Into<String>, reason: impl Into<String>) -> Self {
        let (what, value, reason) = (what.into(), value.into(), reason.into());
        let location = Location { key: Some(what.clone()), ..Location::default() };
        Error::new(Detail::InvalidArgument { what, value, reason }, Some(location))
    }

    /// The same error, where it lists problems, said of another place: of the file that held the configuration.
    #[must_use]
    pub fn of(self, at: impl Into<Location>) -> Self {
        match self.inner.detail {
            Detail::Invalid { problems, .. } => Error::invalid(at, problems),
            _ => self,
        }
    }

    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self.inner.detail {
            Detail::Io { .. } => ErrorKind::Io,
            Detail::Parse { .. } | Detail::BadRow { .. } => ErrorKind::Parse,
            Detail::Invalid { .. } => ErrorKind::Invalid,
            Detail::UnknownModel { .. } => ErrorKind::UnknownModel,
            Detail::UnknownHardware { .. } => ErrorKind::UnknownHardware,
            Detail::UnsupportedModel { .. } => ErrorKind::UnsupportedModel,
            Detail::MissingPeak { .. } => ErrorKind::MissingPeak,
            Detail::EmptyStep => ErrorKind::EmptyStep,
            Detail::InvalidRequest { .. } => ErrorKind::InvalidRequest,
            Detail::MissingTable { .. } => ErrorKind::MissingTable,
            Detail::InvalidArgument { .. } => ErrorKind::InvalidArgument,
        }
    }

    /// The file, line, column and key that this error is about, as far as they are known.
    pub fn location(&self) -> Option<&Location> {
        self.inner.location.as_ref()
    }

    /// Every problem of an `ErrorKind::Invalid` error; empty for other kinds.
    pub fn problems(&self) -> &[String] {
        match &self.inner.detail {
            Detail::Invalid { problems, .. } => problems,
            _ => &[],
        }
    }

    /// The parts of the message.
    #[doc(hidden)]
    pub fn detail(&self) -> &Detail {
        &self.inner.detail
    }

    /// The parts of the message.
    #[doc(hidden)]
    pub fn into_detail(self) -> Detail {
        self.inner.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.detail.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.inner.detail)
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
