//! Reads the public kernel tables: flat parquet files, column by column. Uses `error`, `parquet_pages`,
//! `row`, `table`.

use std::path::Path;

use parquet::basic::ConvertedType;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::parquet_pages::checked_column;
use super::row::SourceFormat;
use super::table::{BadCell, Cells, Table, TextColumn};
use ridgepoint::{Error, Result};

/// Rows decoded at a time, so that a damaged header can't ask for more memory than the file can fill.
const BATCH_ROWS: usize = 65_536;

/// Reads all columns of a file. A cell without a value is an error.
pub(super) fn read(path: &Path) -> Result<Table> {
    let file = std::fs::File::open(path).map_err(|error| Error::io(path, error))?;
    let file_bytes = file.metadata().map_err(|error| Error::io(path, error))?.len();
    let origin = path.display().to_string();
    let failed = |error: ParquetError| {
        Error::parse(origin.clone(), format!("is damaged or not a parquet file of snappy or plain pages: {error}"))
    };
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let mut table = Table {
        origin: origin.clone(),
        format: SourceFormat::Parquet,
        num_rows: 0,
        columns: Vec::with_capacity(schema.num_columns()),
        lines: Vec::new(),
    };
    for (index, descriptor) in schema.columns().iter().enumerate() {
        let name = descriptor.path().string();
        let unreadable = |what: String| {
            Error::parse(
                origin.clone(),
                format!("column '{name}' {what}; expected a flat column of text, whole numbers or floats"),
            )
        };
        if descriptor.max_rep_level() > 0 || descriptor.path().parts().len() != 1 {
            return Err(unreadable("is nested".into()));
        }
        if !is_plain(descriptor.converted_type()) {
            return Err(unreadable(format!("holds {}", descriptor.converted_type())));
        }
        let mut cells: Option<Cells> = None;
        for group in 0..reader.num_row_groups() {
            let row_group = reader.get_row_group(group).map_err(failed)?;
            let column = checked_column(row_group.as_ref(), index, file_bytes).map_err(failed)?;
            let first_row = cells.as_ref().map_or(0, Cells::len);
            append(&mut cells, column).map_err(|problem| match problem {
                Unreadable::File(error) => failed(error),
                Unreadable::Kind => unreadable(format!("holds {}", descriptor.physical_type())),
                Unreadable::Utf8(row) => table.bad_row(BadCell::new(first_row + row, &name, "bytes", "UTF-8 text")),
                Unreadable::Missing(row) => table.bad_row(BadCell::new(first_row + row, &name, "nothing", "a value")),
            })?;
        }
        let cells = cells.unwrap_or_else(|| Cells::Integer(Vec::new()));
        if index == 0 {
            table.num_rows = cells.len();
        } else if cells.len() != table.num_rows {
            let message = format!("column '{name}' has {} rows, the first column {}", cells.len(), table.num_rows);
            return Err(Error::parse(origin, message));
        }
        table.columns.push((name, cells));
    }
    Ok(table)
}

/// Why a column can't be read; a row counts from the first of its row group.
enum Unreadable {
    File(ParquetError),
    Kind,
    Utf8(usize),
    Missing(usize),
}

impl From<ParquetError> for Unreadable {
    fn from(error: ParquetError) -> Self {
        Unreadable::File(error)
    }
}

/// Numbers and text that mean what they say, unlike dates and decimals.
fn is_plain(converted: ConvertedType) -> bool {
    matches!(
        converted,
        ConvertedType::NONE
            | ConvertedType::UTF8
            | ConvertedType::ENUM
            | ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64
            | ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
    )
}

/// Adds the cells of one row group.
fn append(cells: &mut Option<Cells>, column: ColumnReader) -> std::result::Result<(), Unreadable> {
    match column {
        ColumnReader::Int32ColumnReader(reader) => integers(cells, reader, i64::from),
        ColumnReader::Int64ColumnReader(reader) => integers(cells, reader, |value| value),
        ColumnReader::FloatColumnReader(reader) => floats(cells, reader, f64::from),
        ColumnReader::DoubleColumnReader(reader) => floats(cells, reader, |value| value),
        ColumnReader::ByteArrayColumnReader(reader) => {
            let Cells::Text(text) = cells.get_or_insert_with(|| Cells::Text(TextColumn::default())) else {
                return Err(Unreadable::Kind);
            };
            each(reader, |row, value: ByteArray| {
                text.push(std::str::from_utf8(value.data()).map_err(|_| Unreadable::Utf8(row))?);
                Ok(())
            })
        }
        _ => Err(Unreadable::Kind),
    }
}

fn integers<T: DataType>(
    cells: &mut Option<Cells>,
    reader: ColumnReaderImpl<T>,
    widen: impl Fn(T::T) -> i64,
) -> std::result::Result<(), Unreadable> {
    let Cells::Integer(values) = cells.get_or_insert_with(|| Cells::Integer(Vec::new())) else {
        return Err(Unreadable::Kind);
    };
    each(reader, |_, value| {
        values.push(widen(value));
        Ok(())
    })
}

fn floats<T: DataType>(
    cells: &mut Option<Cells>,
    reader: ColumnReaderImpl<T>,
    widen: impl Fn(T::T) -> f64,
) -> std::result::Result<(), Unreadable> {
    let Cells::Float(values) = cells.get_or_insert_with(|| Cells::Float(Vec::new())) else {
        return Err(Unreadable::Kind);
    };
    each(reader, |_, value| {
        values.push(widen(value));
        Ok(())
    })
}

/// Calls `take` with every value of one row group's column.
fn each<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    mut take: impl FnMut(usize, T::T) -> std::result::Result<(), Unreadable>,
) -> std::result::Result<(), Unreadable> {
    let mut row = 0;
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    loop {
        values.clear();
        levels.clear();
        let (records, num_values, _) = reader.read_records(BATCH_ROWS, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            return Ok(());
        }
        if num_values != records {
            let missing = levels.iter().position(|level| *level == 0).unwrap_or(0);
            return Err(Unreadable::Missing(row + missing));
        }
        for value in values.drain(..) {
            take(row, value)?;
            row += 1;
        }
    }
}
