//! The request table: requests of any trace or report as csv, a row per request; `docs/ingest.md` has the columns. A table that is
//! written and read back is the same.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use ridgepoint::internals::input::Row;
use ridgepoint::{Error, Result};

use super::batch_summary::Counts;
use super::format::Format;
use super::ingested::{Ingested, RequestTrace};
use super::request::{ENGINE_TIMES, NUMBERS, RequestRow, SERVER_TIMES};
use super::step::{Run, run_index};
use super::step_table::{label_cells, labels, open, or_nothing};

/// A request table.
pub(super) const FORMAT: Format = Format {
    name: "request-table",
    about: "A request table of this command",
    holds_steps: false,
    is_it: |head| head.has("arrived_ns") && head.has("request_id"),
    read,
};

/// The columns in the order in which they are written. A table has them all, in any order.
pub const COLUMNS: [&str; 25] = [
    "experiment",
    "model",
    "hardware",
    "tensor_parallel_size",
    "workload",
    "engine_version",
    "max_num_seqs",
    "max_num_batched_tokens",
    "request_id",
    "arrived_ns",
    "handed_over_ns",
    "queued_ns",
    "scheduled_ns",
    "first_token_ns",
    "finished_ns",
    "first_response_ns",
    "departed_ns",
    "scheduled_step",
    "first_token_step",
    "finished_step",
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_output_tokens",
    "num_preemptions",
    "finish_status",
];

/// Writes the requests of runs, one run after the other.
///
/// # Errors
/// Those of `out`.
pub fn write(out: impl Write, runs: &[RequestTrace]) -> std::io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS)?;
    for trace in runs {
        for request in &trace.requests {
            writer.write_record(cells(&trace.run, request))?;
        }
    }
    writer.flush()
}

fn cells(run: &Run, request: &RequestRow) -> impl Iterator<Item = String> {
    let mut request = request.clone();
    let mut own = vec![request.request_id.clone()];
    own.extend(NUMBERS.iter().map(|(_, number)| or_nothing(*number(&mut request))));
    own.push(request.finish_status.unwrap_or_default());
    label_cells(run).into_iter().chain(own)
}

/// Reads a table.
///
/// # Errors
/// A file that cannot be read or has no rows; a missing or unknown column; the first row that is not as documented, such as a
/// request that is in its run twice.
pub fn read(path: &Path) -> Result<Ingested> {
    let mut rows = open(path, &COLUMNS)?;
    let mut requests: Vec<RequestTrace> = Vec::new();
    let mut known: HashSet<(usize, String)> = HashSet::new();
    let mut requests_read = 0;
    while let Some(row) = rows.next_row()? {
        requests_read += 1;
        let at = run_index(&mut requests, labels(&row)?);
        let request = request(&row)?;
        if !known.insert((at, request.request_id.clone())) {
            let run = &requests[at].run.experiment;
            return Err(row.bad("request_id", format!("an id that appears once in the run '{run}'")));
        }
        requests[at].requests.push(request);
    }
    if requests.is_empty() {
        return Err(Error::parse(rows.origin(), "has a header and no rows; it needs a row per request"));
    }
    Ok(Ingested { requests, requests_read, ..Ingested::default() })
}

fn request(row: &Row<'_>) -> Result<RequestRow> {
    let id = row.text("request_id").ok_or_else(|| row.bad("request_id", "the id of the request"))?;
    let mut request = RequestRow {
        request_id: id.into_owned(),
        finish_status: row.text("finish_status").map(Cow::into_owned),
        ..RequestRow::default()
    };
    for (column, number) in NUMBERS {
        *number(&mut request) = Counts::optional(row, column)?;
    }
    for sequence in [&ENGINE_TIMES[..], &SERVER_TIMES] {
        if let Some([earlier, later]) = request.out_of_order(sequence) {
            return Err(row.bad(later.0, format!("at least {}, {}", earlier.0, earlier.1)));
        }
    }
    Ok(request)
}
