//! The report of `ingest`: what each file held, what was left out of it and why, and what the runs are.

use ridgepoint::units::duration;
use ridgepoint_lab::ingest::{FileReport, Ingestion, JoinedRun, KvEvents, RateBounds, Records, TransferReport};

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
    lay_out_transfers(report, page);
    if !report.metrics.is_empty() {
        let totals = Rows::of(&report.metrics)
            .left("total", |of| of.name.replace('_', " "))
            .right("by /metrics", |of| number(of.server))
            .right("by rows", |of| shown(of.rows, number));
        page.rows(&totals, &[]);
        page.blank();
    }
    for of in &report.cache_hits {
        let queried = of.queried_tokens.map(|tokens| format!(" of {} looked up", number(tokens))).unwrap_or_default();
        let rate = of.rate.map(|rate| format!(", {:.1} %", 100.0 * rate)).unwrap_or_default();
        page.paragraph(
            "hits: ",
            &format!("{}, by {}: {} tokens{queried}{rate}", of.tier, of.source, number(of.hit_tokens)),
        );
    }
}

/// Lays out transfers: their counts, the rates with their intervals, and what could not be paired.
fn lay_out_transfers(report: &Ingestion, page: &mut Page) {
    if !report.transfers.is_empty() {
        let transfers = Rows::of(&report.transfers)
            .left("transfers", |of| of.direction.name().replace('_', " "))
            .left("by", |of| of.source.replace('_', " "))
            .right("count", |of| count(of.count))
            .right("failed", |of| count(of.failed))
            .right("blocks", |of| shown(of.blocks, count))
            .right("bytes", |of| shown(of.bytes, |bytes| quantity(bytes, "B")))
            .right("time", |of| shown(of.median_time_us.or(of.mean_time_us), duration))
            .right("latency", |of| shown(of.latency_us, duration))
            .right("90 % interval", |of| interval(of, |bounds| Some(duration(bounds.latency_us))))
            .right("rate", |of| shown(rate(of.bytes_per_s, of.blocks_per_s), |rate| rate))
            .right("90 % interval", |of| interval(of, |bounds| rate(bounds.bytes_per_s, bounds.blocks_per_s)));
        page.rows(&transfers, &["by", "failed"]);
        page.blank();
    }
    for of in &report.transfer_contention {
        let range = format!("90 % interval {:.1} % to {:.1} %", 100.0 * of.lower, 100.0 * of.upper);
        let contention = format!("{:.1} % of its speed for each direction while both run ({range})", 100.0 * of.factor);
        page.paragraph("contention: ", &contention);
    }
    for of in &report.transfer_faults {
        let left_out: Vec<String> =
            of.faults.descriptions().iter().map(|(number, what)| format!("{} {what}", count(*number))).collect();
        if !left_out.is_empty() {
            page.paragraph("left out: ", &format!("transfers of {}: {}", of.file, left_out.join(", ")));
        }
    }
}

/// A bandwidth, in bytes where they are known.
fn rate(bytes_per_s: Option<f64>, blocks_per_s: Option<f64>) -> Option<String> {
    let bytes = bytes_per_s.map(|rate| quantity(rate, "B/s"));
    bytes.or_else(|| blocks_per_s.map(|rate| quantity(rate, "blocks/s")))
}

fn interval(of: &TransferReport, end: impl Fn(&RateBounds) -> Option<String>) -> String {
    let ends = of.lower.as_ref().and_then(&end).zip(of.upper.as_ref().and_then(&end));
    shown(ends, |(lower, upper)| format!("{lower} to {upper}"))
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

/// The counts of events in a file that contradict others.
fn odd_events(of: &KvEvents) -> String {
    let counts = [
        (of.lost_batches, "lost batches"),
        (of.batches_back_in_time, "batches earlier than the one before"),
        (of.blocks_back_from_cpu, "blocks back from the CPU"),
        (of.unknown_parents, "blocks whose parent was not stored before"),
        (of.other_parents, "blocks with another parent than before"),
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
