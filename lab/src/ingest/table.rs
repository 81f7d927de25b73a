//! What the step table and the request table share: rows written and read run by run.
use std::io::{Error as IoError, ErrorKind, Write};
use std::path::Path;

use ridgepoint::input::FileKind;
use ridgepoint::{Error, Result};
use ridgepoint_replay::input::{Columns, Row, RowReader};
use serde::Serialize;

use super::step::{ByRun, Run};

/// Refuses zero bytes, which JSON can put into a name: a reader would take the table for no text.
struct WithoutZeros<W>(W);

impl<W: Write> Write for WithoutZeros<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.contains(&0) {
            let problem = "a name or an id of the trace holds a zero byte (\\u0000), which no table can: rename it";
            return Err(IoError::new(ErrorKind::InvalidData, problem));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Writes rows, whose fields have the names of the columns, with a header.
///
/// # Errors
/// Those of `out`, and a zero byte in a cell.
pub(crate) fn write_rows(out: impl Write, rows: impl IntoIterator<Item = impl Serialize>) -> std::io::Result<()> {
    let mut writer = csv::Writer::from_writer(WithoutZeros(out));
    rows.into_iter().try_for_each(|row| writer.serialize(row))?;
    writer.flush()
}

/// Returns the header that [`write_rows`] gives rows of this type.
pub(super) fn header(row: impl Serialize) -> &'static str {
    let mut table = Vec::new();
    // Memory takes everything.
    let _ = write_rows(&mut table, [row]);
    let header = table.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(header).into_owned().leak()
}

/// Reads the rows of a table that has these columns and no others, in any order. Cells count as they are. `read` gets a row, its run and
/// the rows of the run so far.
///
/// # Errors
/// A file that cannot be read or has no rows; a missing or unknown column; those of `read`.
pub(super) fn read_rows<T>(
    path: &Path,
    columns: Columns,
    mut read: impl FnMut(&Row<'_>, &Run, &[T]) -> Result<T>,
) -> Result<Vec<(Run, Vec<T>)>> {
    let mut rows = RowReader::verbatim_csv(ridgepoint_replay::input::open(FileKind::Trace, path)?, columns)?;
    let mut runs: ByRun<(Run, Vec<T>)> = ByRun::default();
    while let Some(row) = rows.next_row()? {
        let (run, known) = runs.of(run(&row, None)?, |run| (run, Vec::new()));
        known.push(read(&row, run, known)?);
    }
    if runs.values.is_empty() {
        return Err(Error::parse(path, "has a header and no rows; it needs a row per step or request"));
    }
    Ok(runs.values)
}

/// Reads the labels of a row's run; `name` is that of a file without names.
pub(super) fn run(row: &Row<'_>, name: Option<&str>) -> Result<Run> {
    let mut run: Run = row.get()?;
    if run.experiment.is_empty() {
        run.experiment = name.ok_or_else(|| row.bad("experiment", "the name of the run"))?.to_owned();
    }
    for (column, count) in [
        ("tensor_parallel_size", run.tensor_parallel_size),
        ("max_num_seqs", run.max_num_seqs),
        ("max_num_batched_tokens", run.max_num_batched_tokens),
    ] {
        if count == Some(0) {
            return Err(row.bad(column, "a whole number from 1, or nothing"));
        }
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_could_not_be_read_is_not_written() {
        let named = |name: &str| Run { experiment: name.to_owned(), ..Run::default() };
        assert!(write_rows(Vec::new(), [named("night")]).is_ok());
        let error = write_rows(Vec::new(), [named("ni\0ght")]).unwrap_err();
        assert!(error.to_string().contains("holds a zero byte"), "{error}");
    }
}
