//! Output files that a reader sees complete or not at all: written under a temporary name in the same folder, then renamed.
//! Devices and pipes are written in place.

use std::fs::File;
use std::io::{Error as IoError, Write};
use std::path::{Path, PathBuf};

use ridgepoint::{Error, Result};
use tempfile::NamedTempFile;

/// A file that does not have its name yet. Dropping it before [`WholeFile::keep`] leaves nothing behind.
pub struct WholeFile {
    path: PathBuf,
    /// The temporary file and its final path; `None` for a device or a pipe.
    renamed: Option<(NamedTempFile, PathBuf)>,
}

impl WholeFile {
    /// Opens a temporary file beside `path`. If `path` is a link, the file behind it will be replaced, not the link.
    ///
    /// # Errors
    /// An error of kind io with `path`, if its folder is missing or cannot be written to, or if `path` is a folder.
    pub fn create(path: &Path) -> Result<(Self, File)> {
        let failed = |error| Error::io(path, error);
        let known = std::fs::metadata(path).ok();
        let is_folder = path.as_os_str().to_string_lossy().ends_with(std::path::is_separator)
            || known.as_ref().is_some_and(|known| known.is_dir());
        if is_folder || path.file_name().is_none() {
            return Err(failed(IoError::other("is a folder; give the path of a file")));
        }
        if known.is_some_and(|known| !known.is_file()) {
            let file = File::options().write(true).open(path).map_err(failed)?;
            return Ok((WholeFile { path: path.to_owned(), renamed: None }, file));
        }
        let target = if path.is_symlink() { path.canonicalize().ok() } else { None };
        let target = target.unwrap_or_else(|| path.to_owned());
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = temporary_in(folder).map_err(failed)?;
        let file = temporary.reopen().map_err(failed)?;
        Ok((WholeFile { path: path.to_owned(), renamed: Some((temporary, target)) }, file))
    }

    /// Turns an error of writing into one that names the file.
    ///
    /// # Errors
    /// An error of kind io with the file's path.
    pub fn written<T>(&self, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::io(&self.path, error))
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// An error of kind io with the file's path.
    pub fn keep(self) -> Result<()> {
        let Some((temporary, target)) = self.renamed else { return Ok(()) };
        temporary.persist(target).map(drop).map_err(|error| Error::io(&self.path, error.error))
    }
}

/// Unlike other temporary files, this one will stay: it gets the permissions of any new file.
fn temporary_in(folder: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// Writes a text as a whole file.
///
/// # Errors
/// An error of kind io with `path`.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let (file, mut out) = WholeFile::create(path)?;
    file.written(out.write_all(text.as_bytes()))?;
    file.keep()
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
        assert!(file.written(failed).unwrap_err().to_string().contains("result.csv: disk full"));
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(WholeFile::create(folder.path()).is_err());
        assert!(WholeFile::create(&folder.path().join("new/")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_written_to_and_stays() {
        use std::os::unix::net::UnixListener;
        let folder = tempfile::tempdir().unwrap();
        // A socket can't be opened by its path: an error, and it is still there.
        let socket = folder.path().join("socket");
        let _listening = UnixListener::bind(&socket).unwrap();
        assert!(write_whole(&socket, "x").is_err());
        assert!(socket.exists() && !socket.is_file());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if !made.is_ok_and(|status| status.success()) {
            return;
        }
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read_to_string(pipe).unwrap()
        });
        write_whole(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(pipe.exists() && !pipe.is_file());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_the_file_behind_it_is_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("run-7.json"), folder.path().join("latest.json"));
        write_whole(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
