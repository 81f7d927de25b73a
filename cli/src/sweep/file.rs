//! The file of results: its format by its ending, written as a whole.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use ridgepoint::{Error, Result};
use ridgepoint_lab::sweep::{Row, write_csv, write_json, write_jsonl};

use crate::whole_file::WholeFile;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Csv,
    Json,
    Jsonl,
}

/// Where the results go.
#[derive(Debug, Clone)]
pub struct Target {
    path: PathBuf,
    kind: Kind,
}

impl Target {
    /// The format that the file's name asks for.
    ///
    /// # Errors
    /// `ErrorKind::InvalidArgument` for any other ending.
    pub fn of(path: &Path) -> Result<Self> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let kind = match ending.as_deref() {
            Some("csv") => Kind::Csv,
            Some("json") => Kind::Json,
            Some("jsonl") => Kind::Jsonl,
            _ => return Err(wrong(path, "must end in .csv, .json or .jsonl")),
        };
        Ok(Target { path: path.to_owned(), kind })
    }

    /// The path, for people.
    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// Refuses before anything is run what could not be written after it.
    ///
    /// # Errors
    /// `ErrorKind::Io` where the path is a folder or its folder is not there.
    pub fn check(&self) -> Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let message = match folder {
            Some(folder) if !folder.is_dir() => "its folder is not there: make it first",
            _ if self.path.is_dir() => "is a folder; give the path of a file",
            _ => return Ok(()),
        };
        Err(Error::io(&self.path, std::io::Error::other(message)))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the rows.
    ///
    /// # Errors
    /// `ErrorKind::Io`.
    pub fn write(&self, rows: &[Row]) -> Result<()> {
        let (file, out) = WholeFile::create(&self.path)?;
        let written = self.rows(BufWriter::new(out), rows);
        file.written(written)?;
        file.keep()
    }

    fn rows(&self, out: BufWriter<File>, rows: &[Row]) -> std::io::Result<()> {
        match self.kind {
            Kind::Csv => write_csv(out, rows),
            Kind::Json => write_json(out, rows),
            Kind::Jsonl => write_jsonl(out, rows),
        }
    }
}

fn wrong(path: &Path, reason: &str) -> Error {
    Error::invalid_argument("--out", path.display().to_string(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_the_format() {
        for (name, kind) in [("a.csv", Kind::Csv), ("x/b.JSON", Kind::Json), ("c.x.jsonl", Kind::Jsonl)] {
            let target = Target::of(Path::new(name)).unwrap();
            assert_eq!((target.kind, target.path()), (kind, Path::new(name)));
        }
        for name in ["results", "results.xlsx", ".csv", "results."] {
            let error = Target::of(Path::new(name)).unwrap_err().to_string();
            assert!(error.contains(&format!("--out: '{name}' must end in .csv")), "{error}");
        }
    }
}
