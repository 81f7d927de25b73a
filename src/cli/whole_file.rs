//! Files that a reader sees whole or not at all: written under another name in the same folder, then renamed.

use std::fs::File;
use std::path::{Path, PathBuf};

use ridgepoint::{Error, Result};

/// A file that is not there yet. Dropped before [`WholeFile::keep`], it leaves nothing behind.
pub struct WholeFile {
    path: PathBuf,
    temporary: PathBuf,
    is_kept: bool,
}

impl WholeFile {
    /// Opens the file under its temporary name.
    ///
    /// # Errors
    /// [`Error::Io`] with the file's own path where the folder is not there or can't be written to.
    pub fn create(path: &Path) -> Result<(Self, File)> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        if path.is_dir() || name.is_empty() {
            return Err(Error::io(path, std::io::Error::other("is a folder; give the path of a file")));
        }
        let file = File::create(&temporary).map_err(|error| Error::io(path, error))?;
        Ok((WholeFile { path: path.to_owned(), temporary, is_kept: false }, file))
    }

    /// Gives the file its name, if it was written without an error.
    ///
    /// # Errors
    /// [`Error::Io`] with the file's own path.
    pub fn keep<T>(mut self, written: std::io::Result<T>) -> Result<T> {
        let kept = written.and_then(|value| std::fs::rename(&self.temporary, &self.path).map(|()| value));
        self.is_kept = kept.is_ok();
        kept.map_err(|error| Error::io(&self.path, error))
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a whole text.
///
/// # Errors
/// [`Error::Io`].
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let (file, mut out) = WholeFile::create(path)?;
    file.keep(std::io::Write::write_all(&mut out, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_not_finished_leaves_nothing_behind_and_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.csv");
        write_whole(&path, "old").unwrap();
        let (file, _) = WholeFile::create(&path).unwrap();
        let failed: std::io::Result<()> = Err(std::io::Error::other("disk full"));
        assert!(file.keep(failed).unwrap_err().to_string().contains("result.csv: disk full"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(WholeFile::create(folder.path()).is_err());
    }
}
