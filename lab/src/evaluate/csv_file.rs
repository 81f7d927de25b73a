//! A csv file whose columns are known beforehand, with the place of a fault in every error. Uses `csv_error`, `error`.

use std::path::Path;
use std::str::FromStr;

use ridgepoint::internals::input::csv_error;
use ridgepoint::{Error, Result};

/// A file read whole.
#[derive(Debug)]
pub(super) struct CsvFile {
    origin: String,
    columns: &'static [&'static str],
    /// Position in the file of each known column.
    positions: Vec<usize>,
    rows: Vec<csv::StringRecord>,
}

impl CsvFile {
    /// Reads a file that has exactly `columns`, in any order; cells are trimmed.
    pub(super) fn read(path: &Path, columns: &'static [&'static str]) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
        let origin = path.display().to_string();
        let failed = |error: csv::Error| csv_error(&origin, error);
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bytes.as_slice());
        let header = reader.headers().map_err(failed)?.clone();
        let positions = positions(&header, columns).map_err(|message| Error::parse(origin.clone(), message))?;
        let rows = reader.records().collect::<std::result::Result<_, _>>().map_err(failed)?;
        Ok(CsvFile { origin, columns, positions, rows })
    }

    /// What errors start with.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The rows in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = CsvRow<'_>> {
        self.rows.iter().enumerate().map(|(index, record)| CsvRow { file: self, record, number: index + 1 })
    }
}

fn positions(header: &csv::StringRecord, columns: &[&str]) -> std::result::Result<Vec<usize>, String> {
    let listed = columns.join(", ");
    let mut problems: Vec<String> = Vec::new();
    for (index, name) in header.iter().enumerate() {
        if !columns.contains(&name) {
            problems.push(format!("column '{name}' is not known"));
        } else if header.iter().take(index).any(|earlier| earlier == name) {
            problems.push(format!("column '{name}' is there twice"));
        }
    }
    let found: Vec<Option<usize>> = columns.iter().map(|name| header.iter().position(|cell| cell == *name)).collect();
    for (name, position) in columns.iter().zip(&found) {
        if position.is_none() {
            problems.push(format!("column '{name}' is missing"));
        }
    }
    if problems.is_empty() {
        return Ok(found.into_iter().flatten().collect());
    }
    Err(format!("{}; the columns are {listed}", problems.join("; ")))
}

/// A row of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct CsvRow<'a> {
    file: &'a CsvFile,
    record: &'a csv::StringRecord,
    number: usize,
}

impl CsvRow<'_> {
    /// Its number, the first after the header being 1.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The cell of a column.
    pub(super) fn text(&self, column: &str) -> &str {
        let known = self.file.columns.iter().position(|name| *name == column);
        let position = known.and_then(|index| self.file.positions.get(index));
        position.and_then(|position| self.record.get(*position)).unwrap_or("")
    }

    /// What is wrong with the cell of a column.
    pub(super) fn bad(&self, column: &str, expected: &str) -> Error {
        let text = self.text(column);
        Error::bad_row(
            self.file.origin.clone(),
            self.number,
            column,
            if text.is_empty() { "nothing".to_owned() } else { text.to_owned() },
            expected,
        )
    }

    /// The cell as a value of another type.
    pub(super) fn parse<T: FromStr>(&self, column: &str, expected: &str) -> Result<T> {
        self.text(column).parse().map_err(|_| self.bad(column, expected))
    }

    /// The cell as a finite number above 0.
    pub(super) fn positive(&self, column: &str, expected: &str) -> Result<f64> {
        let value = self.parse::<f64>(column, expected)?;
        if value.is_finite() && value > 0.0 { Ok(value) } else { Err(self.bad(column, expected)) }
    }

    /// The cell as a whole number, which may be written as `16.0`; `None` for an empty cell.
    pub(super) fn whole(&self, column: &str) -> Result<Option<u32>> {
        const EXPECTED: &str = "a whole number from 0 to 4294967295, or nothing";
        if self.text(column).is_empty() {
            return Ok(None);
        }
        let value = self.parse::<f64>(column, EXPECTED)?;
        let is_whole = value.fract().abs() <= 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value);
        if is_whole { Ok(Some(value as u32)) } else { Err(self.bad(column, EXPECTED)) }
    }

    /// The cell as a whole number of at least 1.
    pub(super) fn count(&self, column: &str) -> Result<u32> {
        self.whole(column)?.filter(|value| *value > 0).ok_or_else(|| self.bad(column, "a whole number from 1"))
    }
}
