//! vLLM's log: a line for each iteration becomes a step, and the lines of the start-up become labels of its run.

mod iteration;
mod transfers;

use std::path::Path;

use ridgepoint::{Error, Location, Result};
use ridgepoint_replay::input::for_each_line;
use ridgepoint_replay::server_config::EngineLog;

use self::iteration::{Iteration, MARK, iteration};
use self::transfers::Transfers;
use super::dropped::{DropReason, RowFaults};
use super::format::Format;
use super::server_labels::ServerLog;
use super::step::{ByKey, Run, StepRecord, StepTrace};
use super::unknown_names::UnknownNames;
use super::{Capture, file_name, named_runs};

/// The log.
pub(super) const FORMAT: Format = Format {
    name: "vllm-log",
    about: "vLLM's log with --enable-logging-iteration-details",
    holds_steps: true,
    is_it: |head, text| !head.is_json() && is_log(text),
    read,
};

/// Whether a text begins as a log of vLLM does.
fn is_log(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text.get(..text.len().min(1 << 16)).unwrap_or_default());
    let is_line = |line: &str| {
        let level = ["INFO ", "WARNING ", "ERROR ", "DEBUG "].into_iter().any(|level| line.contains(level));
        level && line.contains(".py:") && (line.starts_with('(') || line.contains("vllm") || line.contains(MARK))
    };
    text.lines().any(is_line)
}

/// The steps of an engine since a start.
#[derive(Default)]
struct Engine {
    start_up: EngineLog,
    steps: Vec<StepRecord>,
}

/// Reads a log. Iterations become steps whose time is the elapsed one, without a clock. Where the KV blocks are known, those in use
/// follow from the usage in each line. A server that starts again, and each engine or process of several, is a run of its own.
///
/// # Errors
/// A file that cannot be read; more than one iteration line in a hundred that is at fault.
pub fn read(path: &Path) -> Result<Capture> {
    let origin = path.display().to_string();
    let mut engines: ByKey<(u32, String, String), Engine> = ByKey::default();
    let (mut start_up, mut starts) = (EngineLog::default(), 0);
    let (mut faults, mut unknown) = (RowFaults::default(), UnknownNames::default());
    let (mut transfers, mut unused_usages, mut empty) = (Transfers::default(), 0_u64, 0);
    for_each_line(path, |number, bytes| {
        let line = String::from_utf8_lossy(bytes);
        if !line.contains(MARK) {
            if EngineLog::begins(&line) && engines.values.iter().any(|engine| !engine.steps.is_empty()) {
                starts += 1;
            }
            start_up.take(&line);
            return transfers.read(&line);
        }
        let found = iteration(&line, &mut unknown)
            .map_err(|problem| Error::parse(Location::of(origin.clone()).line(number), problem));
        let Some(Iteration { engine, process, mut step, kv_usage_pct }) = faults.sound(found) else { return Ok(()) };
        if step.is_empty() {
            empty += 1;
            return Ok(());
        }
        match (start_up.kv_blocks(), kv_usage_pct) {
            (Some(blocks), Some(pct)) => {
                step.kv_blocks_total = Some(blocks);
                step.kv_blocks_free = Some(blocks - used_blocks(blocks, pct));
            }
            (None, Some(_)) => unused_usages += 1,
            (_, None) => {}
        }
        let first = |_| Engine { start_up: start_up.clone(), steps: Vec::new() };
        engines.of((starts, process.to_owned(), engine.to_owned()), first).steps.push(step);
        Ok(())
    })?;
    let of_one = match &engines.values[..] {
        [] => Some(&start_up),
        [one] => Some(&one.start_up),
        _ => None,
    };
    let server = of_one.and_then(|log| ServerLog::new(log, &file_name(path)));
    let mut capture = Capture { copies: transfers.finish(), server, ..Capture::default() };
    if faults.rows() == 0 {
        // The log of a server with other switches still says what the server is.
        let message = "has no line with Iteration(N): start vLLM with --enable-logging-iteration-details";
        capture.notes.extend(start_up.note());
        capture.notes.push(message.to_owned());
        return Ok(capture);
    }
    faults.settle(&origin, &mut capture.dropped_steps)?;
    capture.dropped_steps.add_many(DropReason::Empty, empty);
    capture.notes.extend(unknown.note("parts of iteration lines"));
    if unused_usages > 0 {
        let note = format!(
            "the KV cache usage of {unused_usages} iterations is not read: the log lacks the number of KV blocks, which the \
             start-up lines have"
        );
        capture.notes.push(note);
    }
    for (experiment, Engine { start_up, steps }) in named_runs(&file_name(path), engines.values) {
        capture.notes.extend(start_up.note());
        if steps.iter().any(|step| step.kv_blocks_free.is_some()) {
            let note = format!("free KV blocks of {experiment} are derived from the usage, which is logged to 0.1 %");
            capture.notes.push(note);
        }
        let run = Run { experiment, ..Run::of_server(&start_up) };
        capture.add_steps(StepTrace { run, steps });
    }
    Ok(capture)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the number of blocks")]
fn used_blocks(blocks: u64, usage_pct: f64) -> u64 {
    ((blocks as f64 * usage_pct / 100.0).round() as u64).min(blocks)
}
