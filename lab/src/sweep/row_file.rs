//! Files of rows: csv, a JSON list or JSON lines, by the ending of their name.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ridgepoint::{Error, Result};

use super::row::Row;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Json,
    JsonLines,
}

/// A file of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFile {
    /// Its path.
    pub path: PathBuf,
    format: Format,
}

impl RowFile {
    /// The file at `path`, in the format that its name ends with.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for an ending other than `.csv`, `.json` and `.jsonl`.
    pub fn new(path: &Path) -> Result<Self> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let format = match ending.as_deref() {
            Some("csv") => Format::Csv,
            Some("json") => Format::Json,
            Some("jsonl") => Format::JsonLines,
            _ => {
                let name = path.display().to_string();
                return Err(Error::invalid_argument("out", name, "must end in .csv, .json or .jsonl"));
            }
        };
        Ok(RowFile { path: path.to_owned(), format })
    }

    /// The unfinished rows of this file, JSON lines: `results.csv.partial` of `results.csv`.
    pub(super) fn partial(&self) -> Self {
        let mut path = self.path.clone().into_os_string();
        path.push(".partial");
        RowFile { path: path.into(), format: Format::JsonLines }
    }

    /// Writes rows in the file's format. An absent value is an empty cell or null. Numbers have as many digits as it takes to
    /// read the same number back.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, mut out: impl Write, rows: &[Row]) -> io::Result<()> {
        match self.format {
            Format::Csv => {
                let mut lines = csv::Writer::from_writer(&mut out);
                rows.iter().try_for_each(|row| lines.serialize(row))?;
                lines.flush()?;
            }
            Format::Json => {
                serde_json::to_writer_pretty(&mut out, rows)?;
                out.write_all(b"\n")?;
            }
            Format::JsonLines => rows.iter().try_for_each(|row| out.write_all(&line(row)?))?,
        }
        out.flush()
    }

    /// Reads the rows back. A last JSON line that is cut off is left out.
    ///
    /// # Errors
    /// A file that cannot be read, or that holds anything else.
    pub(super) fn read(&self) -> Result<Vec<Row>> {
        let text = std::fs::read_to_string(&self.path).map_err(|error| Error::io(&self.path, error))?;
        let rows = match self.format {
            Format::Csv => csv::Reader::from_reader(text.as_bytes())
                .deserialize()
                .collect::<std::result::Result<_, _>>()
                .map_err(|error| error.to_string()),
            Format::Json => serde_json::from_str(&text).map_err(|error| error.to_string()),
            Format::JsonLines => {
                let whole = text.rfind('\n').map_or("", |end| &text[..end]);
                whole
                    .lines()
                    .map(serde_json::from_str)
                    .collect::<std::result::Result<_, _>>()
                    .map_err(|error: serde_json::Error| error.to_string())
            }
        };
        rows.map_err(|error| Error::parse(self.path.as_path(), format!("is no table of a sweep: {error}; {WAY_OUT}")))
    }
}

/// What to do about a file whose rows cannot be kept.
pub(super) const WAY_OUT: &str = "start anew, or write to another file";

/// A row as a JSON line.
pub(super) fn line(row: &Row) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(row)?;
    line.push(b'\n');
    Ok(line)
}

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
            file.write(std::fs::File::create(&file.path).unwrap(), &rows).unwrap();
            assert_eq!(file.read().unwrap(), rows);
        }
    }

    #[test]
    fn other_endings_are_refused() {
        for name in ["results", "results.xlsx", ".csv", "results."] {
            let error = RowFile::new(Path::new(name)).unwrap_err().to_string();
            assert!(error.contains(&format!("'{name}' must end in .csv")), "{error}");
        }
    }
}
