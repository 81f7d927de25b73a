//! `ridgepoint probe`: cold and warm requests of a running server, and which cold term dominated.

mod args;
pub mod markdown;
mod table;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use ridgepoint_probe::capture::{Written, write};
use ridgepoint_probe::{Report, probe};

pub use args::Probe;

use crate::common::Common;
use crate::outcome::{Failure, Outcome};
use crate::output::{Kind, Outputs};
use crate::progress;

/// Probes a server.
///
/// # Errors
/// Files that cannot be read or written; settings that cannot be used; a server with several models of which none is named.
pub fn run(args: &Probe, common: &Common) -> Result<Outcome<Report>, Failure> {
    let mut outputs = Outputs::new(common, args.force);
    for (path, kind) in [(&args.out, Kind::TokenLines), (&args.markdown, Kind::ProbeReport)] {
        path.as_ref().map(|path| outputs.probe(path, kind)).transpose()?;
    }
    let settings = args.settings()?;
    let bar = progress::bar(settings.num_requests(), "probe [{bar:30}] {pos} of {len} requests, {elapsed}");
    let counted = bar.clone();
    let is_terminal = std::io::stderr().is_terminal();
    let (asked, length) = (AtomicU64::new(0), settings.num_requests());
    let count = move || {
        counted.inc(1);
        let done = asked.fetch_add(1, Ordering::Relaxed) + 1;
        // A log has no bar: a line per quarter says that the command is alive.
        if !is_terminal && done.is_multiple_of(length.div_ceil(4).max(1)) {
            let _ = writeln!(std::io::stderr(), "probe: {done} of {length} requests");
        }
    };
    let report = probe(&settings, Arc::new(count)).map_err(Failure::input)?;
    bar.finish_and_clear();

    let mut notes: Vec<String> = report.stopped.iter().chain(&report.notes).cloned().collect();
    if let Some(path) = &args.out {
        notes.extend(write_capture(&report, path, &mut outputs)?);
    }
    if let Some(path) = &args.markdown {
        outputs.write(path, Kind::ProbeReport, &markdown::text(&report))?;
    }
    let missed = (!report.has_warm()).then(|| "no warm request succeeded".to_owned());
    Ok(Outcome { notes, missed, ..Outcome::of(report) })
}

/// Writes the capture, unless it would be empty. Returns remarks.
fn write_capture(report: &Report, path: &Path, outputs: &mut Outputs) -> Result<Vec<String>, Failure> {
    let mut file = outputs.create(path, Kind::TokenLines)?;
    let written: Written = file.write(|out| {
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut packed = GzEncoder::new(out, Compression::default());
            let written = write(report, &mut packed)?;
            packed.finish()?.flush()?;
            Ok(written)
        } else {
            write(report, std::io::BufWriter::new(out))
        }
    })?;
    let left_out = [
        (written.failed, "failed"),
        (written.uncounted, "are of a server that does not count prompt tokens"),
        (written.buffered, "came all at once, without times of tokens"),
    ];
    let mut notes: Vec<String> = left_out
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{}: {count} requests are left out: they {why}", path.display()))
        .collect();
    if written.requests == 0 {
        notes.push(format!("{}: is not written, as no request could be", path.display()));
    } else {
        file.keep()?;
    }
    Ok(notes)
}
