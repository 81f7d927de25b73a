//! Files that a reader sees whole or not at all: written under another name in the same folder, then renamed. Devices and pipes
//! are written to as they are.

use std::fs::File;
use std::path::{Path, PathBuf};

use ridgepoint::{Error, Result};

/// A file that is not there yet. Dropped before [`WholeFile::keep`], it leaves nothing behind.
pub struct WholeFile {
    path: PathBuf,
    /// Its name until it is kept, and the one that it gets; `None` for what can't be renamed to.
    renamed: Option<(PathBuf, PathBuf)>,
}

impl WholeFile {
    /// Opens the file under its temporary name; where the path is a link to a file, beside that file.
    ///
    /// # Errors
    /// `ErrorKind::Io` with the file's own path where the folder is not there or can't be written to.
    pub fn create(path: &Path) -> Result<(Self, File)> {
        let failed = |error| Error::io(path, error);
        let there = std::fs::metadata(path).ok();
        let is_folder = path.as_os_str().to_string_lossy().ends_with(std::path::is_separator);
        let Some(name) = path.file_name().filter(|_| !is_folder && !there.as_ref().is_some_and(|of| of.is_dir()))
        else {
            return Err(failed(std::io::Error::other("is a folder; give the path of a file")));
        };
        if there.as_ref().is_some_and(|of| !of.is_file()) {
            let file = File::options().write(true).open(path).map_err(failed)?;
            return Ok((WholeFile { path: path.to_owned(), renamed: None }, file));
        }
        let last = if path.is_symlink() { path.canonicalize().ok() } else { None }.unwrap_or_else(|| path.to_owned());
        let name = last.file_name().unwrap_or(name).to_string_lossy();
        let temporary = last.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let file = File::create(&temporary).map_err(failed)?;
        Ok((WholeFile { path: path.to_owned(), renamed: Some((temporary, last)) }, file))
    }

    /// What writing came to; an error is that of the file.
    ///
    /// # Errors
    /// `ErrorKind::Io` with the file's own path.
    pub fn written<T>(&self, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::io(&self.path, error))
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// `ErrorKind::Io` with the file's own path.
    pub fn keep(mut self) -> Result<()> {
        match &self.renamed {
            Some((temporary, last)) => self.written(std::fs::rename(temporary, last))?,
            None => return Ok(()),
        }
        self.renamed = None;
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.renamed {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// Writes a whole text.
///
/// # Errors
/// `ErrorKind::Io`.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let (file, mut out) = WholeFile::create(path)?;
    file.written(std::io::Write::write_all(&mut out, text.as_bytes()))?;
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
