//! Reads one's own measurements: csv files of the columns that the module documentation lists. Uses `csv_error`,
//! `error`, `row`, `table`.

use std::path::Path;

use super::row::SourceFormat;
use super::table::{Cells, Table, TextColumn};
use ridgepoint::internals::input::csv_error;
use ridgepoint::{Error, Result};

/// Reads a csv file; lines that begin with `#` are skipped and cells are trimmed.
pub(super) fn read(path: &Path) -> Result<Table> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    let origin = path.display().to_string();
    let failed = |error: csv::Error| csv_error(&origin, error);
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(bytes.as_slice());
    let header = reader.headers().map_err(failed)?.clone();
    if header.is_empty() {
        return Err(Error::parse(origin, "is empty: the first line must name the columns"));
    }
    let mut columns: Vec<TextColumn> = header.iter().map(|_| TextColumn::default()).collect();
    let mut lines = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(failed)? {
        lines.push(record.position().map_or(0, csv::Position::line));
        for (column, cell) in columns.iter_mut().zip(&record) {
            column.push(cell);
        }
    }
    Ok(Table {
        origin,
        format: SourceFormat::Csv,
        num_rows: lines.len(),
        columns: header.iter().map(str::to_owned).zip(columns.into_iter().map(Cells::Text)).collect(),
        lines,
    })
}
