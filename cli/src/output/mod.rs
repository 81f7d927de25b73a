//! The one way to write. A file that the run reads is never replaced, one that ridgepoint did not write only with `--force`, and
//! another one as a whole. Devices and pipes are written in place.

mod file;
mod inputs;
mod kind;

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{Error as IoError, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use ridgepoint::{Error, Result};

use crate::common::Common;
pub use file::remove_unfinished;
use file::{Temporary, folder, remove_abandoned};
use inputs::{FileIdentity, Inputs};
pub use kind::{Kind, MANIFEST};

/// The flag of every subcommand that writes.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Force {
    /// Replace what is there, even if ridgepoint did not write it; files that the run reads are never replaced
    #[arg(long)]
    pub force: bool,
}

/// The files that a run writes, and those that it must not.
pub struct Outputs {
    force: bool,
    inputs: Inputs,
    /// The outputs so far.
    places: HashMap<FileIdentity, Kind>,
    /// The folders without files of earlier runs that were killed.
    tidy: Vec<PathBuf>,
}

impl Outputs {
    /// Outputs of a run that reads what its command line names.
    pub fn new(common: &Common, force: Force) -> Self {
        let Force { force } = force;
        let mut outputs = Outputs { force, inputs: Inputs::default(), places: HashMap::new(), tidy: Vec::new() };
        common.named.iter().for_each(|named| outputs.inputs.add_named(named));
        if let Some(data_dir) = common.data_dir() {
            outputs.inputs.add_data_dir(data_dir);
        }
        outputs
    }

    /// Adds files and folders that inputs name, such as the model of a server's file. Built-in names are passed over.
    pub fn reads<P: AsRef<Path>>(&mut self, paths: impl IntoIterator<Item = P>) {
        paths.into_iter().for_each(|path| self.inputs.add(path.as_ref()));
    }

    /// Whether `path` is a file of this kind that may be replaced; no if nothing is there.
    ///
    /// # Errors
    /// What must not be replaced: an input, another output, a file of another kind without `--force`.
    pub fn check(&mut self, path: &Path, kind: Kind) -> Result<bool> {
        let refuse = |problem: String| Err(Error::invalid(path, vec![problem]));
        let there = FileIdentity::of_file(path);
        let is_there = there.is_some();
        // Devices and pipes may be used more than once.
        let Some(place) = there.or_else(|| FileIdentity::of_new_file(path).filter(|_| !path.exists())) else {
            return Ok(false);
        };
        if let Some(input) = self.inputs.at(&place, kind == Kind::EfficiencyTable) {
            let input = if input == path { String::new() } else { format!(", by the name of {}", input.display()) };
            return refuse(format!("is a file that this run reads{input}: give another path"));
        }
        let known = *self.places.entry(place).or_insert(kind);
        if known != kind {
            return refuse(format!("would be both {} and {}: give them two paths", known.name(), kind.name()));
        }
        if is_there { replaceable(path, kind, self.force) } else { Ok(false) }
    }

    /// Opens a file for writing. If `path` is a link, the file behind it will be replaced, not the link.
    ///
    /// # Errors
    /// Those of [`Outputs::check`]; a folder that is missing or cannot be written to; a path that is a folder.
    pub fn create(&mut self, path: &Path, kind: Kind) -> Result<OutputFile> {
        self.check(path, kind)?;
        self.open(path, kind).map_err(|error| Error::io(path, error))
    }

    /// Opens a file and drops it again, so that a refusal comes before the work.
    ///
    /// # Errors
    /// Those of [`Outputs::create`].
    pub fn probe(&mut self, path: &Path, kind: Kind) -> Result<()> {
        self.create(path, kind).map(drop)
    }

    /// Writes a text as a file.
    ///
    /// # Errors
    /// Those of [`Outputs::create`] and of writing.
    pub fn write(&mut self, path: &Path, kind: Kind, text: &str) -> Result<()> {
        self.write_all([(path.to_owned(), kind, text)])
    }

    /// Writes texts as files. All are on the disk before the first gets its name.
    ///
    /// # Errors
    /// Those of [`Outputs::write`], of any file.
    pub fn write_all<T: AsRef<str>>(&mut self, files: impl IntoIterator<Item = (PathBuf, Kind, T)>) -> Result<()> {
        let written = files.into_iter().map(|(path, kind, text)| {
            let mut file = self.create(&path, kind)?;
            file.write(|out| out.write_all(text.as_ref().as_bytes()))?;
            Ok(file)
        });
        written.collect::<Result<Vec<_>>>()?.into_iter().try_for_each(OutputFile::keep)
    }

    fn open(&mut self, path: &Path, kind: Kind) -> std::io::Result<OutputFile> {
        if path == Path::new("-") {
            return Err(IoError::other("is no file: give a path; --format json prints the result on stdout"));
        }
        let known = std::fs::metadata(path).ok();
        let is_folder = path.as_os_str().to_string_lossy().ends_with(std::path::is_separator)
            || known.as_ref().is_some_and(Metadata::is_dir);
        if is_folder || path.file_name().is_none() {
            return Err(IoError::other("is a folder; give the path of a file"));
        }
        let file = |out, renamed| OutputFile { path: path.to_owned(), kind, force: self.force, out, renamed };
        if known.as_ref().is_some_and(|known| !known.is_file()) {
            return Ok(file(File::options().write(true).open(path)?, None));
        }
        let target = match std::fs::read_link(path) {
            Ok(to) if known.is_none() => {
                let message =
                    format!("is a link to {}, which is not there: remove the link, or make the file", to.display());
                return Err(IoError::new(ErrorKind::NotFound, message));
            }
            Ok(_) => path.canonicalize()?,
            Err(_) => path.to_owned(),
        };
        let folder = folder(&target).to_owned();
        if folder.try_exists().is_ok_and(|is_there| !is_there) {
            let message =
                format!("the folder {0} does not exist; make it (mkdir -p {0}) or give another path", folder.display());
            return Err(IoError::new(ErrorKind::NotFound, message));
        }
        if !self.tidy.contains(&folder) {
            remove_abandoned(&folder);
            self.tidy.push(folder.clone());
        }
        let temporary = Temporary::create(&folder, known.as_ref())?;
        Ok(file(temporary.file()?, Some((temporary, target))))
    }
}

/// Whether a file may be replaced for its content; false only by force.
fn replaceable(path: &Path, kind: Kind, force: bool) -> Result<bool> {
    if kind.is_that_of(path) {
        return Ok(true);
    }
    let what = if kind == Kind::Correction { String::new() } else { format!(" and is not {}", kind.name()) };
    let problem = format!("is there already{what}: give another path, or replace it with --force");
    if force { Ok(false) } else { Err(Error::invalid(path, vec![problem])) }
}

/// An output folder. When it is dropped, the folders that it created are removed if they are still empty.
pub struct OutputFolder {
    /// Its path.
    pub path: PathBuf,
    /// The folders that were not there before, the innermost first.
    made: Vec<PathBuf>,
}

impl OutputFolder {
    /// Creates the folder and its missing parents.
    ///
    /// # Errors
    /// An error of kind io with the folder's path.
    pub fn make(path: PathBuf) -> Result<Self> {
        let made = path.ancestors().take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        let folder = OutputFolder { path, made };
        std::fs::create_dir_all(&folder.path).map_err(|error| Error::io(&folder.path, error))?;
        Ok(folder)
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        // Fails for a folder that holds something.
        self.made.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
    }
}

/// A file that does not have its name yet. Dropping it before [`OutputFile::keep`] leaves nothing behind.
pub struct OutputFile {
    path: PathBuf,
    kind: Kind,
    force: bool,
    /// The file that content goes to: the temporary file, or the device or pipe itself.
    out: File,
    /// The temporary file and its final path; `None` for a device or a pipe.
    renamed: Option<(Temporary, PathBuf)>,
}

impl OutputFile {
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
    /// An error of kind io with the file's path; another file that has taken its place since.
    pub fn keep(self) -> Result<()> {
        let Some((temporary, target)) = self.renamed else { return Ok(()) };
        if target.exists() {
            replaceable(&target, self.kind, self.force)?;
        }
        temporary.rename(&target).map_err(|error| Error::io(&self.path, error))
    }
}

#[cfg(test)]
mod tests;
