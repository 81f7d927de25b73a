//! The files that a run reads, however they are reached: two paths are one file if they lead to the same inode.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ridgepoint::input::files_in;
use ridgepoint_lab::evaluate::experiment;

use super::file::folder;
use crate::input_paths::NamedPath;

/// Endings of the files in a folder of measurements that some reader takes.
const ENDINGS: [&str; 2] = ["csv", "parquet"];
/// Files that are read from a model's folder.
const OF_MODELS: [&str; 3] = ["config.json", "hf_quant_config.json", "generation_config.json"];

/// The place of a content on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FileIdentity {
    /// Device and inode.
    #[cfg(unix)]
    Inode(u64, u64),
    /// A path without links.
    Path(PathBuf),
}

impl FileIdentity {
    /// The place of a regular file that is there.
    pub fn of_file(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Some(FileIdentity::Inode(metadata.dev(), metadata.ino()))
        }
        #[cfg(not(unix))]
        {
            drop(metadata);
            path.canonicalize().ok().map(FileIdentity::Path)
        }
    }

    /// The place of a file that will be made.
    pub fn of_new_file(path: &Path) -> Option<Self> {
        Some(FileIdentity::Path(folder(path).canonicalize().ok()?.join(path.file_name()?)))
    }
}

/// The files of a run's inputs, with the paths that led to them.
#[derive(Debug, Default)]
pub struct Inputs {
    files: HashMap<FileIdentity, PathBuf>,
    /// The efficiency tables of `--data-dir`.
    tables: HashMap<FileIdentity, PathBuf>,
}

impl Inputs {
    /// Adds the files in `data_dir` that readers look at.
    pub fn add_data_dir(&mut self, data_dir: &Path) {
        for (folder, ending) in [("hardware", "toml"), ("models", "json")] {
            for file in files_in(Some(data_dir), folder, ending).unwrap_or_default() {
                self.add_file(&file);
            }
        }
        for gpu in entries(&data_dir.join("bench_data")) {
            for file in files_in(Some(&gpu), "", "csv").unwrap_or_default() {
                self.tables.extend(FileIdentity::of_file(&file).map(|place| (place, file)));
            }
        }
    }

    /// Adds what an argument names, if it is there: a file, or those files of a folder that readers of folders look at.
    pub fn add_named(&mut self, NamedPath { value, is_path }: &NamedPath) {
        self.add(value);
        if !is_path {
            return;
        }
        self.add_file(&value.join("meta.toml"));
        for folder in entries(value).iter().chain([value]) {
            for name in experiment::FILES {
                self.add_file(&folder.join(name));
            }
        }
        for ending in ENDINGS {
            for file in files_in(Some(value), "", ending).unwrap_or_default() {
                self.add_file(&file);
            }
        }
    }

    /// Adds a file and those that are read with it, or the files of a model's folder. What is not there is passed over.
    pub fn add(&mut self, path: &Path) {
        self.add_file(path);
        // `FILE.json#NAME` is one of the GPUs in a file.
        if let Some((file, _)) = path.to_str().and_then(|path| path.rsplit_once('#')) {
            self.add_file(Path::new(file));
        }
        for name in OF_MODELS {
            let folder = if path.is_dir() { path } else { folder(path) };
            self.add_file(&folder.join(name));
        }
    }

    fn add_file(&mut self, path: &Path) {
        self.files.extend(FileIdentity::of_file(path).map(|place| (place, path.to_owned())));
    }

    /// Returns the input at a place. With `writes_tables`, the tables of `bench_data/` are no inputs.
    pub fn at(&self, place: &FileIdentity, writes_tables: bool) -> Option<&Path> {
        let table = self.tables.get(place).filter(|_| !writes_tables);
        let input = self.files.get(place).or(table)?;
        // An editor may have replaced the input, so its old inode can belong to another file.
        (FileIdentity::of_file(input).as_ref() == Some(place)).then_some(input)
    }
}

/// The paths in a folder; none if it is no folder.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = if folder.is_dir() { std::fs::read_dir(folder).ok() } else { None };
    entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
