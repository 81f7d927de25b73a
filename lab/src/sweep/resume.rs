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
use super::row_file::{RowFile, WAY_OUT, line};
use super::sweeping::Sweep;

/// The rows of an unfinished run.
#[derive(Debug)]
pub struct PartialRows {
    path: PathBuf,
    file: Mutex<File>,
}

impl PartialRows {
    /// Starts the unfinished rows of an output with those of an earlier run.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(output: &RowFile, known: &[Option<Row>]) -> Result<Self> {
        let partial = output.partial();
        let temporary = partial.path.with_extension("partial.tmp");
        let rows: Vec<Row> = known.iter().flatten().cloned().collect();
        let create = || {
            partial.write(File::create(&temporary)?, &rows)?;
            std::fs::rename(&temporary, &partial.path)?;
            OpenOptions::new().append(true).open(&partial.path)
        };
        let file = create().map_err(|error| Error::io(&partial.path, error))?;
        Ok(PartialRows { path: partial.path, file: Mutex::new(file) })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn append(&self, row: &Row) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        line(row).and_then(|line| file.write_all(&line)).map_err(|error| Error::io(&self.path, error))
    }

    /// Removes the file, once its rows are in the output.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|error| Error::io(&self.path, error))
    }
}

impl Sweep {
    /// The rows of an earlier run of this grid by configuration: its unfinished rows if there are any, else those of the output.
    ///
    /// # Errors
    /// A file that cannot be read or holds no rows of a sweep; rows that are of another grid, efficiency, correction or version; input
    /// that is newer than the rows.
    pub fn known(&self, output: &RowFile) -> Result<Vec<Option<Row>>> {
        let described = self.described();
        let mut known = vec![None; described.len()];
        let partial = output.partial();
        let file = if partial.path.exists() { &partial } else { output };
        let Ok(written) = file.path.metadata().and_then(|metadata| metadata.modified()) else { return Ok(known) };
        let rows = file.read()?;
        if let Some(input) = self.inputs().find_map(|input| newer(input, written)).filter(|_| !rows.is_empty()) {
            let message = format!("holds rows that are older than {}: {WAY_OUT}", input.display());
            return Err(Error::parse(file.path.as_path(), message));
        }
        let of_settings: HashMap<&str, &Row> = described.iter().map(|row| (row.settings.as_str(), row)).collect();
        for row in rows {
            let refused = |reason: &str| {
                let settings = cut(&row.settings);
                let row = row.configuration;
                Error::parse(
                    file.path.as_path(),
                    format!("row {row} ({settings}) is not of this sweep: {reason}; {WAY_OUT}"),
                )
            };
            let Some(asked) = of_settings.get(row.settings.as_str()) else {
                return Err(refused("its configuration is not in the grid"));
            };
            if choices(asked) != choices(&row) {
                let reason = format!("it was made with {}, this run has {}", choices(&row), choices(asked));
                return Err(refused(&reason));
            }
            if let Some(known) = known.get_mut(asked.configuration as usize) {
                *known = Some(Row { configuration: asked.configuration, ..row });
            }
        }
        Ok(known)
    }
}

/// What a row was made with, besides its configuration.
fn choices(row: &Row) -> String {
    let correction = row.correction.as_deref().unwrap_or("none");
    format!("version {}, efficiency {}, correction {correction}", row.version, row.efficiency)
}

/// The first file in or at `path` that changed after `time`.
fn newer(path: &Path, time: SystemTime) -> Option<PathBuf> {
    let metadata = path.metadata().ok()?;
    if metadata.is_dir() {
        return std::fs::read_dir(path).ok()?.flatten().find_map(|entry| newer(&entry.path(), time));
    }
    (metadata.modified().ok()? > time).then(|| path.to_owned())
}
