//! The report of `ingest`: what each file held, what was left out of it and why, and what the runs are.

use ridgepoint::internals::units::duration;
use ridgepoint_lab::ingest::{FileReport, Ingestion, JoinedRun, Records};

use crate::outcome::Report;
use crate::text::{Page, count, plural, shown, table};

impl Report for Ingestion {
    fn table(&self) -> String {
        let mut page = Page::new();
        let mut files = table(&["file", "as", "of", ">read", ">kept", ">left out"]);
        let kinds = || self.files.iter().flat_map(kinds);
        for (file, kind, records) in kinds().filter(|(_, _, records)| records.read > 0) {
            let counts = [records.read, records.kept, records.dropped.total()].map(count);
            files.add_row([&file.file, file.format, kind].map(str::to_owned).into_iter().chain(counts));
        }
        page.table(files, &["as"]);
        page.blank();
        for (file, kind, records) in kinds().filter(|(_, _, records)| records.dropped.total() > 0) {
            page.paragraph("left out: ", &format!("{kind} of {}: {}", file.file, records.dropped));
        }
        let mut runs = table(&["run", "model", "hardware", ">GPUs", ">steps", ">median time", "of", ">requests"]);
        for report in &self.runs {
            let run = report.run.clone();
            runs.add_row([
                run.experiment,
                shown(run.model, |model| model),
                shown(run.hardware, |hardware| hardware),
                shown(run.tensor_parallel_size, |size| size.to_string()),
                count(report.steps),
                shown(report.median_time_us, duration),
                report.timed.unwrap_or("-").replace('_', " "),
                count(report.requests),
            ]);
        }
        page.blank();
        page.table(runs, &["hardware", "model"]);
        page.blank();
        for join in &self.joins {
            page.paragraph("joined: ", &joined(join));
        }
        for path in &self.written {
            page.line(&format!("written: {path}"));
        }
        page.text()
    }
}

/// The two kinds of record of a file.
fn kinds(file: &FileReport) -> [(&FileReport, &'static str, &Records); 2] {
    [(file, "steps", &file.steps), (file, "requests", &file.requests)]
}

fn joined(join: &JoinedRun) -> String {
    let mut parts = vec![format!(
        "{} of '{}', first step in the trace {}, not sampled {}, not said {}",
        plural(join.requests, "request"),
        join.experiment,
        count(join.step_found),
        count(join.step_not_sampled),
        count(join.without_step)
    )];
    parts.extend((join.mismatched > 0).then(|| format!("{} contradict the steps", count(join.mismatched))));
    let negative = || format!("{} with times in the wrong order", plural(join.negative_delays, "pair"));
    parts.extend((join.negative_delays > 0).then(negative));
    parts.extend(join.delays.iter().map(|(name, delay)| {
        let name = name.trim_end_matches("_us").replace('_', " ");
        format!("{name} {} in the median of {}", duration(delay.median_us), count(delay.count as u64))
    }));
    parts.join("; ")
}

/// Says why a file has nothing to offer.
pub fn unusable(file: &FileReport) -> String {
    let read = kinds(file).into_iter().filter(|(_, _, records)| records.read > 0);
    let read = read.map(|(_, kind, records)| format!("{} {kind}, left out: {}", records.read, records.dropped));
    let read = read.reduce(|one, other| format!("{one}; {other}")).unwrap_or("no steps and no requests".to_owned());
    format!("{}: nothing in it can be used: {read}", file.file)
}
