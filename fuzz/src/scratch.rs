//! Files for readers that take a path, in memory where the system has a folder for that.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let folder = tempfile::Builder::new();
    let found = if memory.is_dir() { folder.tempdir_in(memory) } else { tempfile::tempdir() };
    found.expect("a folder for temporary files")
});

thread_local! {
    static OF_THREAD: PathBuf = {
        let folder = FOLDER.path().join(format!("{:?}", std::thread::current().id()).replace(['(', ')'], "_"));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        folder
    };
}

/// The path of a file of this name that belongs to the calling thread.
pub fn path(name: &str) -> PathBuf {
    OF_THREAD.with(|folder| folder.join(name))
}

/// Writes a file that belongs to the calling thread; returns its path.
pub fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = path(name);
    if let Some(folder) = path.parent() {
        let _ = std::fs::create_dir_all(folder);
    }
    std::fs::write(&path, bytes).expect("temporary files can be written");
    path
}

/// An empty folder that belongs to the calling thread, with these files.
pub fn folder(name: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let folder = path(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("temporary folders can be made");
    for (file, bytes) in files {
        std::fs::write(folder.join(file), bytes).expect("temporary files can be written");
    }
    folder
}
