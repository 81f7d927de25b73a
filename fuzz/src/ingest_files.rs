//! Targets of traces and reports. Whatever was read becomes tables, and what was written is read again.

use std::path::Path;
use std::sync::LazyLock;

use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::{Deployment, StepModel};
use ridgepoint_lab::cold_start::{compare, read_start_logs};
use ridgepoint_lab::evaluate::capture::{CaptureServer, judge_capture, read_capture};
use ridgepoint_lab::evaluate::steps::reconstruct;
use ridgepoint_lab::ingest::format::Format;
use ridgepoint_lab::ingest::formats::FORMATS;
use ridgepoint_lab::ingest::{Cleaning, RequestRow, StepTrace, Tables, request_table, step_table, token_table};
use ridgepoint_replay::EngineConfig;
use ridgepoint_replay::cold_start::{FittedRates, Rates, Storage};

use crate::sane::{H100, LLAMA, finite, ideal};
use crate::scratch;

/// Tokens of a KV block.
const BLOCK_SIZE: u32 = 16;

/// The server on which every captured run is replayed.
static SERVER: LazyLock<CaptureServer> = LazyLock::new(|| {
    let deployment = Deployment::default();
    let engine = EngineConfig { max_num_seqs: 8, ..EngineConfig::new(&deployment, 4096, 500) };
    let steps = StepModel::with_options(&LLAMA, &H100, &deployment, &ideal()).unwrap();
    let latency = CalibratedRoofline::new(steps);
    CaptureServer { engine, blocks_are_given: true, max_concurrency: None, latency, fitted: None }
});

/// OpenTelemetry spans as JSON.
pub fn otlp(bytes: &[u8]) {
    read_as("otlp", bytes);
}

/// Scheduler steps as csv.
pub fn step_csv(bytes: &[u8]) {
    read_as("step-csv", bytes);
}

/// Forward passes as jsonl.
pub fn forward_pass(bytes: &[u8]) {
    read_as("forward-pass", bytes);
}

/// Reports of inference-perf.
pub fn inference_perf(bytes: &[u8]) {
    read_as("inference-perf", bytes);
}

/// Records of AIPerf.
pub fn aiperf(bytes: &[u8]) {
    read_as("aiperf", bytes);
}

/// Details of SGLang's load generator.
pub fn sglang_bench(bytes: &[u8]) {
    read_as("sglang-bench", bytes);
}

/// Reports of GuideLLM.
pub fn guidellm(bytes: &[u8]) {
    read_as("guidellm", bytes);
}

/// Reports of `vllm bench serve`.
pub fn vllm_bench(bytes: &[u8]) {
    read_as("vllm-bench", bytes);
}

/// Our own table of steps, also with the times that it has.
pub fn step_table(bytes: &[u8]) {
    let path = read_as("step-table", bytes);
    if let Ok(runs) = step_table::read_runs(&path) {
        for run in &runs {
            reconstruct(&run.trace);
        }
        rewritten("steps.csv", &|out| step_table::write(out, &runs), &|path| {
            let again = step_table::read_runs(path).expect("a table that was written can be read");
            written(&|out| step_table::write(out, &again).unwrap())
        });
    }
}

/// Our own table of requests.
pub fn request_table(bytes: &[u8]) {
    read_as("request-table", bytes);
}

/// Per-token JSONL, also as gzip.
pub fn token_jsonl(bytes: &[u8]) {
    let path = read_as("token-jsonl", bytes);
    judge(&path);
}

/// Our own table of tokens.
pub fn token_table(bytes: &[u8]) {
    read_as("token-table", bytes);
}

/// vLLM's log, of its steps and of its starts.
pub fn vllm_log(bytes: &[u8]) {
    let path = read_as("vllm-log", bytes);
    let Ok(mut starts) = read_start_logs(&path) else { return };
    // A mutated log may have thousands of starts and report sizes that no model is split by.
    starts.truncate(4);
    let prior = Rates::new(&H100, Storage::Nvme, None);
    if let Ok(fit) = compare(&starts, (&LLAMA, &H100), &Deployment::default(), &ideal(), &prior) {
        finite(&fit);
        if let Ok(text) = fit.fitted.to_toml_string() {
            FittedRates::from_toml_str("written.toml", &text).expect("fitted rates that were written can be read");
        }
    }
}

/// KV events as JSON lines.
pub fn kv_events(bytes: &[u8]) {
    read_as("kv-events", bytes);
}

/// KV events in msgpack.
pub fn kv_event_dump(bytes: &[u8]) {
    read_as("kv-event-dump", bytes);
}

/// A reply of `/metrics`.
pub fn metrics(bytes: &[u8]) {
    read_as("metrics", bytes);
}

/// Replays what was captured.
pub fn judge(path: &Path) {
    let Ok(run) = read_capture(&[path.to_owned()], None) else { return };
    let is_short = |row: &RequestRow| row.num_output_tokens.is_none_or(|tokens| tokens.get() < 1000);
    if run.requests.len() < 100
        && run.requests.iter().all(is_short)
        && let Ok(report) = judge_capture(run, SERVER.clone(), None, &mut [])
    {
        report.write_requests(std::io::sink()).expect("a table in memory");
        finite(&report);
    }
}

/// Reads a file in this format and, if it is taken for another one, in that.
fn read_as(name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = scratch::write("capture", bytes);
    let own = Format::named(name).unwrap_or_else(|| panic!("no format {name} among {FORMATS:?}"));
    read(own, &path);
    match Format::detect(&path) {
        Ok(format) if format.name != own.name => read(format, &path),
        _ => {}
    }
    path
}

fn read(format: Format, path: &Path) {
    let Ok(capture) = format.read(path) else { return };
    assert!(capture.steps_read() >= capture.dropped_steps.total(), "more steps were dropped than read");
    capture.steps.iter().for_each(reconstruct);
    let mut tables = Tables::default();
    tables.add("capture", format, capture, &Cleaning::default(), &|_| ());
    let _ = tables.add_totals(false);
    let _ = tables.fit_transfers(Some(1e6), None);
    tables.compare();
    finite(&tables.report);
    if !tables.steps.is_empty() && tables.twins.is_empty() {
        rewritten("steps.csv", &|out| step_table::write(out, &tables.steps), &|path| {
            let again = step_table::read_runs(path).expect("the table of steps that was written can be read");
            written(&|out| step_table::write(out, &again).unwrap())
        });
    }
    if !tables.tokens.is_empty() && tables.twins.is_empty() {
        rewritten("tokens.csv", &|out| token_table::write(out, &tables.tokens), &|path| {
            let again = token_table::read(path).expect("the table of tokens that was written can be read");
            written(&|out| token_table::write(out, &again.tokens).unwrap())
        });
    }
    if !tables.requests.is_empty() && tables.twins.is_empty() {
        rewritten("requests.csv", &|out| request_table::write(out, &tables.requests), &|path| {
            let again = request_table::read(path).expect("the table of requests that was written can be read");
            assert_eq!(again.dropped_requests.total(), 0, "rows that were written are dropped");
            written(&|out| request_table::write(out, &again.requests).unwrap())
        });
    }
}

fn reconstruct(trace: &StepTrace) {
    for step in &trace.steps {
        reconstruct::requests(step, BLOCK_SIZE);
    }
}

fn written(write: &dyn Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

/// A table that is written, read and written again has the same bytes. One with a zero byte is not written.
fn rewritten(name: &str, write: &dyn Fn(&mut Vec<u8>) -> std::io::Result<()>, again: &dyn Fn(&Path) -> Vec<u8>) {
    let mut first = Vec::new();
    if write(&mut first).is_err() {
        return;
    }
    let second = again(&scratch::write(name, &first));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&second), text(&first), "a table that was read is written otherwise");
}
