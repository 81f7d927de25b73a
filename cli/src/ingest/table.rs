//! The report of `ingest`: what each file held, what was left out of it and why, and what the runs are.

use ridgepoint::internals::units::duration;
use ridgepoint_lab::ingest::{Dropped, Ingestion, JoinReport, Records};

use crate::text::{count, plural, rendered, table, width, wrap};

/// The whole report.
pub fn render(ingestion: &Ingestion) -> String {
    let mut out = String::new();
    let mut files = table(&["file", "as", "of", ">read", ">kept", ">left out"]);
    for file in &ingestion.files {
        for (what, records) in [("steps", &file.steps), ("requests", &file.requests)] {
            if records.read > 0 {
                files.add_row(line(&file.file, file.format, what, records));
            }
        }
    }
    out.push_str(&rendered(files, &["as"]));
    out.push('\n');
    for file in &ingestion.files {
        for (what, records) in [("steps", &file.steps), ("requests", &file.requests)] {
            if records.dropped.total() > 0 {
                let text = format!("{} of {}: {}", what, file.file, reasons(&records.dropped));
                out.push_str(&wrap("left out: ", &text, width()));
            }
        }
    }
    let mut runs = table(&["run", "model", "hardware", ">GPUs", ">steps", ">median time", "of", ">requests"]);
    for run in &ingestion.runs {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        runs.add_row([
            run.experiment.clone(),
            or_dash(&run.model),
            or_dash(&run.hardware),
            run.tensor_parallel_size.map_or_else(|| "-".to_owned(), |size| size.to_string()),
            count(run.steps),
            run.median_time_us.map_or_else(|| "-".to_owned(), duration),
            run.timed.unwrap_or("-").replace('_', " "),
            count(run.requests),
        ]);
    }
    out.push('\n');
    out.push_str(&rendered(runs, &["hardware", "model"]));
    out.push('\n');
    for join in &ingestion.joins {
        out.push_str(&wrap("joined: ", &joined(join), width()));
    }
    for path in &ingestion.written {
        out.push_str(&format!("written: {path}\n"));
    }
    out
}

fn joined(join: &JoinReport) -> String {
    let mut text = format!(
        "{} of '{}', first step in the trace {}, not sampled {}, not said {}",
        plural(join.requests, "request"),
        join.experiment,
        count(join.step_found),
        count(join.step_not_sampled),
        count(join.without_step)
    );
    if join.mismatched > 0 {
        text.push_str(&format!("; {} contradict the steps", count(join.mismatched)));
    }
    if join.negative_delays > 0 {
        text.push_str(&format!("; {} with times in the wrong order", plural(join.negative_delays, "pair")));
    }
    for (name, delay) in &join.delays {
        let name = name.trim_end_matches("_us").replace('_', " ");
        text.push_str(&format!(
            "; {name} {} in the median of {}",
            duration(delay.median_us),
            count(delay.count as u64)
        ));
    }
    text
}

fn line(file: &str, format: &str, what: &str, records: &Records) -> [String; 6] {
    [
        file.to_owned(),
        format.to_owned(),
        what.to_owned(),
        count(records.read),
        count(records.kept),
        count(records.dropped.total()),
    ]
}

/// Counts by reason: `13 warm-up, 1 gap`.
pub fn reasons(dropped: &Dropped) -> String {
    let all: Vec<String> =
        dropped.iter().map(|(reason, rows)| format!("{} {}", count(rows), reason.name().replace('_', " "))).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}
