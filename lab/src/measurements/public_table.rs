//! Reads the public kernel tables: flat parquet files, whose rows become lines of JSON with the cells as text.

use std::io::{self, Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::Field;
use parquet::record::reader::RowIter;
use ridgepoint::Result;
use ridgepoint::input::{FileKind, Input, read_error};
use serde_json::{Map, Value};

use super::parquet_claims;

/// Returns the rows of a file as jsonl, which are decoded as they are read.
///
/// # Errors
/// A file that cannot be read, is damaged, or has columns other than flat ones of text and numbers.
pub(super) fn jsonl(path: &Path) -> Result<Input<'static>> {
    let file = Bytes::from(Input::open(FileKind::KernelParquet, path)?.bytes()?);
    let origin = path.display().to_string();
    let rows = guarded(|| rows(file)).map_err(|error| read_error(&origin, error))?;
    Input::new(FileKind::KernelTimings, origin, Lines { rows, line: Cursor::default() })
}

/// The parquet crate (60.1) panics on some damaged files. Nothing that it touches outlives the error.
fn guarded<T>(read: impl FnOnce() -> std::result::Result<T, String>) -> io::Result<T> {
    let read = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(damaged("a page is damaged")));
    read.map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, problem))
}

fn damaged(error: impl std::fmt::Display) -> String {
    format!("is damaged or not a parquet file: {error}")
}

fn rows(file: Bytes) -> std::result::Result<RowIter<'static>, String> {
    parquet_claims::check_footer(&file).map_err(damaged)?;
    let reader = SerializedFileReader::new(file.clone()).map_err(damaged)?;
    parquet_claims::check(&file, reader.metadata()).map_err(damaged)?;
    Ok(RowIter::from_file_into(Box::new(reader)))
}

/// Lines of JSON, made of one row at a time.
struct Lines {
    rows: RowIter<'static>,
    line: Cursor<Vec<u8>>,
}

impl Lines {
    /// The next line; empty at the end.
    fn next_line(&mut self) -> std::result::Result<Vec<u8>, String> {
        let Some(row) = self.rows.next() else { return Ok(Vec::new()) };
        let mut object = Map::new();
        for (column, field) in row.map_err(damaged)?.get_column_iter() {
            let expected = "expected a flat column of text, whole numbers or floats";
            let cell = text_of(field).map_err(|kind| format!("column '{column}' holds {kind}; {expected}"))?;
            object.insert(column.clone(), cell);
        }
        let mut line = Value::Object(object).to_string().into_bytes();
        line.push(b'\n');
        Ok(line)
    }
}

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.line.position() == self.line.get_ref().len() as u64 {
            self.line = Cursor::new(guarded(|| self.next_line())?);
        }
        self.line.read(buffer)
    }
}

/// The text of a cell, null if it has no value. The error names the kind of another cell.
fn text_of(field: &Field) -> std::result::Result<Value, &'static str> {
    Ok(Value::String(match field {
        Field::Null => return Ok(Value::Null),
        Field::Byte(_) | Field::Short(_) | Field::Int(_) | Field::Long(_) => field.to_string(),
        Field::UByte(_) | Field::UShort(_) | Field::UInt(_) | Field::ULong(_) => field.to_string(),
        Field::Float(value) => value.to_string(),
        Field::Double(value) => value.to_string(),
        Field::Str(text) => text.clone(),
        Field::Bytes(bytes) => bytes.as_utf8().map_err(|_| "bytes that are no text")?.to_owned(),
        Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) => return Err("nested values"),
        _ => return Err("dates, decimals or switches"),
    }))
}
