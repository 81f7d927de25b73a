//! The folders that `calibrate` reads: whether they are measurements at all, and of the GPU that was named.

use std::path::{Path, PathBuf};

use ridgepoint::{Error, ErrorKind, Hardware};
use ridgepoint_lab::calibrate::exclusions::Exclusions;
use ridgepoint_lab::calibrate::rows::Rows;
use ridgepoint_lab::measurements::Measurements;

use crate::outcome::Failure;

/// Reads `dirs`, all of which must be of `hardware`, into rows and remarks; every folder's problem is reported.
///
/// # Errors
/// A folder that can't be read, is no measurement or of another GPU.
pub fn load(dirs: &[PathBuf], hardware: &Hardware, data_dir: Option<&Path>) -> Result<(Rows, Vec<String>), Failure> {
    let (mut all, mut notes, mut errors) = (Measurements::default(), Vec::new(), Vec::new());
    for dir in dirs {
        match load_one(dir, hardware, data_dir, &mut notes) {
            Ok(measurements) => all.append(measurements),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors.into());
    }
    notes.append(&mut all.notes);
    Ok((Rows::from_measurements(&all, hardware, &Exclusions::find(data_dir)?)?, notes))
}

fn load_one(
    dir: &Path,
    hardware: &Hardware,
    data_dir: Option<&Path>,
    notes: &mut Vec<String>,
) -> ridgepoint::Result<Measurements> {
    let measurements = Measurements::load(dir)?;
    let mut assume = |fault: &str| notes.push(format!("{}: {fault}; taken for {}", dir.display(), hardware.name));
    if measurements.devices().is_empty() {
        assume("does not say which GPU was measured");
    }
    for device in measurements.devices() {
        match ridgepoint_replay::find_hardware(data_dir, device) {
            Ok(Hardware { name, .. }) if name != hardware.name => {
                let expected = &hardware.name;
                return Err(Error::invalid(
                    dir,
                    vec![format!(
                        "measured on '{device}', which is {name}, not {expected}; use --hardware {name} or other measurements"
                    )],
                ));
            }
            Err(error) if error.kind() == ErrorKind::UnknownHardware => {
                assume(&format!("measured on '{device}', which no hardware file lists"));
            }
            found => drop(found?),
        }
    }
    Ok(measurements)
}
