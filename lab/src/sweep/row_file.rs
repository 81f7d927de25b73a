//! Files of rows: csv, a JSON list or JSON lines, by the ending of their name.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ridgepoint::input::{FileKind, Input};
use ridgepoint::{Error, Result};

use super::row::Row;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowFileFormat {
    Csv,
    Json,
    JsonLines,
}

/// A file of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFile {
    /// Its path.
    pub path: PathBuf,
    format: RowFileFormat,
}

impl RowFile {
    /// The file at `path`, in the format that its name ends with.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for an ending other than `.csv`, `.json` and `.jsonl`.
    pub fn new(path: &Path) -> Result<Self> {
        RowFile::of_argument("out", path)
    }

    /// The same of an argument with another name.
    ///
    /// # Errors
    /// Those of [`RowFile::new`].
    pub fn of_argument(argument: &str, path: &Path) -> Result<Self> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let format = match ending.as_deref() {
            Some("csv") => RowFileFormat::Csv,
            Some("json") => RowFileFormat::Json,
            Some("jsonl") => RowFileFormat::JsonLines,
            _ => {
                let name = path.display().to_string();
                return Err(Error::invalid_argument(argument, name, "must end in .csv, .json or .jsonl"));
            }
        };
        Ok(RowFile { path: path.to_owned(), format })
    }

    /// Writes rows in the file's format. An absent value is an empty cell or null. Numbers have as many digits as it takes to
    /// read the same number back.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, mut out: impl Write, rows: &[Row]) -> io::Result<()> {
        match self.format {
            RowFileFormat::Csv => {
                let mut lines = csv::Writer::from_writer(&mut out);
                rows.iter().try_for_each(|row| lines.serialize(row))?;
                lines.flush()?;
                drop(lines);
                if rows.is_empty() {
                    out.write_all(&header())?;
                }
            }
            RowFileFormat::Json => {
                serde_json::to_writer_pretty(&mut out, rows)?;
                out.write_all(b"\n")?;
            }
            RowFileFormat::JsonLines => {
                for row in rows {
                    serde_json::to_writer(&mut out, row)?;
                    out.write_all(b"\n")?;
                }
            }
        }
        out.flush()
    }

    /// Reads the rows back.
    ///
    /// # Errors
    /// A file that cannot be read, or that holds anything else.
    pub(super) fn read(&self) -> Result<Vec<Row>> {
        let fault =
            |error: &dyn Display| Error::parse(&*self.path, format!("is no table of a sweep: {error}; {REMEDY}"));
        let file = Input::open(FileKind::SweepTable, &self.path)?.stream();
        match self.format {
            RowFileFormat::Csv => {
                let rows = csv::Reader::from_reader(file).into_deserialize();
                rows.collect::<std::result::Result<_, _>>().map_err(|error: csv::Error| fault(&error))
            }
            RowFileFormat::Json => serde_json::from_reader(file).map_err(|error| fault(&error)),
            RowFileFormat::JsonLines => {
                let rows = serde_json::Deserializer::from_reader(file).into_iter();
                rows.collect::<serde_json::Result<_>>().map_err(|error| fault(&error))
            }
        }
    }
}

/// The first line of a csv file. The writer makes it of a first row alone.
fn header() -> Vec<u8> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    let written = lines.serialize(Row::default()).ok().and_then(|()| lines.into_inner().ok()).unwrap_or_default();
    written.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default().to_vec()
}

/// What to do about a file whose rows cannot be kept.
pub(super) const REMEDY: &str = "start anew (fresh), or write to another file";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_reads_back_as_it_was() {
        let first = Row { status: "ok".to_owned(), model: "a,\"b\"".to_owned(), gpus: 2, ..Row::default() };
        let second =
            Row { ttft_p99_ms: Some(0.1), enable_prefix_caching: Some(true), keeps_up: Some(false), ..first.clone() };
        let rows = [first, second];
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.csv", "b.JSON", "c.x.jsonl"] {
            let file = RowFile::new(&folder.path().join(name)).unwrap();
            for rows in [&rows[..], &[]] {
                file.write(std::fs::File::create(&file.path).unwrap(), rows).unwrap();
                assert_eq!(file.read().unwrap(), rows);
            }
        }
        let header = std::fs::read_to_string(folder.path().join("a.csv")).unwrap();
        assert!(
            header.starts_with("configuration,status,reason,") && header.ends_with(",settings,version\n"),
            "{header}"
        );
    }

    #[test]
    fn other_endings_are_refused() {
        for name in ["results", "results.xlsx", ".csv", "results."] {
            let error = RowFile::new(Path::new(name)).unwrap_err().to_string();
            assert!(error.contains(&format!("'{name}' must end in .csv")), "{error}");
        }
    }
}
