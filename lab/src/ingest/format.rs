//! A kind of file that can be read.

use std::path::Path;

use ridgepoint::Result;
use ridgepoint_replay::input::Head;

use super::capture::Capture;

/// A kind of file that can be read. Its name is unique.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its name, as in `step-csv`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Whether such files hold steps of an engine; others hold requests alone.
    pub holds_steps: bool,
    /// Whether the beginning of a file is of this format, by what it looks like and by its bytes.
    pub(super) is_it: fn(&Head, &[u8]) -> bool,
    /// Reads a file.
    pub(super) read: fn(&Path) -> Result<Capture>,
}

impl Format {
    /// Reads a file of this format.
    ///
    /// # Errors
    /// A file that cannot be read or is not of this format.
    pub fn read(&self, path: &Path) -> Result<Capture> {
        (self.read)(path)
    }
}
