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
use super::shard::Shard;
use super::sweeping::Sweep;

/// Most files of a folder of data that are looked at.
const MAX_FILES: usize = 100_000;

/// Where the rows of a sweep belong.
pub(super) struct Places {
    /// The configuration of a row's settings and choices.
    by_identity: HashMap<(String, String), u64>,
    /// The choices of the sweep.
    own: String,
}

impl Places {
    pub(super) fn new(sweep: &Sweep) -> Self {
        let described = sweep.described();
        let own = described.first().map(choices).unwrap_or_default();
        let by_identity = described.into_iter().map(|row| (identity(&row), row.configuration)).collect();
        Places { by_identity, own }
    }
}

/// Settings and choices of a row; they identify it in any file.
fn identity(row: &Row) -> (String, String) {
    (row.settings.clone(), choices(row))
}

impl Sweep {
    /// The rows that a file has of this sweep, by configuration of the grid.
    ///
    /// # Errors
    /// A file that cannot be read or holds no rows of a sweep; rows that are of another grid, shard, efficiency, correction, engine or
    /// version; input that is newer than the rows.
    pub fn known(&self, file: &RowFile) -> Result<Vec<Option<Row>>> {
        let mut known = vec![None; self.grid().num_configurations()];
        for row in self.rows_of(file, &Places::new(self), REMEDY)?.into_iter().flatten() {
            let configuration = row.configuration as usize;
            known[configuration] = Some(row);
        }
        Ok(known)
    }

    /// The rows of a file, with their configurations in this grid; `None` if there is no file. `remedy` ends the messages.
    ///
    /// # Errors
    /// Those of [`Sweep::known`].
    pub(super) fn rows_of(&self, file: &RowFile, places: &Places, remedy: &str) -> Result<Option<Vec<Row>>> {
        let Ok(written) = file.path.metadata().and_then(|metadata| metadata.modified()) else { return Ok(None) };
        let rows = file.read()?;
        let mut inputs = self.inputs().filter(|_| !rows.is_empty());
        let newer = inputs.find_map(|input| newer(input, written).transpose()).transpose()?;
        if let Some(input) = newer {
            let message = format!("holds rows that are older than {}: {remedy}", input.display());
            return Err(Error::parse(file.path.as_path(), message));
        }
        self.placed(&file.path, rows, places, remedy).map(Some)
    }

    /// Rows with their configurations in this grid. Messages call their source `name`.
    ///
    /// # Errors
    /// Those of [`Sweep::known`] about rows.
    pub(super) fn placed(&self, name: &Path, rows: Vec<Row>, places: &Places, remedy: &str) -> Result<Vec<Row>> {
        let placed = |row: Row| {
            let (at, settings) = (row.configuration, cut(&row.settings));
            let fault = |said: String| Err(Error::parse(name, format!("row {at}{said}: {remedy}")));
            let Some(configuration) = places.by_identity.get(&identity(&row)).copied() else {
                let (choices, own) = (choices(&row), &places.own);
                return fault(match choices == *own {
                    true => format!(" ({settings}) is not of this sweep, whose grid has no such settings"),
                    false => format!(" ({settings}; {choices}) is not of this sweep, which is of {own}"),
                });
            };
            if let Some(run) = self.shard().filter(|_| !self.runs(configuration as usize)) {
                let other = Shard::holding(self.grid(), configuration as usize, run.of());
                let other = other.map(|shard| format!(" but of shard {shard}")).unwrap_or_default();
                return fault(format!(" ({settings}) is not of shard {run}{other}"));
            }
            if let Some((column, value)) = row.impossible() {
                return fault(format!(": column '{column}': found {value}, expected a finite number from 0"));
            }
            Ok(Row { configuration, ..row })
        };
        rows.into_iter().map(placed).collect()
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
