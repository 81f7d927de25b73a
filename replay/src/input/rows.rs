//! Reads csv and jsonl files, and lists of JSON objects, row by row. Columns are known by name; errors name the file, the row and the column.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::rc::Rc;

use ridgepoint::input::{
    Bounded, Input, NumberRange, Record, RecordCount, distinct_json, json_cause, read_error, shown, whole_text,
};
use ridgepoint::unstable::error::cut;
use ridgepoint::{Error, Location, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::columns::{Columns, FoundColumn, Header};
use super::json_list::{ListPart, is_list};
use super::record::read_texts;

/// Reads the rows of a file.
pub struct RowReader<'a> {
    origin: String,
    columns: Columns,
    header: Header,
    number: usize,
    count: Rc<RecordCount>,
    source: RecordReader<'a>,
}

enum RecordReader<'a> {
    Csv {
        reader: csv::Reader<BufReader<Bounded<'a>>>,
        record: csv::StringRecord,
    },
    Jsonl {
        reader: BufReader<Bounded<'a>>,
        /// Where the reader stands, if the file is a list and has no lines.
        list: Option<ListPart>,
        buffer: Vec<u8>,
        object: Map<String, Value>,
    },
}

impl<'a> RowReader<'a> {
    /// Reads csv. Lines that begin with `#` are comments, and white space around cells does not count.
    ///
    /// # Errors
    /// A file that can't be read or is empty, and those of [`Columns::find`].
    pub fn csv(input: Input<'a>, columns: Columns) -> Result<Self> {
        let mut options = csv::ReaderBuilder::new();
        options.comment(Some(b'#')).trim(csv::Trim::All);
        Self::with_options(input, columns, &options)
    }

    /// Reads csv whose cells count as they are: `#` and white space belong to them.
    ///
    /// # Errors
    /// Those of [`RowReader::csv`].
    pub fn verbatim_csv(input: Input<'a>, columns: Columns) -> Result<Self> {
        Self::with_options(input, columns, &csv::ReaderBuilder::new())
    }

    fn with_options(input: Input<'a>, columns: Columns, options: &csv::ReaderBuilder) -> Result<Self> {
        let origin = input.origin().to_owned();
        let (reader, count) = input.records(Record::Row);
        let mut reader = options.from_reader(reader);
        let names = reader.headers().map_err(|error| csv_error(&origin, error))?;
        if names.iter().all(|name| name.trim().is_empty()) {
            let message =
                format!("is empty: the first line must name the columns {}", columns.required.replace(',', ", "));
            return Err(Error::parse(origin, message));
        }
        let header = columns.find(&origin, names)?;
        let source = RecordReader::Csv { reader, record: csv::StringRecord::new() };
        Ok(RowReader { origin, columns, header, number: 0, count, source })
    }

    /// Reads jsonl: an object per line, whose keys are the columns. Blank lines are passed over. A JSON list of such objects is read as they
    /// are, one by one.
    pub fn jsonl(input: Input<'a>, columns: Columns) -> Self {
        let origin = input.origin().to_owned();
        let list = is_list(input.head()).then_some(ListPart::Start);
        let (reader, count) = input.records(Record::Line);
        let source = RecordReader::Jsonl { reader, list, buffer: Vec::new(), object: Map::new() };
        RowReader { origin, columns, header: Header::default(), number: 0, count, source }
    }

    /// Returns what errors call the file.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the columns of the file; of jsonl, those of the last row.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads the next row; `None` at the end of the file.
    ///
    /// # Errors
    /// A file that can't be read, a row with more or fewer cells than the header, and a line that is not a JSON object or
    /// has other keys than the columns.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>> {
        let origin = &self.origin;
        self.count.begin();
        let cells = match &mut self.source {
            RecordReader::Csv { reader, record } => {
                if !reader.read_record(record).map_err(|error| csv_error(origin, error))? {
                    return Ok(None);
                }
                self.number += 1;
                Cells::Csv(record)
            }
            RecordReader::Jsonl { reader, list, buffer, object } => {
                let is_list = list.is_some();
                loop {
                    buffer.clear();
                    let is_read = match list {
                        Some(list) => list.next_element(reader, buffer),
                        None => reader.read_until(b'\n', buffer).map(|read| read > 0),
                    };
                    if !is_read.map_err(|error| read_error(origin, error))? {
                        return Ok(None);
                    }
                    self.number += 1;
                    if is_list || !buffer.trim_ascii().is_empty() {
                        break;
                    }
                }
                *object = parse_object(origin, self.number, buffer, is_list)?;
                if !self.header.has_keys_of(object) {
                    let line = Location::of(origin).line(self.number);
                    self.header = self.columns.find(line, object.keys().map(String::as_str))?;
                }
                Cells::Jsonl(object)
            }
        };
        Ok(Some(Row { origin, number: self.number, header: &self.header, cells }))
    }
}

/// Reads a line, or the element of a list with this number.
fn parse_object(origin: &str, number: usize, text: &[u8], is_list: bool) -> Result<Map<String, Value>> {
    let text = text.trim_ascii();
    let fault = |column: usize, cause: &str| {
        if is_list {
            return Error::parse(origin, format!("has a list whose element {number} is no JSON object: {cause}"));
        }
        let place = Location::of(origin).line(number).column(column);
        Error::parse(place, format!("is not a JSON object on a line of its own: {cause}"))
    };
    match distinct_json(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(fault(1, &format!("found {}", shown(&other)))),
        Err(error) => Err(fault(error.column(), &json_cause(&error))),
    }
}

/// A row of a file.
#[derive(Clone, Copy)]
pub struct Row<'r> {
    origin: &'r str,
    number: usize,
    header: &'r Header,
    cells: Cells<'r>,
}

#[derive(Clone, Copy)]
enum Cells<'r> {
    Csv(&'r csv::StringRecord),
    Jsonl(&'r Map<String, Value>),
}

impl<'r> Row<'r> {
    /// Returns the number of the row: from 1, without the header of a csv file.
    pub fn row_number(&self) -> usize {
        self.number
    }

    /// Returns the name that the file has for a column.
    pub fn name<'a>(&'a self, column: &'a str) -> &'a str {
        self.header.name(column).unwrap_or(column)
    }

    /// Returns whether the file has a column by a name that is not its own, but says what it is.
    pub fn is_by_role(&self, column: &str) -> bool {
        self.header.find(column).is_some_and(|found| found.is_by_role)
    }

    /// Returns the names of the file's columns that are not read.
    pub fn others(&self) -> &'r [String] {
        self.header.others()
    }

    /// Returns whether the file, or the line of jsonl, has a column.
    pub fn has(&self, column: &str) -> bool {
        self.header.name(column).is_some()
    }

    /// Returns the text of a cell; `None` if it is empty or null, or the file lacks the column.
    pub fn text(&self, column: &str) -> Option<Cow<'r, str>> {
        self.text_of(self.header.find(column)?)
    }

    fn text_of(&self, column: &FoundColumn) -> Option<Cow<'r, str>> {
        let text = match self.cells {
            Cells::Csv(record) => Cow::Borrowed(record.get(column.position)?),
            Cells::Jsonl(object) => match object.get(&column.name)? {
                Value::Null => return None,
                Value::String(text) => Cow::Borrowed(text.trim()),
                value => Cow::Owned(value.to_string()),
            },
        };
        (!text.is_empty()).then_some(text)
    }

    /// Returns an error of the row.
    pub fn refused(&self, problem: impl Into<String>) -> Error {
        Error::parse(Location::of(self.origin).line(self.number), problem)
    }

    /// Returns the error of a cell.
    pub fn bad(&self, column: &str, expected: impl std::fmt::Display) -> Error {
        let found = self.text(column).map_or_else(|| "nothing".to_owned(), |text| cut(&text));
        Error::bad_row(self.origin, self.number, self.name(column), found, expected)
    }

    /// Reads the row as a struct, whose fields have the names of columns; see [`read_texts`].
    ///
    /// # Errors
    /// The first cell that a field cannot be read from.
    pub fn get<T: DeserializeOwned>(&self) -> Result<T> {
        let columns = &self.header.found;
        let names = columns.iter().map(|found| found.column).collect();
        let texts = columns.iter().map(|found| self.text_of(found).unwrap_or_default()).collect();
        read_texts(&names, texts).map_err(|(column, expected)| self.bad(&column, expected))
    }

    /// Converts the text of a cell, which must not be empty; `expected` says what it must be.
    ///
    /// # Errors
    /// An empty cell, and a text that `convert` returns `None` for.
    pub fn read<T>(&self, column: &str, expected: impl Display, convert: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let found = self.text(column).and_then(|text| convert(text.trim()));
        found.ok_or_else(|| self.bad(column, expected.to_string()))
    }

    /// Reads a whole number, which may be written as `16.0`.
    ///
    /// # Errors
    /// An empty cell, or anything but a number of the range.
    pub fn whole<T: TryFrom<u64> + PartialOrd + Display>(&self, column: &str, range: RangeInclusive<T>) -> Result<T> {
        let expected = format_args!("a whole number from {} to {}", range.start(), range.end());
        self.read(column, expected, |text| T::try_from(whole_text(text)?).ok().filter(|number| range.contains(number)))
    }

    /// Reads a number.
    ///
    /// # Errors
    /// An empty cell, or anything but a number of the range.
    pub fn number(&self, column: &str, range: NumberRange) -> Result<f64> {
        self.read(column, range, |text| text.parse().ok().filter(|number| range.contains(*number)))
    }

    /// Reads a cell with `read`; `None` if it is empty.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn optional<T>(&self, column: &str, read: impl FnOnce(&Self, &str) -> Result<T>) -> Result<Option<T>> {
        self.text(column).map(|_| read(self, column)).transpose()
    }

    /// Returns the objects in a list, which only jsonl has.
    ///
    /// # Errors
    /// An empty cell, or anything else.
    pub fn objects(&self, column: &str) -> Result<Vec<&'r Map<String, Value>>> {
        let list = self.list(column).and_then(|list| list.iter().map(Value::as_object).collect());
        list.ok_or_else(|| self.bad(column, "a list of objects"))
    }

    /// Reads a list of whole numbers, which only jsonl has.
    ///
    /// # Errors
    /// An empty cell, or anything else.
    pub fn wholes(&self, column: &str) -> Result<Vec<u64>> {
        let list = self.list(column).and_then(|list| list.iter().map(Value::as_u64).collect());
        list.ok_or_else(|| self.bad(column, "a list of whole numbers"))
    }

    fn list(&self, column: &str) -> Option<&'r Vec<Value>> {
        match self.cells {
            Cells::Csv(_) => None,
            Cells::Jsonl(object) => object.get(&self.header.find(column)?.name)?.as_array(),
        }
    }
}

/// Turns an error of the csv reader into one that names the line.
fn csv_error(origin: &str, error: csv::Error) -> Error {
    let place = error.position().map_or(Location::of(origin), |position| Location::of(origin).line(position.line()));
    match error.into_kind() {
        csv::ErrorKind::Io(source) => read_error(origin, source),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            Error::parse(place, format!("has {len} cells, the header has {expected_len}"))
        }
        csv::ErrorKind::Utf8 { .. } => Error::parse(place, "is not UTF-8 text"),
        kind => Error::parse(place, format!("can't be read as csv: {kind:?}")),
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
