//! What a configuration's result depends on, as a hash: results of an earlier run are kept where it is the same. Uses nothing
//! of the crate.

use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use ridgepoint::{Error, Result};

/// SHA-256 in hexadecimal digits of `parts`, each with its length before it.
pub(super) fn sha256<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut hex = String::new();
    for byte in hasher.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The hash of a file's bytes.
///
/// # Errors
/// `ErrorKind::Io`.
pub(super) fn of_file(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    Ok(sha256([bytes.as_slice()]))
}

/// The hash of all files below a folder, with their places in it; of nothing where it is not there.
///
/// # Errors
/// `ErrorKind::Io`.
pub(super) fn of_folder(folder: &Path) -> Result<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop().filter(|folder| folder.is_dir()) {
        for entry in std::fs::read_dir(&folder).map_err(|error| Error::io(&folder, error))? {
            let path = entry.map_err(|error| Error::io(&folder, error))?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    let mut parts = Vec::new();
    for path in found {
        let place = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
        parts.push(place + " " + &of_file(&path)?);
    }
    Ok(sha256(parts.iter().map(String::as_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let of = |parts: &[&str]| sha256(parts.iter().map(|part| part.as_bytes()));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        // printf '\1\0\0\0\0\0\0\0a' | sha256sum
        assert_eq!(of(&["a"]), "ae6121c88ba555f64c3d812123eb799d128015541f850c5e9bf1d54c08ad8481");
    }

    #[test]
    fn a_folder_is_its_files_and_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let (none, missing) = (of_folder(folder.path()).unwrap(), of_folder(&folder.path().join("x")).unwrap());
        assert_eq!(none, missing);
        std::fs::create_dir(folder.path().join("h100")).unwrap();
        std::fs::write(folder.path().join("h100/gemm.csv"), "1").unwrap();
        let one = of_folder(folder.path()).unwrap();
        std::fs::write(folder.path().join("h100/gemm.csv"), "2").unwrap();
        let other = of_folder(folder.path()).unwrap();
        std::fs::rename(folder.path().join("h100/gemm.csv"), folder.path().join("gemm.csv")).unwrap();
        let moved = of_folder(folder.path()).unwrap();
        assert!(none != one && one != other && other != moved);
    }
}
