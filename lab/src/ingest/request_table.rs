//! The request table: requests of any trace or report as csv, a row per request; `docs/ingest.md` has the columns. Written and read
//! back it is the same. Uses `request`, `ingested`, `csv_columns`, `step_table` (the labels of a run), `error`.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use super::csv_columns::{CsvRows, Known, Row};
use super::ingested::{Ingested, RequestTrace};
use super::request::RequestRow;
use super::step::Run;
use super::step_table::{label_cells, labels, or_nothing};
use ridgepoint::{Error, Result};

/// The columns in the order in which they are written; a table that is read has them all, in any order.
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

const KNOWN: Known = Known { required: &COLUMNS, optional: &[] };

/// Writes the requests of runs, one run after the other.
///
/// # Errors
/// What `out` says.
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
    let own = [
        request.request_id.clone(),
        or_nothing(request.arrived_ns),
        or_nothing(request.handed_over_ns),
        or_nothing(request.queued_ns),
        or_nothing(request.scheduled_ns),
        or_nothing(request.first_token_ns),
        or_nothing(request.finished_ns),
        or_nothing(request.first_response_ns),
        or_nothing(request.departed_ns),
        or_nothing(request.scheduled_step),
        or_nothing(request.first_token_step),
        or_nothing(request.finished_step),
        or_nothing(request.num_prompt_tokens),
        or_nothing(request.num_cached_tokens),
        or_nothing(request.num_output_tokens),
        or_nothing(request.num_preemptions),
        request.finish_status.clone().unwrap_or_default(),
    ];
    label_cells(run).into_iter().chain(own)
}

/// Reads a table.
///
/// # Errors
/// A file that can't be read or has no row; a missing or unknown column; the first row that is not as documented, a request that
/// is in its run twice included: none is left out.
pub fn read(path: &Path) -> Result<Ingested> {
    let mut rows = CsvRows::open(path, &KNOWN)?;
    let mut runs: Vec<(RequestTrace, HashSet<String>)> = Vec::new();
    let mut record = csv::StringRecord::new();
    let mut requests_read = 0;
    let mut current = 0;
    while let Some(row) = rows.next(&mut record)? {
        requests_read += 1;
        let run = labels(&row)?;
        if runs.get(current).is_none_or(|(trace, _)| trace.run != run) {
            current = runs.iter().position(|(trace, _)| trace.run == run).unwrap_or_else(|| {
                runs.push((RequestTrace { run, requests: Vec::new() }, HashSet::new()));
                runs.len() - 1
            });
        }
        let Some((trace, ids)) = runs.get_mut(current) else { continue };
        let request = request(&row)?;
        if !ids.insert(request.request_id.clone()) {
            return Err(row.bad("request_id", format!("an id that '{}' has once", trace.run.experiment)));
        }
        trace.requests.push(request);
    }
    if runs.is_empty() {
        let message = "has a header and no rows; it needs a row per request".to_owned();
        return Err(Error::parse(rows.origin().to_owned(), message));
    }
    let requests = runs.into_iter().map(|(trace, _)| trace).collect();
    Ok(Ingested { requests, requests_read, ..Ingested::default() })
}

fn request(row: &Row<'_>) -> Result<RequestRow> {
    let id = row.text("request_id").ok_or_else(|| row.bad("request_id", "the id of the request"))?;
    let request = RequestRow {
        request_id: id.to_owned(),
        arrived_ns: row.whole("arrived_ns")?,
        handed_over_ns: row.whole("handed_over_ns")?,
        queued_ns: row.whole("queued_ns")?,
        scheduled_ns: row.whole("scheduled_ns")?,
        first_token_ns: row.whole("first_token_ns")?,
        finished_ns: row.whole("finished_ns")?,
        first_response_ns: row.whole("first_response_ns")?,
        departed_ns: row.whole("departed_ns")?,
        scheduled_step: row.whole("scheduled_step")?,
        first_token_step: row.whole("first_token_step")?,
        finished_step: row.whole("finished_step")?,
        num_prompt_tokens: row.whole("num_prompt_tokens")?,
        num_cached_tokens: row.whole("num_cached_tokens")?,
        num_output_tokens: row.whole("num_output_tokens")?,
        num_preemptions: row.whole("num_preemptions")?,
        finish_status: row.text("finish_status").map(str::to_owned),
    };
    let sequences: [&[(&str, Option<u64>)]; 2] = [
        &[
            ("queued_ns", request.queued_ns),
            ("scheduled_ns", request.scheduled_ns),
            ("first_token_ns", request.first_token_ns),
            ("finished_ns", request.finished_ns),
        ],
        &[
            ("arrived_ns", request.arrived_ns),
            ("first_response_ns", request.first_response_ns),
            ("departed_ns", request.departed_ns),
        ],
    ];
    for sequence in sequences {
        let mut latest: Option<(&str, u64)> = None;
        for (column, at) in sequence {
            let Some(at) = *at else { continue };
            if let Some((before, ns)) = latest.filter(|(_, ns)| at < *ns) {
                return Err(row.bad(column, format!("at least {before}, {ns}")));
            }
            latest = Some((column, at));
        }
    }
    Ok(request)
}
