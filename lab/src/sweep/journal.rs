//! Rows kept as they are finished, so that a sweep that was stopped goes on where it was. Uses `row`.
//!
//! A line of JSON per row, appended in one write: what a stopped run leaves half written is the last line, which is dropped.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::row::Row;
use ridgepoint::{Error, Result};

/// How every line begins.
const START: &[u8] = b"{\"key\":";

#[derive(Deserialize)]
struct Entry {
    key: String,
    row: Row,
}

#[derive(Serialize)]
struct NewEntry<'a> {
    key: &'a str,
    row: &'a Row,
}

/// A file of finished rows; it can be used from several threads, and by one process at a time.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Opens a journal, new where there is none, and reads its rows by the key of their configuration. Lines that are no rows of
    /// this version are passed over, a half-written last one is cut off. With `is_fresh` it is emptied instead.
    ///
    /// # Errors
    /// `ErrorKind::Io` where the file can't be read or written; `ErrorKind::Parse` where another process has it open, and where it
    /// has text in it but no line of a journal: it is left as it is then.
    pub fn open(path: &Path, is_fresh: bool) -> Result<(Self, HashMap<String, Row>)> {
        let failed = |error| Error::io(path, error);
        let fault = |message: &str| Error::parse(path.display().to_string(), message);
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(fault("another sweep writes this journal: wait for it, or write to another file"));
            }
            // Some file systems have no locks.
            Err(TryLockError::Error(_)) => {}
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (mut rows, whole) = rows(path, &bytes)?;
        if is_fresh {
            rows.clear();
        }
        file.set_len(if is_fresh { 0 } else { whole as u64 }).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok((Journal { path: path.to_owned(), file: Mutex::new(file) }, rows))
    }

    /// The rows of a journal, which is left as it is.
    ///
    /// # Errors
    /// `ErrorKind::Io` where it can't be read; `ErrorKind::Parse` where it is no journal.
    pub fn read(path: &Path) -> Result<HashMap<String, Row>> {
        let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
        Ok(rows(path, &bytes)?.0)
    }

    /// Appends a row.
    ///
    /// # Errors
    /// `ErrorKind::Io` where it can't be written.
    pub fn append(&self, key: &str, row: &Row) -> Result<()> {
        let failed = |error| Error::io(&self.path, error);
        let mut line = serde_json::to_vec(&NewEntry { key, row }).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line).map_err(failed)
    }
}

/// The rows of a journal's bytes, and how many of the bytes are whole lines.
fn rows(path: &Path, bytes: &[u8]) -> Result<(HashMap<String, Row>, usize)> {
    let is_ours = |line: &[u8]| line.starts_with(START) || START.starts_with(line);
    if !bytes.split(|byte| *byte == b'\n').all(is_ours) {
        let message = "is no journal of a sweep: move it away, or write to another file".to_owned();
        return Err(Error::parse(path.display().to_string(), message));
    }
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = bytes.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
    let entries = lines.filter_map(|line| serde_json::from_slice::<Entry>(line).ok());
    Ok((entries.map(|entry| (entry.key, entry.row)).collect(), whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(model: &str) -> Row {
        Row { model: model.to_owned(), ttft_mean_ms: Some(0.1 + 0.2), ..Row::default() }
    }

    #[test]
    fn rows_are_there_again_and_a_half_written_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv.journal");
        let (journal, known) = Journal::open(&path, false).unwrap();
        assert!(known.is_empty());
        journal.append("a", &row("one")).unwrap();
        journal.append("b", &row("two")).unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        // Stopped in the middle of the third line, wherever that is.
        for cut in [1, 5, 40, 300] {
            std::fs::write(&path, [whole.as_slice(), &whole[..cut]].concat()).unwrap();
            let (journal, known) = Journal::open(&path, false).unwrap();
            assert_eq!((known.len(), &known["a"], &known["b"]), (2, &row("one"), &row("two")));
            journal.append("c", &row("three")).unwrap();
            drop(journal);
            let (_, known) = Journal::open(&path, false).unwrap();
            assert_eq!((known.len(), &known["c"]), (3, &row("three")), "{cut}");
        }
    }

    #[test]
    fn a_fresh_journal_forgets_and_lines_of_other_versions_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (journal, _) = Journal::open(&path, false).unwrap();
        journal.append("a", &row("one")).unwrap();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{}{text}", text.replace("\"status\"", "\"state\"").replace("\"a\"", "\"z\"")))
            .unwrap();
        assert_eq!(Journal::open(&path, false).unwrap().1.keys().collect::<Vec<_>>(), ["a"]);
        assert!(Journal::open(&path, true).unwrap().1.is_empty());
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn what_is_no_journal_or_in_use_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "my notes\n").unwrap();
        for is_fresh in [false, true] {
            let error = Journal::open(&path, is_fresh).unwrap_err().to_string();
            assert!(error.contains("notes.txt: is no journal of a sweep"), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"my notes\n");
        let path = folder.path().join("journal");
        let (_open, _) = Journal::open(&path, false).unwrap();
        let error = Journal::open(&path, false).unwrap_err().to_string();
        assert!(error.contains("another sweep writes this journal"), "{error}");
    }
}
