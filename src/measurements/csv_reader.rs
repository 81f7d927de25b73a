//! Reads one's own measurements: csv files of the columns that the module documentation lists, and `meta.toml` beside
//! them. Uses `error`, `row`, `table`.

use std::path::Path;

use serde::Deserialize;

use super::row::{SourceFile, SourceFormat};
use super::table::{Cells, Table, TextColumn};
use crate::error::{Error, Result};

/// Name of the file that says where the csv files of its folder come from.
pub(super) const META_FILE: &str = "meta.toml";

/// What `meta.toml` may say; every key is optional and any other is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meta {
    framework: Option<String>,
    version: Option<String>,
    device: Option<String>,
    driver: Option<String>,
    date: Option<toml::Value>,
    command: Option<String>,
}

impl Meta {
    /// Reads `meta.toml` of a folder; a folder without one says nothing.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(META_FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Meta::default()),
            Err(error) => return Err(Error::io(path, error)),
        };
        let origin = path.display().to_string();
        let meta: Meta = toml::from_str(&text)
            .map_err(|error| Error::Parse { origin: origin.clone(), message: error.to_string().trim_end().into() })?;
        if matches!(&meta.date, Some(date) if !date.is_str() && !date.is_datetime()) {
            return Err(Error::Parse { origin, message: "date must be a date or a text, as in 2025-01-31".into() });
        }
        Ok(meta)
    }

    /// The source of a csv file.
    pub(super) fn source(&self, file: &str) -> SourceFile {
        SourceFile {
            file: file.into(),
            format: SourceFormat::Csv,
            framework: self.framework.clone(),
            version: self.version.clone(),
            device: self.device.clone(),
            kernel_source: None,
            driver: self.driver.clone(),
            date: self.date.as_ref().map(|date| date.as_str().map_or_else(|| date.to_string(), str::to_owned)),
            command: self.command.clone(),
        }
    }
}

/// Reads a csv file; lines that begin with `#` are skipped and cells are trimmed.
pub(super) fn read(path: &Path) -> Result<Table> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    let origin = path.display().to_string();
    let failed = |error: csv::Error| Error::Parse { origin: origin.clone(), message: describe(&error) };
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(bytes.as_slice());
    let header = reader.headers().map_err(failed)?.clone();
    if header.is_empty() {
        return Err(Error::Parse { origin, message: "is empty: the first line must name the columns".into() });
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

fn describe(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            format!("line {line} has {len} cells, the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { pos, .. } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            format!("line {line} is not UTF-8 text")
        }
        _ => error.to_string(),
    }
}
