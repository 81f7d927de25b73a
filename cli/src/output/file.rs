//! A file that a reader sees complete or not at all: written under a temporary name in the same folder, then renamed.
//!
//! The process that writes a temporary file holds a lock on it, which ends with the process, however that ends. So a temporary file without
//! a lock is abandoned, and the next run that writes to its folder removes it. A number of a process in the name would not do: in
//! containers and on shared disks the same number is another process.

use std::fs::{File, TryLockError};
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::NamedTempFile;

const PREFIX: &str = ".ridgepoint-";
const SUFFIX: &str = ".tmp";
/// Where a disk has no locks, temporary files of this age are abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The temporary files of this process.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files of this process, and lets it make no others: for a process that a signal ends.
pub fn remove_unfinished() {
    let mut all = unfinished();
    for path in all.drain(..) {
        // One that has got its name is not there any more.
        let _ = std::fs::remove_file(path);
    }
    std::mem::forget(all);
}

/// The name of a temporary file in the list of them.
struct TemporaryName(PathBuf);

impl Drop for TemporaryName {
    fn drop(&mut self) {
        unfinished().retain(|known| *known != self.0);
    }
}

/// A temporary file. Dropping it removes it.
pub struct Temporary {
    file: NamedTempFile,
    listed: TemporaryName,
}

impl Temporary {
    /// Makes a file in `folder`, with the permissions of `like`.
    pub fn create(folder: &Path, like: Option<&std::fs::Metadata>) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).suffix(SUFFIX).rand_bytes(12);
        // Unlike other temporary files, this one will stay: it gets the permissions of any new file.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        loop {
            let temporary = {
                let mut unfinished = unfinished();
                let file = builder.tempfile_in(folder)?;
                unfinished.push(file.path().to_owned());
                let listed = TemporaryName(file.path().to_owned());
                Temporary { file, listed }
            };
            // Another run may have taken the file for abandoned before it was locked. Not every disk has locks.
            if matches!(temporary.file.as_file().try_lock(), Err(TryLockError::WouldBlock)) {
                continue;
            }
            if temporary.file.path().exists() {
                if let Some(like) = like {
                    temporary.file.as_file().set_permissions(like.permissions())?;
                }
                return Ok(temporary);
            }
        }
    }

    /// The open file.
    pub fn file(&self) -> Result<File> {
        self.file.as_file().try_clone()
    }

    /// Gives the file its name, once its content is on the disk.
    pub fn rename(self, target: &Path) -> Result<()> {
        let Temporary { file, listed } = self;
        file.as_file().sync_all()?;
        file.persist(target).map_err(|error| error.error)?;
        drop(listed);
        // A name is on the disk when its folder is. Some disks cannot say so.
        #[cfg(unix)]
        let _ = File::open(folder(target)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

/// The folder that a file is in.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes what runs that were killed have left in a folder.
pub fn remove_abandoned(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) && is_abandoned(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn is_abandoned(path: &Path) -> bool {
    let Ok(file) = File::options().write(true).open(path) else { return false };
    match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => {
            let modified = file.metadata().and_then(|metadata| metadata.modified());
            modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED_AFTER))
        }
    }
}
