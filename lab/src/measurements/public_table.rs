//! Reads the public kernel tables: flat parquet files, whose rows become lines of JSON with the cells as text.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use ridgepoint::internals::input::{FileKind, Input};
use ridgepoint::{Error, Result};
use serde_json::{Map, Value};

/// Most rows of a table; a damaged file may claim any number of them.
const MAX_ROWS: i64 = 10_000_000;

/// Returns the rows of a file as jsonl.
///
/// # Errors
/// A file that cannot be read, is damaged, or has columns other than flat ones of text and numbers.
pub(super) fn to_jsonl(path: &Path) -> Result<Vec<u8>> {
    let file = Bytes::from(Input::open(FileKind::KernelParquet, path)?.bytes()?);
    // The parquet crate (60.1) panics on some damaged files. Nothing that it touches outlives the call.
    let read = catch_unwind(AssertUnwindSafe(|| read_rows(file)))
        .unwrap_or_else(|_| Err(ParquetError::General("a page is damaged".to_owned())));
    read.map_err(|error| {
        Error::parse(path, format!("is damaged or not a parquet file of snappy or plain pages: {error}"))
    })?
    .map_err(|problem| Error::parse(path, problem))
}

/// The inner error is a column that cannot be used.
fn read_rows(file: Bytes) -> std::result::Result<std::result::Result<Vec<u8>, String>, ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    let rows = reader.metadata().row_groups().iter().try_fold(0_i64, |sum, group| sum.checked_add(group.num_rows()));
    if rows.is_none_or(|rows| rows > MAX_ROWS) {
        return Err(ParquetError::General(format!("it claims more than {MAX_ROWS} rows")));
    }
    let mut jsonl = Vec::new();
    for row in reader.get_row_iter(None)? {
        let mut object = Map::new();
        for (column, field) in row?.get_column_iter() {
            match text_of(field) {
                Ok(cell) => object.insert(column.clone(), cell),
                Err(kind) => {
                    let expected = "expected a flat column of text, whole numbers or floats";
                    return Ok(Err(format!("column '{column}' holds {kind}; {expected}")));
                }
            };
        }
        jsonl.extend(Value::Object(object).to_string().into_bytes());
        jsonl.push(b'\n');
    }
    Ok(Ok(jsonl))
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
