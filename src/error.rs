//! The one error type of the library. A message names the place, the value and the way out. Every problem of an input is
//! reported at once where that is possible.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::io;

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
    kind: ErrorKind,
    /// Start of the message: the place, as a rule. Empty if the problems name it.
    subject: String,
    problems: Vec<String>,
    location: Option<Location>,
    source: Option<io::Error>,
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
    /// Path of the file, or the name that the caller gave to a text; `request 3` for the fourth request of a batch. May be empty.
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

impl Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, ": line {line} column {column}"),
            (Some(line), None) => write!(f, ": line {line}"),
            _ => Ok(()),
        }
    }
}

/// A path or a name.
impl<T: AsRef<OsStr>> From<T> for Location {
    fn from(path: T) -> Self {
        Location::of(path.as_ref().to_string_lossy())
    }
}

impl Error {
    fn new(kind: ErrorKind, subject: impl Into<String>, problems: Vec<String>, location: Option<Location>) -> Self {
        Error { inner: Box::new(Inner { kind, subject: subject.into(), problems, location, source: None }) }
    }

    /// A file could not be read or written.
    pub fn io(path: impl Into<Location>, source: io::Error) -> Self {
        let location = path.into();
        let mut error = Error::new(ErrorKind::Io, &location.path, vec![source.to_string()], Some(location.clone()));
        error.inner.source = Some(source);
        error
    }

    /// A text is malformed at a place; `message` says what is wrong and what was expected.
    pub fn parse(at: impl Into<Location>, message: impl Into<String>) -> Self {
        let location = at.into();
        Error::new(ErrorKind::Parse, location.to_string(), vec![message.into()], Some(location))
    }

    /// A configuration cannot be right. Each problem names the key, its value and the allowed values.
    pub fn invalid(at: impl Into<Location>, problems: Vec<String>) -> Self {
        let location = at.into();
        Error::new(ErrorKind::Invalid, location.to_string(), problems, Some(location))
    }

    /// No built-in model has this name; `near` are names that are close to it.
    pub fn unknown_model(name: &str, near: &[String]) -> Self {
        Error::new(ErrorKind::UnknownModel, "", vec![unknown("model", name, near)], None)
    }

    /// No built-in model has this name, but `others` are the same model in other number formats.
    pub(crate) fn unknown_format(name: &str, others: &[&str]) -> Self {
        let others = others.join(", ");
        let problem = format!("unknown model '{}': of this model only {others} can be named", cut(name));
        Error::new(ErrorKind::UnknownModel, "", vec![problem], None)
    }

    /// A published model has the layers of a known family, and its sizes are not built in.
    pub(crate) fn unsized_model(name: &str, family: &str) -> Self {
        let problem =
            format!("unknown model '{}': its layers are those of {family}, and its sizes are not built in", cut(name));
        Error::new(ErrorKind::UnknownModel, "", vec![problem], None)
    }

    /// No built-in GPU has this name; `near` are names that are close to it.
    pub fn unknown_hardware(name: &str, near: &[String]) -> Self {
        Error::new(ErrorKind::UnknownHardware, "", vec![unknown("hardware", name, near)], None)
    }

    /// The key of a configuration means layers whose physics is not known.
    pub(crate) fn unsupported_model(origin: &str, model_type: &str, key: &str, reason: &str) -> Self {
        let problem = format!("model_type '{model_type}' is not supported: `{key}` {reason}");
        Error::new(ErrorKind::UnsupportedModel, origin, vec![problem], Some(Location::of(origin).key(key)))
    }

    /// A GPU has no matrix unit for a number format; its datasheet lists the formats `known`.
    pub(crate) fn missing_peak(hardware: &str, dtype: DType, known: &str) -> Self {
        let problem = format!("{hardware} has no {dtype} peak: its datasheet lists {known}");
        Error::new(ErrorKind::MissingPeak, "", vec![problem], None)
    }

    /// A batch has no requests.
    pub fn empty_step() -> Self {
        let problem = "the batch has no requests: a step needs at least one request with num_scheduled_tokens >= 1";
        Error::new(ErrorKind::EmptyStep, "", vec![problem.to_owned()], None)
    }

    /// Requests of a batch cannot be; each problem has the index of its request, from 0, and says what is allowed.
    pub fn invalid_requests(problems: &[(usize, String)]) -> Self {
        let place = problems.first().map(|(index, _)| Location::of(format!("request {index}")));
        let problems = problems.iter().map(|(index, problem)| format!("request {index}: {problem}")).collect();
        Error::new(ErrorKind::InvalidRequest, "", problems, place)
    }

    /// A cell of a table cannot be used; `row` counts from 1 after the header.
    pub fn bad_row(origin: &str, row: usize, column: &str, found: impl Display, expected: impl Display) -> Self {
        let problem = format!("row {row}: column '{column}': found {found}, expected {expected}");
        Error::new(ErrorKind::Parse, origin, vec![problem], Some(Location::of(origin).line(row).key(column)))
    }

    /// No efficiency table covers an operator; `hint` is the way out. The location's key is the operator.
    pub fn missing_table(hardware: &str, operator: &str, hint: impl Display) -> Self {
        let problem = format!("no {operator} efficiency table for {hardware}: {hint}");
        Error::new(ErrorKind::MissingTable, "", vec![problem], Some(Location::default().key(operator)))
    }

    /// An argument has an unsupported value; `reason` says what is allowed.
    pub fn invalid_argument(what: &str, value: impl Display, reason: impl Display) -> Self {
        let problem = format!("'{value}' {reason}");
        Error::new(ErrorKind::InvalidArgument, what, vec![problem], Some(Location::default().key(what)))
    }

    /// Names another place, such as the file that held the configuration. Other kinds of error are unchanged.
    #[must_use]
    pub fn of(self, at: impl Into<Location>) -> Self {
        if self.kind() == ErrorKind::Invalid { Error::invalid(at, self.inner.problems) } else { self }
    }

    /// The same error with another problem.
    #[must_use]
    pub fn and(mut self, problem: impl Into<String>) -> Self {
        self.inner.problems.push(problem.into());
        self
    }

    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The file, line, column and key that this error is about, as far as they are known.
    pub fn location(&self) -> Option<&Location> {
        self.inner.location.as_ref()
    }

    /// Every problem that the message lists.
    pub fn problems(&self) -> &[String] {
        &self.inner.problems
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { subject, problems, .. } = &*self.inner;
        let colon = if subject.is_empty() { "" } else { ": " };
        write!(f, "{subject}{colon}{}", problems.join("; "))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_ref().map(|source| source as _)
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

/// Returns each value once, where it is first met.
pub fn each_once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn unknown(what: &str, name: &str, near: &[String]) -> String {
    let hint = if near.is_empty() { String::new() } else { format!(" (did you mean {}?)", near.join(", ")) };
    format!("unknown {what} '{}'{hint}", cut(name))
}
