//! What the step table and the request table share: the columns of a run, and reading rows run by run.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use ridgepoint::internals::input::{Columns, Row, RowReader};
use ridgepoint::{Error, Result};

use super::batch_summary::Counts;
use super::step::{Run, run_index};

/// The first columns of each table: the labels of the run, in the order of [`Run`]'s fields.
pub(super) const RUN_COLUMNS: [&str; 8] = [
    "experiment",
    "model",
    "hardware",
    "tensor_parallel_size",
    "workload",
    "engine_version",
    "max_num_seqs",
    "max_num_batched_tokens",
];

/// Reads the rows of a table that has exactly these columns, in any order. Cells count as they are. `read` gets a row, its run and
/// the rows of the run so far.
///
/// # Errors
/// A file that cannot be read or has no rows; a missing or unknown column; those of `read`.
pub(super) fn read_rows<T>(
    path: &Path,
    columns: &'static [&'static str],
    mut read: impl FnMut(&Row<'_>, &Run, &[T]) -> Result<T>,
) -> Result<Vec<(Run, Vec<T>)>> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let reader = BufReader::with_capacity(1 << 16, file);
    let mut rows = RowReader::verbatim_csv(&path.display().to_string(), reader, Columns::exactly(columns))?;
    let mut runs = Vec::new();
    while let Some(row) = rows.next_row()? {
        let at = run_index(&mut runs, run(&row, None)?);
        let (run, known) = &mut runs[at];
        known.push(read(&row, run, known)?);
    }
    if runs.is_empty() {
        return Err(Error::parse(path, "has a header and no rows; it needs a row per step or request"));
    }
    Ok(runs)
}

/// Reads the labels of a row's run; `name` is that of a file without names.
pub(super) fn run(row: &Row<'_>, name: Option<&str>) -> Result<Run> {
    let text = |column: &str| row.text(column).map(Cow::into_owned);
    let count = |column: &str| match row.count(column)? {
        Some(0) => Err(row.bad(column, "a whole number from 1, or nothing")),
        value => Ok(value),
    };
    let experiment = text("experiment").or_else(|| name.map(str::to_owned));
    Ok(Run {
        experiment: experiment.ok_or_else(|| row.bad("experiment", "the name of the run"))?,
        model: text("model"),
        hardware: text("hardware"),
        tensor_parallel_size: count("tensor_parallel_size")?,
        workload: text("workload"),
        engine_version: text("engine_version"),
        max_num_seqs: count("max_num_seqs")?,
        max_num_batched_tokens: count("max_num_batched_tokens")?,
    })
}
