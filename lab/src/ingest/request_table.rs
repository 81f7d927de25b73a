//! The request table: requests of any trace or report as csv, a row per request; `docs/ingest.md` has the columns. A table that is
//! written and read back is the same.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

use ridgepoint::Result;
use ridgepoint::internals::input::Row;

use super::batch_summary::Counts;
use super::capture::Capture;
use super::format::Format;
use super::request::{NUMBERS, RequestRow, RequestTrace};
use super::step::Run;
use super::table::{RUN_COLUMNS, read_rows};

/// A request table.
pub(super) const FORMAT: Format = Format {
    name: "request-table",
    about: "A request table of this command",
    holds_steps: false,
    is_it: |head| head.has("arrived_ns") && head.has("request_id"),
    read,
};

/// The columns in the order in which they are written. A table has them all, in any order.
pub static COLUMNS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let numbers = NUMBERS.map(|(name, _)| name);
    [&RUN_COLUMNS[..], &["request_id"], &numbers, &["finish_status"]].concat()
});

/// Writes the requests of runs, one run after the other.
///
/// # Errors
/// Those of `out`.
pub fn write(out: impl Write, runs: &[RequestTrace]) -> std::io::Result<()> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(out);
    writer.write_record(COLUMNS.iter())?;
    for trace in runs {
        for request in &trace.requests {
            writer.serialize((&trace.run, request))?;
        }
    }
    writer.flush()
}

/// Reads a table.
///
/// # Errors
/// A file that cannot be read or has no rows; a missing or unknown column; the first row that is not as documented, such as a
/// request that is in its run twice.
pub fn read(path: &Path) -> Result<Capture> {
    let mut known: HashSet<(Run, String)> = HashSet::new();
    let runs = read_rows(path, &COLUMNS, |row, run, _| {
        let request = request(row)?;
        if !known.insert((run.clone(), request.request_id.clone())) {
            return Err(row.bad("request_id", format!("an id that appears once in the run '{}'", run.experiment)));
        }
        Ok(request)
    })?;
    let requests = runs.into_iter().map(|(run, requests)| RequestTrace { run, requests }).collect();
    Ok(Capture { requests, ..Capture::default() })
}

fn request(row: &Row<'_>) -> Result<RequestRow> {
    let id = row.text("request_id").ok_or_else(|| row.bad("request_id", "the id of the request"))?;
    let mut request = RequestRow {
        request_id: id.into_owned(),
        finish_status: row.text("finish_status").map(Cow::into_owned),
        ..RequestRow::default()
    };
    for (column, number) in NUMBERS {
        *number(&mut request) = row.unsigned(column)?;
    }
    match request.out_of_order() {
        Some([earlier, later]) => Err(row.bad(later.0, format!("at least {}, {}", earlier.0, earlier.1))),
        None => Ok(request),
    }
}
