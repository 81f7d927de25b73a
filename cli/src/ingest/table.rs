//! The report of `ingest`: what each file held, what was left out of it and why, and what the runs are.

use ridgepoint::internals::units::duration;
use ridgepoint_lab::ingest::{FileReport, Ingestion, JoinedRun, Records};

use crate::outcome::Report;
use crate::text::{Page, Rows, count, plural, shown};

impl Report for Ingestion {
    fn lay_out(&self, page: &mut Page) {
        let kinds = || self.files.iter().flat_map(kinds);
        let files = Rows::of(kinds().filter(|(_, _, records)| records.read > 0))
            .left("file", |(file, ..)| file.file.clone())
            .left("as", |(file, ..)| file.format.to_owned())
            .left("of", |(_, kind, _)| (*kind).to_owned())
            .right("read", |(.., records)| count(records.read))
            .right("kept", |(.., records)| count(records.kept))
            .right("left out", |(.., records)| count(records.dropped.total()));
        page.rows(&files, &["as"]);
        page.blank();
        for (file, kind, records) in kinds().filter(|(_, _, records)| records.dropped.total() > 0) {
            page.paragraph("left out: ", &format!("{kind} of {}: {}", file.file, records.dropped));
        }
        let runs = Rows::of(&self.runs)
            .left("run", |of| of.run.experiment.clone())
            .left("model", |of| shown(of.run.model.clone(), |model| model))
            .left("hardware", |of| shown(of.run.hardware.clone(), |hardware| hardware))
            .right("GPUs", |of| shown(of.run.tensor_parallel_size, |size| size.to_string()))
            .right("steps", |of| count(of.steps))
            .right("median time", |of| shown(of.median_time_us, duration))
            .left("of", |of| of.timed.unwrap_or("-").replace('_', " "))
            .right("requests", |of| count(of.requests))
            .right("token times", |of| count(of.token_times));
        page.blank();
        page.rows(&runs, &["hardware", "model"]);
        page.blank();
        for join in &self.joins {
            page.paragraph("joined: ", &joined(join));
        }
        for path in &self.written {
            page.line(&format!("written: {path}"));
        }
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
