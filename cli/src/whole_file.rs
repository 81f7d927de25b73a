//! Output files that a reader sees complete or not at all: written under a temporary name in the same folder, then renamed.
//! Devices and pipes are written in place.

use std::fs::File;
use std::io::{Error as IoError, ErrorKind, Write};
use std::path::{Path, PathBuf};

use ridgepoint::{Error, Result};
use tempfile::NamedTempFile;

/// A file that does not have its name yet. Dropping it before [`WholeFile::keep`] leaves nothing behind.
pub struct WholeFile {
    path: PathBuf,
    /// Where content goes: the temporary file, or the device or pipe itself.
    out: File,
    /// The temporary file and its final path; `None` for a device or a pipe.
    renamed: Option<(NamedTempFile, PathBuf)>,
}

impl WholeFile {
    /// Opens a temporary file beside `path`. If `path` is a link, the file behind it will be replaced, not the link.
    ///
    /// # Errors
    /// An error of kind io with `path`, if its folder is missing or cannot be written to, or if `path` is a folder.
    pub fn create(path: &Path) -> Result<Self> {
        Self::open(path).map_err(|error| Error::io(path, error))
    }

    fn open(path: &Path) -> std::io::Result<Self> {
        if path == Path::new("-") {
            return Err(IoError::other("is no file: give a path; --format json prints the result on stdout"));
        }
        let known = std::fs::metadata(path).ok();
        let is_folder = path.as_os_str().to_string_lossy().ends_with(std::path::is_separator)
            || known.as_ref().is_some_and(|known| known.is_dir());
        if is_folder || path.file_name().is_none() {
            return Err(IoError::other("is a folder; give the path of a file"));
        }
        if known.is_some_and(|known| !known.is_file()) {
            let out = File::options().write(true).open(path)?;
            return Ok(WholeFile { path: path.to_owned(), out, renamed: None });
        }
        let target = path.canonicalize().ok().filter(|_| path.is_symlink()).unwrap_or_else(|| path.to_owned());
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if folder.try_exists().is_ok_and(|is_there| !is_there) {
            let message =
                format!("the folder {0} does not exist; make it (mkdir -p {0}) or give another path", folder.display());
            return Err(IoError::new(ErrorKind::NotFound, message));
        }
        let mut builder = tempfile::Builder::new();
        // Unlike other temporary files, this one will stay: it gets the permissions of any new file.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let temporary = builder.tempfile_in(folder)?;
        Ok(WholeFile { path: path.to_owned(), out: temporary.reopen()?, renamed: Some((temporary, target)) })
    }

    /// Writes content. An error names the file.
    ///
    /// # Errors
    /// An error of kind io with the file's path.
    pub fn write<T>(&mut self, content: impl FnOnce(&mut File) -> std::io::Result<T>) -> Result<T> {
        content(&mut self.out).map_err(|error| Error::io(&self.path, error))
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

/// Writes a text as a whole file.
///
/// # Errors
/// An error of kind io with `path`.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let mut file = WholeFile::create(path)?;
    file.write(|out| out.write_all(text.as_bytes()))?;
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
        let mut file = WholeFile::create(&path).unwrap();
        let full = |_: &mut File| -> std::io::Result<()> { Err(std::io::Error::other("disk full")) };
        assert!(file.write(full).unwrap_err().to_string().contains("result.csv: disk full"));
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
