//! Rows of an earlier run: read back and checked against the grid, so that their configurations need not run again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ridgepoint::internals::error::cut;
use ridgepoint::{Error, Result};

use super::row::Row;
use super::row_file::{RowFile, WAY_OUT};
use super::sweeping::Sweep;

impl Sweep {
    /// The rows that a file has of this grid, by configuration.
    ///
    /// # Errors
    /// A file that cannot be read or holds no rows of a sweep; rows that are of another grid, efficiency, correction or version; input
    /// that is newer than the rows.
    pub fn known(&self, file: &RowFile) -> Result<Vec<Option<Row>>> {
        let described = self.described();
        let mut known = vec![None; described.len()];
        let Ok(written) = file.path.metadata().and_then(|metadata| metadata.modified()) else { return Ok(known) };
        let rows = file.read()?;
        if let Some(input) = self.inputs().find_map(|input| newer(input, written)).filter(|_| !rows.is_empty()) {
            let message = format!("holds rows that are older than {}: {WAY_OUT}", input.display());
            return Err(Error::parse(file.path.as_path(), message));
        }
        let identity = |row: &Row| (row.settings.clone(), choices(row));
        let places: HashMap<_, _> = described.iter().map(|row| (identity(row), row.configuration)).collect();
        for row in rows {
            let Some(configuration) = places.get(&identity(&row)).copied() else {
                let (at, settings, choices) = (row.configuration, cut(&row.settings), choices(&row));
                let own = described.first().map(self::choices).unwrap_or_default();
                let message = format!(
                    "row {at} ({settings}; {choices}) is not of this sweep, whose rows are of its grid and of {own}: {WAY_OUT}"
                );
                return Err(Error::parse(file.path.as_path(), message));
            };
            known[configuration as usize] = Some(Row { configuration, ..row });
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
