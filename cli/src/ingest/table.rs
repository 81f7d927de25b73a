//! The report of `ingest`: what each file held, what was left out of it and why, and what the runs are.

use ridgepoint::internals::units::duration;
use ridgepoint_lab::ingest::{FileReport, Ingestion, JoinedRun, KvEvents, Records};

use crate::outcome::Report;
use crate::text::{Page, Rows, count, plural, quantity, shown};

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
        if kinds().any(|(_, _, records)| records.read > 0) {
            page.rows(&files, &["as"]);
            page.blank();
        }
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
        if !self.runs.is_empty() {
            page.blank();
            page.rows(&runs, &["hardware", "model"]);
            page.blank();
        }
        for join in &self.joins {
            page.paragraph("joined: ", &joined(join));
        }
        lay_out_counts(self, page);
        for path in &self.written {
            page.line(&format!("written: {path}"));
        }
    }
}

/// Lays out what has no table in csv: KV events, transfers and totals of `/metrics`.
fn lay_out_counts(report: &Ingestion, page: &mut Page) {
    if !report.kv_events.is_empty() {
        let events = report.kv_events.iter().flat_map(|of| of.events.iter().map(move |event| (of, event)));
        let events = Rows::of(events)
            .left("KV events", |(_, event)| event.event.clone())
            .left("medium", |(_, event)| shown(event.medium.clone(), |medium| medium))
            .right("count", |(_, event)| count(event.count))
            .right("blocks", |(_, event)| count(event.blocks))
            .right("tokens", |(_, event)| count(event.tokens))
            .left("file", |(of, _)| of.file.clone());
        page.rows(&events, &["file"]);
        report.kv_events.iter().for_each(|of| page.paragraph("KV events: ", &odd_events(of)));
        page.blank();
    }
    if !report.transfers.is_empty() {
        let transfers = Rows::of(&report.transfers)
            .left("transfers", |of| of.direction.clone())
            .right("count", |of| count(of.count))
            .right("failed", |of| count(of.failed))
            .right("blocks", |of| shown(of.blocks, count))
            .right("bytes", |of| shown(of.bytes, count))
            .right("latency", |of| shown(of.latency_us, duration))
            .right("rate", |of| shown(of.bytes_per_s, |rate| quantity(rate, "B/s")));
        page.rows(&transfers, &[]);
        page.blank();
    }
    if !report.metrics.is_empty() {
        let totals = Rows::of(&report.metrics)
            .left("total", |of| of.name.replace('_', " "))
            .right("by /metrics", |of| number(of.server))
            .right("by rows", |of| shown(of.rows, number));
        page.rows(&totals, &[]);
        page.blank();
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

/// A total of tokens, bytes or seconds.
fn number(value: f64) -> String {
    if value.fract().abs() > 0.0 { format!("{value:.3}") } else { format!("{value:.0}") }
}

/// What does not fit in the events of a file.
fn odd_events(of: &KvEvents) -> String {
    let counts = [
        (of.lost_batches, "lost batches"),
        (of.unknown_parents, "blocks whose parent was not stored before"),
        (of.other_parents, "blocks with another parent than before"),
        (of.transfers_without_beginning, "transfers without a beginning"),
        (of.unfinished_transfers, "unfinished transfers"),
    ];
    let odd = counts
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("; {} {what}", count(number)));
    format!("{} in {:.1} s of {}{}", plural(of.batches, "batch"), of.duration_s, of.file, odd.collect::<String>())
}

/// Says why a file has nothing to offer.
pub fn unusable(file: &FileReport) -> String {
    let read = kinds(file).into_iter().filter(|(_, _, records)| records.read > 0);
    let read = read.map(|(_, kind, records)| format!("{} {kind}, left out: {}", records.read, records.dropped));
    let read = read.reduce(|one, other| format!("{one}; {other}")).unwrap_or("no steps and no requests".to_owned());
    let read = if file.notes.is_empty() { read } else { format!("{read}; {}", file.notes.join("; ")) };
    format!("{}: nothing in it can be used: {read}", file.file)
}
