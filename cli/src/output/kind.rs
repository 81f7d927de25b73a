//! The kinds of files that the command writes. The beginning of a file identifies its kind.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ridgepoint_lab::evaluate::capture::REQUEST_COLUMNS;
use ridgepoint_lab::ingest::{request_table, step_table, token_table};

/// A kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `simulate --output-json`.
    BenchResult,
    /// `simulate --output-csv`.
    RequestTimes,
    /// `simulate --trace`.
    Trace,
    /// `simulate --output-tokens`, `probe --out`.
    TokenLines,
    /// `probe --markdown`.
    #[cfg(feature = "probe")]
    ProbeReport,
    /// `simulate --output-otlp`.
    Otlp,
    /// `evaluate capture --output-csv`.
    JudgedRequests,
    /// `sweep --out`.
    SweepRows,
    /// `steps.csv` of `ingest --out`.
    StepTable,
    /// `requests.csv` of `ingest --out`.
    RequestTable,
    /// `tokens.csv` of `ingest --out`.
    TokenTable,
    /// `ingest --output-transfers`.
    TransferRates,
    /// `fit --out`. No file is replaced because it looks like one: a fit costs hours.
    Correction,
    /// A table of `fit --training-tables`.
    TrainingTable,
    /// A latency model of `fit --training-tables`.
    LatencyModel,
    /// `cold-start --out`.
    StartRates,
    /// `export --out`.
    StepModelTables,
    /// A file of `calibrate --out`.
    EfficiencyTable,
    /// A file of `evaluate --plot`.
    Plot,
    /// A file of `plan --write`.
    Manifest,
}

/// What a file of `plan --write` begins with, but for the first line of a script.
pub const MANIFEST: &str = "# ridgepoint plan: ";

/// The part of a file that is looked at. It holds the first row of any kind.
const HEAD_BYTES: u64 = 64 << 10;

/// The first bytes of a gzip file.
#[cfg(feature = "probe")]
const GZIP: &[u8] = &[0x1f, 0x8b];

/// The unpacked beginning of a gzip file, or the file itself.
#[cfg(feature = "probe")]
fn unpacked(head: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    // The beginning ends in the middle of the stream.
    let _ = flate2::read::GzDecoder::new(head).take(HEAD_BYTES).read_to_end(&mut text);
    if text.is_empty() { head.to_vec() } else { text }
}

impl Kind {
    /// The name of a file of this kind in messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::BenchResult => "a result of `ridgepoint simulate --output-json`",
            Kind::RequestTimes => "a table of `ridgepoint simulate --output-csv`",
            Kind::Trace => "a trace of `ridgepoint simulate --trace`",
            Kind::TokenLines => "a capture of `ridgepoint simulate --output-tokens` or `ridgepoint probe`",
            #[cfg(feature = "probe")]
            Kind::ProbeReport => "a report of `ridgepoint probe --markdown`",
            Kind::Otlp => "a trace of `ridgepoint simulate --output-otlp`",
            Kind::JudgedRequests => "a table of `ridgepoint evaluate capture`",
            Kind::SweepRows => "a table of `ridgepoint sweep`",
            Kind::StepTable => "a step table of `ridgepoint ingest`",
            Kind::RequestTable => "a request table of `ridgepoint ingest`",
            Kind::TokenTable => "a token table of `ridgepoint ingest`",
            Kind::TransferRates => "a file of `ridgepoint ingest --output-transfers`",
            Kind::Correction => "a correction",
            Kind::TrainingTable => "a table of `ridgepoint fit --training-tables`",
            Kind::LatencyModel => "a latency model of `ridgepoint fit --training-tables`",
            Kind::StartRates => "a file of `ridgepoint cold-start --out`",
            Kind::StepModelTables => "a file of `ridgepoint export`",
            Kind::EfficiencyTable => "an efficiency table of `ridgepoint calibrate`",
            Kind::Plot => "a plot of `ridgepoint evaluate`",
            Kind::Manifest => "a file of `ridgepoint plan --write`",
        }
    }

    /// Whether the file may be replaced without being asked: it is empty, or begins as those that ridgepoint writes.
    pub fn is_that_of(self, path: &Path) -> bool {
        let mut head = Vec::new();
        let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
        #[cfg(feature = "probe")]
        if head.starts_with(GZIP) {
            head = unpacked(&head);
        }
        read.is_ok() && self != Kind::Correction && (head.is_empty() || self.begins(&String::from_utf8_lossy(&head)))
    }

    fn begins(self, head: &str) -> bool {
        // The layout of JSON does not count.
        let json = |start: &str, keys: &[&str]| {
            let packed: String = head.chars().filter(|character| !character.is_ascii_whitespace()).collect();
            packed.starts_with(start) && keys.iter().all(|key| packed.contains(key))
        };
        match self {
            Kind::Correction => false,
            Kind::BenchResult => json(r#"{"backend":"ridgepoint","#, &[]),
            Kind::RequestTimes => head.starts_with("request,stage,outcome,prompt_tokens,"),
            Kind::Trace => json(r#"{"displayTimeUnit":"ms","traceEvents":[{"#, &[r#""args":{"name":"engine"}"#]),
            Kind::TokenLines => json(r#"{"meta":{"#, &[r#""source":"ridgepoint"#]),
            #[cfg(feature = "probe")]
            Kind::ProbeReport => head.starts_with(crate::probe::markdown::TITLE),
            Kind::Otlp => json(r#"{"resourceSpans":[{"#, &[r#"{"stringValue":"ridgepoint"}"#]),
            Kind::JudgedRequests => head.lines().next() == Some(REQUEST_COLUMNS),
            Kind::SweepRows => {
                let keys = [r#""configuration":"#, r#""status":"#, r#""limits_broken":"#];
                // A shard may have no configuration.
                let is_empty = head.trim_end() == "[]";
                is_empty
                    || head.starts_with("configuration,status,reason,")
                    || json(r#"[{""#, &keys)
                    || json(r#"{""#, &keys)
            }
            Kind::StepTable => head.lines().next() == Some(*step_table::COLUMNS),
            Kind::RequestTable => head.lines().next().is_some_and(|header| request_table::COLUMNS.starts_with(header)),
            Kind::TokenTable => head.lines().next() == Some(*token_table::COLUMNS),
            Kind::TransferRates => json(r#"{"gpu_to_cpu":{"latency_us":"#, &[r#""contention":"#]),
            Kind::TrainingTable => ["alpha_latency_ms,prompt_tokens,", "step_duration_us,num_prefill,"]
                .iter()
                .any(|start| head.starts_with(start)),
            Kind::LatencyModel => head.starts_with("method = \"") && head.contains("\n[black_box]\n"),
            Kind::StartRates => head.starts_with("model = \"") && head.contains("\n[cold_start."),
            Kind::StepModelTables => json(r#"{"version":"#, &[r#""ridgepoint_version":"#]),
            Kind::EfficiencyTable => head.starts_with("# operator = ") && head.contains("\n# unit = \"efficiency: "),
            Kind::Plot => head.starts_with("<svg width=\""),
            Kind::Manifest => head.trim_start_matches("#!/bin/sh\n").starts_with(MANIFEST),
        }
    }
}
