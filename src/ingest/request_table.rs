//! The request table: requests as csv, a row per request. Uses `request`, `ingested`.

use std::io::Write;

use super::ingested::RequestTrace;

/// Writes the requests of runs.
///
/// # Errors
/// What `out` says.
pub fn write(out: impl Write, runs: &[RequestTrace]) -> std::io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(["experiment", "request_id"])?;
    for run in runs {
        for request in &run.requests {
            writer.write_record([&run.run.experiment, &request.request_id])?;
        }
    }
    writer.flush()
}
