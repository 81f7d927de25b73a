//! Which kind of file it is, and its reader. Uses the readers.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::ingested::Ingested;
use super::{forward_pass, otlp, reports, request_table, step_csv, step_table};
use ridgepoint::internals::error::cut;
use ridgepoint::{Error, Result};

/// As much of a file is looked at, bytes.
const HEAD_BYTES: u64 = 256 << 10;

/// Kinds of files that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenTelemetry's JSON.
    Otlp,
    /// Scheduler steps as csv.
    StepCsv,
    /// vLLM's forward-pass metrics as JSON lines.
    ForwardPass,
    /// inference-perf's report of every request.
    InferencePerf,
    /// guidellm's report.
    Guidellm,
    /// The result of `vllm bench serve --save-detailed`.
    VllmBench,
    /// A step table.
    StepTable,
    /// A request table.
    RequestTable,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 8] = [
        Format::Otlp,
        Format::StepCsv,
        Format::ForwardPass,
        Format::InferencePerf,
        Format::Guidellm,
        Format::VllmBench,
        Format::StepTable,
        Format::RequestTable,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Otlp => "otlp",
            Format::StepCsv => "step-csv",
            Format::ForwardPass => "forward-pass",
            Format::InferencePerf => "inference-perf",
            Format::Guidellm => "guidellm",
            Format::VllmBench => "vllm-bench",
            Format::StepTable => "step-table",
            Format::RequestTable => "request-table",
        }
    }
}

/// The format of a file, by its first 256 KiB.
///
/// # Errors
/// A file that can't be read or is of no known kind.
pub fn detect(path: &Path) -> Result<Format> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| Error::io(path, error))?;
    of_head(&String::from_utf8_lossy(&head)).map_err(|found| {
        let known = Format::ALL.map(Format::name).join(", ");
        let message = format!("{found}, which is none of the known formats ({known})");
        Error::parse(path.display().to_string(), message)
    })
}

/// Reads a file of a format, or of the one that it looks like.
///
/// # Errors
/// Those of the format's reader.
pub fn read(path: &Path, format: Option<Format>) -> Result<Ingested> {
    match format.map_or_else(|| detect(path), Ok)? {
        Format::Otlp => otlp::read(path),
        Format::StepCsv => step_csv::read(path),
        Format::ForwardPass => forward_pass::read(path),
        Format::InferencePerf => reports::inference_perf::read(path),
        Format::Guidellm => reports::guidellm::read(path),
        Format::VllmBench => reports::vllm_bench::read(path),
        Format::StepTable => step_table::read(path),
        Format::RequestTable => request_table::read(path),
    }
}

fn of_head(head: &str) -> std::result::Result<Format, String> {
    let head = head.trim_start_matches('\u{feff}').trim_start();
    if head.is_empty() {
        return Err("is empty".to_owned());
    }
    if head.starts_with(['{', '[']) {
        let keys = first_keys(head);
        return of_keys(&keys, head.starts_with('[')).ok_or_else(|| {
            if keys.is_empty() {
                "is JSON without keys".to_owned()
            } else {
                format!("is JSON that begins with the keys {}", cut(&keys.join(", ")))
            }
        });
    }
    let header = head.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
    let columns: Vec<&str> = header.split(',').map(|cell| cell.trim().trim_matches('"')).collect();
    let has = |column: &str| columns.contains(&column);
    if has("steps_to_next") {
        Ok(Format::StepTable)
    } else if has("arrived_ns") && has("request_id") {
        Ok(Format::RequestTable)
    } else if columns.iter().any(|column| column.starts_with("step.") || column.starts_with("batch.")) {
        Ok(Format::StepCsv)
    } else {
        Err(format!("begins with '{}'", cut(header)))
    }
}

fn of_keys(keys: &[String], is_list: bool) -> Option<Format> {
    let has = |key: &str| keys.iter().any(|known| known == key);
    if ["resourceSpans", "resourceMetrics", "resourceLogs"].into_iter().any(has) {
        Some(Format::Otlp)
    } else if has("timing_scope") || (has("scheduled_requests") && has("wall_time")) {
        Some(Format::ForwardPass)
    } else if has("benchmarks") || has("metadata") && has("args") {
        Some(Format::Guidellm)
    } else if has("input_lens") || (has("num_prompts") && has("backend")) {
        Some(Format::VllmBench)
    } else if has("load_summary")
        || (is_list && has("start_time") && (has("info") || has("request") || has("end_time")))
    {
        Some(Format::InferencePerf)
    } else {
        None
    }
}

/// The keys of the outermost object, or of those in the outermost list, as far as the text goes.
fn first_keys(text: &str) -> Vec<String> {
    const MOST: usize = 100;
    let wanted_depth = if text.starts_with('[') { 2 } else { 1 };
    let mut keys: Vec<String> = Vec::new();
    let (mut depth, mut string, mut last) = (0usize, None::<String>, None::<String>);
    let mut is_escaped = false;
    for letter in text.chars() {
        if let Some(open) = string.as_mut() {
            match letter {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => last = string.take(),
                _ if depth == wanted_depth => open.push(letter),
                _ => {}
            }
            continue;
        }
        match letter {
            '"' => string = Some(String::new()),
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            ':' if depth == wanted_depth => {
                keys.extend(last.take().filter(|key| !keys.contains(key)));
                if keys.len() >= MOST {
                    break;
                }
            }
            _ => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_known_by_its_head() {
        for (head, format) in [
            ("{\"resourceSpans\":[{\"resource\":{\"load_summary\":1", Format::Otlp),
            ("\u{feff}\n[ {\"resourceSpans\": []}]", Format::Otlp),
            ("{\"version\": 1, \"worker_id\": \"a\", \"timing_scope\": \"execute_model_cuda\"}", Format::ForwardPass),
            ("[{\"start_time\": 1.5, \"request\": \"{\\\"benchmarks\\\": 1}\", \"respon", Format::InferencePerf),
            ("{\"load_summary\": {\"count\": 9}}", Format::InferencePerf),
            ("{\"metadata\": {}, \"args\": {\"model\": \"benchmarks\"}", Format::Guidellm),
            ("{\"date\": \"x\", \"backend\": \"vllm\", \"num_prompts\": 5}", Format::VllmBench),
            ("step.id,step.ts_start_ns\n1,2", Format::StepCsv),
            ("batch.decode_tokens,step.id\n1,2", Format::StepCsv),
            ("experiment,step_id,steps_to_next\n", Format::StepTable),
            ("# of a run\nexperiment,request_id,arrived_ns\n", Format::RequestTable),
        ] {
            assert_eq!(of_head(head), Ok(format), "{head}");
        }
    }

    #[test]
    fn what_is_none_says_what_was_found() {
        for (head, found) in [
            ("", "is empty"),
            ("{}", "is JSON without keys"),
            ("{\"data\": [{\"resourceSpans\": 1}]}", "is JSON that begins with the keys data"),
            ("{\"a\": \"resourceSpans\"", "is JSON that begins with the keys a"),
            ("a,b\n1,2", "begins with 'a,b'"),
        ] {
            assert_eq!(of_head(head), Err(found.to_owned()), "{head}");
        }
    }
}
