//! The folders that `calibrate` reads: whether they are measurements at all, and of the GPU that was named.

use ridgepoint::ErrorKind;
use std::path::{Path, PathBuf};

use ridgepoint::Hardware;
use ridgepoint_lab::calibrate::rows::Rows;
use ridgepoint_lab::measurements::Measurements;

use crate::outcome::Failure;

/// Rows of some folders, with remarks on what was read.
pub struct Folders {
    /// Rows, placed on the tables' grids.
    pub rows: Rows,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Reads `dirs`, all of which must be of `hardware`; every folder's problem is reported.
///
/// # Errors
/// A folder that can't be read, is no measurement or of another GPU.
pub fn load(dirs: &[PathBuf], hardware: &Hardware, data_dir: Option<&Path>) -> Result<Folders, Failure> {
    let mut all = Measurements::default();
    let mut notes = Vec::new();
    let mut problems = Vec::new();
    for dir in dirs {
        match load_one(dir, hardware, data_dir, &mut notes) {
            Ok(measurements) => {
                notes.extend(measurements.notes.iter().cloned());
                all.append(measurements);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        Ok(Folders { rows: Rows::from_measurements(&all), notes })
    } else {
        Err(Failure::Input(problems))
    }
}

fn load_one(
    dir: &Path,
    hardware: &Hardware,
    data_dir: Option<&Path>,
    notes: &mut Vec<String>,
) -> Result<Measurements, String> {
    let measurements = Measurements::load(dir).map_err(|error| error.to_string())?;
    if measurements.devices().is_empty() {
        notes.push(format!("{}: does not say which GPU was measured; taken for {}", dir.display(), hardware.name));
    }
    for device in measurements.devices() {
        match Hardware::find_in(data_dir, device) {
            Ok(measured) if measured.name == hardware.name => {}
            Ok(measured) => {
                return Err(format!(
                    "{}: measured on '{device}', which is {}, not {}; use --hardware {} or other measurements",
                    dir.display(),
                    &measured.name,
                    &hardware.name,
                    &measured.name
                ));
            }
            Err(error) if error.kind() == ErrorKind::UnknownHardware => {
                notes.push(format!(
                    "{}: measured on '{device}', which no hardware file lists; taken for {}",
                    dir.display(),
                    &hardware.name
                ));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(measurements)
}

/// A folder's own name, which says what was measured without saying on whose disk.
pub fn folder_name(dir: &Path) -> String {
    let full = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    full.file_name().map_or_else(|| ".".to_owned(), |name| name.to_string_lossy().into_owned())
}
