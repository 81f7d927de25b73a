//! Rows of an earlier run: read back and checked against the grid, so that their configurations need not run again.
#![expect(clippy::indexing_slicing, reason = "a configuration's number is below their count")]
#![expect(clippy::cast_possible_truncation, reason = "a configuration's number is below their count")]

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ridgepoint::unstable::error::cut;
use ridgepoint::{Error, Result};

use super::row::Row;
use super::row_file::{REMEDY, RowFile};
use super::sweeping::Sweep;

/// Most files of a folder of data that are looked at.
const MAX_FILES: usize = 100_000;

impl Sweep {
    /// The rows that a file has of this grid, by configuration.
    ///
    /// # Errors
    /// A file that cannot be read or holds no rows of a sweep; rows that are of another grid, efficiency, correction, engine or version; input
    /// that is newer than the rows.
    pub fn known(&self, file: &RowFile) -> Result<Vec<Option<Row>>> {
        let described = self.described();
        let mut known = vec![None; described.len()];
        let Ok(written) = file.path.metadata().and_then(|metadata| metadata.modified()) else { return Ok(known) };
        let rows = file.read()?;
        let mut inputs = self.inputs().filter(|_| !rows.is_empty());
        let newer = inputs.find_map(|input| newer(input, written).transpose()).transpose()?;
        if let Some(input) = newer {
            let message = format!("holds rows that are older than {}: {REMEDY}", input.display());
            return Err(Error::parse(file.path.as_path(), message));
        }
        let identity = |row: &Row| (row.settings.clone(), choices(row));
        let places: HashMap<_, _> = described.iter().map(|row| (identity(row), row.configuration)).collect();
        for row in rows {
            let Some(configuration) = places.get(&identity(&row)).copied() else {
                let (at, settings, choices) = (row.configuration, cut(&row.settings), choices(&row));
                let own = described.first().map(self::choices).unwrap_or_default();
                let message = match choices == own {
                    true => {
                        format!("row {at} ({settings}) is not of this sweep, whose grid has no such settings: {REMEDY}")
                    }
                    false => {
                        format!("row {at} ({settings}; {choices}) is not of this sweep, which is of {own}: {REMEDY}")
                    }
                };
                return Err(Error::parse(file.path.as_path(), message));
            };
            if let Some((column, value)) = row.impossible() {
                let at = row.configuration;
                let message =
                    format!("row {at}: column '{column}': found {value}, expected a finite number from 0: {REMEDY}");
                return Err(Error::parse(file.path.as_path(), message));
            }
            known[configuration as usize] = Some(Row { configuration, ..row });
        }
        Ok(known)
    }
}

/// What a row was made with, besides its configuration.
fn choices(row: &Row) -> String {
    let correction = row.correction.as_deref().unwrap_or("none");
    let Row { version, efficiency, serving_engine, .. } = row;
    format!("version {version}, efficiency {efficiency}, correction {correction}, engine {serving_engine}")
}

/// The first file in or at `path` that changed after `time`. Links are followed, and each folder is looked into once.
///
/// # Errors
/// More than [`MAX_FILES`] files.
fn newer(path: &Path, time: SystemTime) -> Result<Option<PathBuf>> {
    let (mut waiting, mut folders, mut files) = (vec![path.to_owned()], HashSet::new(), 0);
    while let Some(next) = waiting.pop() {
        files += 1;
        if files > MAX_FILES {
            return Err(Error::parse(path, format!("holds more than {MAX_FILES} files: is it the right folder?")));
        }
        let Ok(metadata) = next.metadata() else { continue };
        if metadata.is_dir() {
            let is_new = next.canonicalize().is_ok_and(|folder| folders.insert(folder));
            let entries = std::fs::read_dir(&next).ok().filter(|_| is_new);
            waiting.extend(entries.into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if metadata.modified().is_ok_and(|modified| modified > time) {
            return Ok(Some(next));
        }
    }
    Ok(None)
}
