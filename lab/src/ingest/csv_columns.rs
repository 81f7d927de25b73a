//! Csv files whose columns are known beforehand, some of which a file may lack, read row by row. Uses `csv_error`, `error`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::str::FromStr;

use ridgepoint::internals::error::cut;
use ridgepoint::internals::input::csv_error;
use ridgepoint::{Error, Result};

/// The columns of a kind of file.
pub(super) struct Known {
    /// Every file has them.
    pub required: &'static [&'static str],
    /// A file may have them.
    pub optional: &'static [&'static str],
}

/// An opened file.
pub(super) struct CsvRows {
    origin: String,
    reader: csv::Reader<File>,
    positions: BTreeMap<&'static str, usize>,
    number: usize,
}

impl CsvRows {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// A file that can't be read; a header with unknown or repeated columns, or without required ones, all of which are named.
    pub(super) fn open(path: &Path, known: &Known) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        let origin = path.display().to_string();
        let mut reader = csv::ReaderBuilder::new().buffer_capacity(1 << 16).from_reader(file);
        let header = reader.headers().map_err(|error| failed(path, &origin, error))?.clone();
        let positions = positions(&origin, &header, known)?;
        Ok(CsvRows { origin, reader, positions, number: 0 })
    }

    /// What errors start with.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether the file has a column.
    pub(super) fn has(&self, column: &str) -> bool {
        self.positions.contains_key(column)
    }

    /// Reads the next row into `record`.
    ///
    /// # Errors
    /// A file that can't be read; a row with more or fewer cells than the header.
    pub(super) fn next<'r>(&'r mut self, record: &'r mut csv::StringRecord) -> Result<Option<Row<'r>>> {
        let path = Path::new(&self.origin);
        let is_there = self.reader.read_record(record).map_err(|error| failed(path, &self.origin, error))?;
        self.number += 1;
        Ok(is_there.then_some(Row { origin: &self.origin, positions: &self.positions, record, number: self.number }))
    }
}

fn failed(path: &Path, origin: &str, error: csv::Error) -> Error {
    if !error.is_io_error() {
        return csv_error(origin, error);
    }
    match error.into_kind() {
        csv::ErrorKind::Io(source) => Error::io(path, source),
        kind => Error::parse(origin, format!("{kind:?}")),
    }
}

fn positions(origin: &str, header: &csv::StringRecord, known: &Known) -> Result<BTreeMap<&'static str, usize>> {
    if header.iter().all(|name| name.trim().is_empty()) {
        let message = format!("is empty: the first line must name the columns {}", known.required.join(", "));
        return Err(Error::parse(origin, message));
    }
    let mut positions = BTreeMap::new();
    let mut problems = Vec::new();
    for (index, name) in header.iter().map(str::trim).enumerate() {
        let column = known.required.iter().chain(known.optional).find(|column| **column == name);
        match column {
            None => problems.push(format!("column '{}' is not known", cut(name))),
            Some(column) if positions.insert(*column, index).is_some() => {
                problems.push(format!("column '{name}' is there twice"));
            }
            Some(_) => {}
        }
    }
    let missing = known.required.iter().filter(|column| !positions.contains_key(*column));
    problems.extend(missing.map(|column| format!("column '{column}' is missing")));
    if problems.is_empty() {
        return Ok(positions);
    }
    let mut listed = format!("the columns are {}", known.required.join(", "));
    if !known.optional.is_empty() {
        listed.push_str(&format!(" and, where known, {}", known.optional.join(", ")));
    }
    problems.push(listed);
    Err(Error::invalid(origin, problems))
}

/// A row of a file.
pub(super) struct Row<'r> {
    origin: &'r str,
    positions: &'r BTreeMap<&'static str, usize>,
    record: &'r csv::StringRecord,
    number: usize,
}

impl<'r> Row<'r> {
    /// The cell of a column as it stands; `None` for an empty one and for a column that the file lacks.
    pub(super) fn text(&self, column: &str) -> Option<&'r str> {
        let position = self.positions.get(column)?;
        self.record.get(*position).filter(|cell| !cell.is_empty())
    }

    /// What is wrong with the cell of a column.
    pub(super) fn bad(&self, column: &str, expected: impl Into<String>) -> Error {
        let found = self.text(column).map_or_else(|| "nothing".to_owned(), |text| format!("'{}'", cut(text)));
        Error::bad_row(self.origin.to_owned(), self.number, column, found, expected.into())
    }

    /// A whole number; `16.0` is one.
    pub(super) fn whole<T: TryFrom<u64>>(&self, column: &str) -> Result<Option<T>> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let value = whole_number(text.trim()).and_then(|value| T::try_from(value).ok());
        let max = if size_of::<T>() <= 4 { u64::from(u32::MAX) } else { u64::MAX };
        value.map(Some).ok_or_else(|| self.bad(column, format!("a whole number from 0 to {max}")))
    }

    /// A whole number that has to be there.
    pub(super) fn required<T: TryFrom<u64>>(&self, column: &str) -> Result<T> {
        self.whole(column)?.ok_or_else(|| self.bad(column, "a whole number"))
    }

    /// A finite number above 0.
    pub(super) fn positive(&self, column: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let value = f64::from_str(text.trim()).ok().filter(|value| value.is_finite() && *value > 0.0);
        value.map(Some).ok_or_else(|| self.bad(column, "a number above 0"))
    }
}

fn whole_number(text: &str) -> Option<u64> {
    /// Whole numbers up to here are exact as `f64`.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Ok(value) = text.parse::<u64>() {
        return Some(value);
    }
    let value = text.parse::<f64>().ok()?;
    ((0.0..=EXACT).contains(&value) && value.fract().abs() <= 0.0).then_some(value as u64)
}
