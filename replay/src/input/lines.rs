//! Reads files line by line, each line within what a record of a file may take.

use std::io::BufRead;
use std::path::Path;

use ridgepoint::input::{FileKind, Record, read_error};
use ridgepoint::{Error, Location, Result};

use super::open;

/// Hands over each line of a file with its number from 1, and its line break. What `take` finds wrong becomes an error of the line.
///
/// # Errors
/// A file that cannot be read; the first line that `take` refuses.
pub fn for_each_line(path: &Path, mut take: impl FnMut(u64, &[u8]) -> std::result::Result<(), String>) -> Result<()> {
    let origin = path.display().to_string();
    let (mut reader, count) = open(FileKind::Trace, path)?.records(Record::Line);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        count.begin();
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(|error| read_error(&origin, error))? == 0 {
            return Ok(());
        }
        number += 1;
        take(number, &line).map_err(|problem| Error::parse(Location::of(origin.clone()).line(number), problem))?;
    }
}
