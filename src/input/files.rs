//! Lists the data files that are built into the library, and those in a folder of the user.

use std::path::{Path, PathBuf};

use include_dir::Dir;

use crate::error::{Error, Result};

/// Returns name (without extension) and text of the built-in files with this extension, sorted by name.
pub(crate) fn embedded(dir: &Dir<'static>, extension: &str) -> Vec<(&'static str, &'static str)> {
    let files = dir.files().filter(|file| has_extension(file.path(), extension));
    let mut found: Vec<_> =
        files.filter_map(|file| Some((file.path().file_stem()?.to_str()?, file.contents_utf8()?))).collect();
    found.sort_unstable();
    found
}

/// Returns the regular files with this extension in a folder of `data_dir`, sorted; none without the folder. Pipes, on which a reader would
/// wait, are left out.
///
/// # Errors
/// `ErrorKind::Io` for a folder that can't be read.
pub fn files_in(data_dir: Option<&Path>, folder: &str, extension: &str) -> Result<Vec<PathBuf>> {
    let Some(dir) = data_dir.map(|dir| dir.join(folder)).filter(|dir| dir.is_dir()) else { return Ok(Vec::new()) };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&dir)
        .and_then(|files| files.map(|file| Ok(file?.path())).collect())
        .map_err(|error| Error::io(&dir, error))?;
    paths.retain(|path| has_extension(path, extension) && path.is_file());
    paths.sort();
    Ok(paths)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}
