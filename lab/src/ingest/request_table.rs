//! The request table: requests of any trace or report as csv, a row per request; `docs/ingest.md` has the columns. A table that is
//! written and read back is the same.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

use ridgepoint::Result;
use ridgepoint_replay::input::Columns;

use super::capture::Capture;
use super::format::Format;
use super::request::{RequestRow, RequestTrace};
use super::step::Run;
use super::table::{header, read_rows, write_rows};

/// A request table.
pub(super) const FORMAT: Format = Format {
    name: "request-table",
    about: "A request table of this command",
    holds_steps: false,
    is_it: |head, _| head.has("arrived_ns") && head.has("request_id"),
    read,
};

/// The columns in the order in which they are written. A table may have them in any order.
pub static COLUMNS: LazyLock<&'static str> = LazyLock::new(|| header((Run::default(), RequestRow::default())));

/// Where the columns begin that tables of earlier releases lack.
const FIRST_OPTIONAL: &str = ",preempted_ns,";

fn columns() -> Columns {
    let (required, optional) = COLUMNS.split_at(COLUMNS.find(FIRST_OPTIONAL).unwrap_or(COLUMNS.len()));
    Columns { optional: optional.trim_start_matches(','), ..Columns::exactly(required) }
}

/// Writes the requests of runs, one run after the other.
///
/// # Errors
/// Those of `out`.
pub fn write(out: impl Write, runs: &[RequestTrace]) -> std::io::Result<()> {
    write_rows(out, runs.iter().flat_map(|trace| trace.requests.iter().map(move |request| (&trace.run, request))))
}

/// Reads a table.
///
/// # Errors
/// A file that cannot be read or has no rows; a missing or unknown column; the first row that is not as documented, such as a
/// request that is in its run twice.
pub fn read(path: &Path) -> Result<Capture> {
    let mut known: HashSet<(Run, Box<str>)> = HashSet::new();
    let runs = read_rows(path, columns(), |row, run, _| {
        let request: RequestRow = row.get()?;
        if request.request_id.is_empty() {
            return Err(row.bad("request_id", "the id of the request"));
        }
        if let Some([earlier, later]) = request.out_of_order() {
            return Err(row.bad(later.0, format!("at least {}, {}", earlier.0, earlier.1)));
        }
        if !known.insert((run.clone(), request.request_id.clone())) {
            return Err(row.bad("request_id", format!("an id that appears once in the run '{}'", run.experiment)));
        }
        Ok(request)
    })?;
    let requests = runs.into_iter().map(|(run, requests)| RequestTrace { run, requests }).collect();
    Ok(Capture { requests, ..Capture::default() })
}
