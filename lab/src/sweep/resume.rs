//! Rows of an earlier run: read back, checked against the grid, and appended to as configurations finish.
//!
//! While a sweep runs, all its rows are in a file of JSON lines beside the output, those of the earlier run first. Each row is
//! appended in one write, so a run that is killed loses at most the row being written.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use ridgepoint::internals::error::cut;
use ridgepoint::{Error, Result};

use super::row::Row;
use super::sweeping::Sweep;

/// The rows of an unfinished run.
#[derive(Debug)]
pub struct PartialRows {
    path: PathBuf,
    file: Mutex<File>,
}

impl PartialRows {
    /// The path of the unfinished rows of an output: `results.csv.partial` of `results.csv`.
    pub fn path_of(output: &Path) -> PathBuf {
        let mut name = output.as_os_str().to_owned();
        name.push(".partial");
        PathBuf::from(name)
    }

    /// Starts the unfinished rows of an output with those of an earlier run.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(output: &Path, rows: &[Option<Row>]) -> Result<Self> {
        let path = Self::path_of(output);
        let io = |error| Error::io(&path, error);
        let mut text = Vec::new();
        for row in rows.iter().flatten() {
            text.extend(line(row).map_err(io)?);
        }
        let temporary = path.with_extension("partial.tmp");
        std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, &path)).map_err(io)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(io)?;
        Ok(PartialRows { file: Mutex::new(file), path })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn append(&self, row: &Row) -> Result<()> {
        let io = |error| Error::io(&self.path, error);
        let line = line(row).map_err(io)?;
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line).map_err(io)
    }

    /// Removes the file, once its rows are in the output.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|error| Error::io(&self.path, error))
    }
}

fn line(row: &Row) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(row)?;
    line.push(b'\n');
    Ok(line)
}

impl Sweep {
    /// The rows of an earlier run of this grid by configuration: its unfinished rows if there are any, else those of the output.
    ///
    /// # Errors
    /// A file that cannot be read or holds no rows of a sweep; rows that are of another grid, efficiency, correction or version; input
    /// that is newer than the rows.
    pub fn known(&self, output: &Path) -> Result<Vec<Option<Row>>> {
        let mut known = vec![None; self.grid().len()];
        let described = self.described();
        let of_settings: HashMap<&str, &Row> = described.iter().map(|row| (row.settings.as_str(), row)).collect();
        let partial = PartialRows::path_of(output);
        let path = if partial.exists() { partial.as_path() } else { output };
        let Ok(metadata) = path.metadata() else { return Ok(known) };
        if metadata.len() > 0 {
            self.check_inputs(path, metadata.modified().map_err(|error| Error::io(path, error))?)?;
        }
        for row in read_rows(path)? {
            let Some(asked) = of_settings.get(row.settings.as_str()) else {
                return Err(mismatch(path, &row, "its configuration is not in the grid"));
            };
            let choices = |row: &Row| (row.version.clone(), row.efficiency.clone(), row.correction.clone());
            if choices(asked) != choices(&row) {
                let told = |row: &Row| {
                    let correction = row.correction.as_deref().unwrap_or("none");
                    format!("version {}, efficiency {}, correction {correction}", row.version, row.efficiency)
                };
                let reason = format!("it was made with {}, this run has {}", told(&row), told(asked));
                return Err(mismatch(path, &row, &reason));
            }
            let at = asked.configuration;
            if let Some(known) = usize::try_from(at).ok().and_then(|at| known.get_mut(at)) {
                *known = Some(Row { configuration: at, ..row });
            }
        }
        Ok(known)
    }

    /// Refuses rows that are older than the files they depend on.
    fn check_inputs(&self, path: &Path, rows: SystemTime) -> Result<()> {
        match self.inputs().into_iter().find_map(|input| newer(input, rows)) {
            Some(input) => {
                Err(Error::parse(path, format!("holds rows that are older than {}: {WAY_OUT}", input.display())))
            }
            None => Ok(()),
        }
    }
}

const WAY_OUT: &str = "start anew, or write to another file";

fn mismatch(path: &Path, row: &Row, reason: &str) -> Error {
    let settings = cut(&row.settings);
    Error::parse(path, format!("row {} ({settings}) is not of this sweep: {reason}; {WAY_OUT}", row.configuration))
}

/// The first file in or at `path` that changed after `time`.
fn newer(path: &Path, time: SystemTime) -> Option<PathBuf> {
    let metadata = path.metadata().ok()?;
    if metadata.is_dir() {
        let entries = std::fs::read_dir(path).ok()?;
        return entries.flatten().find_map(|entry| newer(&entry.path(), time));
    }
    (metadata.modified().ok()? > time).then(|| path.to_owned())
}

/// The rows of a file, by its ending: csv, a JSON list, or JSON lines, of which a half-written last one is left out.
fn read_rows(path: &Path) -> Result<Vec<Row>> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let fault =
        |error: &dyn std::fmt::Display| Error::parse(path, format!("is no table of a sweep: {error}; {WAY_OUT}"));
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    match ending.as_deref() {
        Some("csv") => csv::Reader::from_reader(text.as_bytes())
            .deserialize()
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| fault(&error)),
        Some("json") => serde_json::from_str(&text).map_err(|error| fault(&error)),
        _ => {
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            let rows = whole.lines().map(serde_json::from_str::<Row>);
            rows.collect::<std::result::Result<_, _>>().map_err(|error| fault(&error))
        }
    }
}
