//! The kinds of files that are read, and how much of each.
#![expect(clippy::indexing_slicing, reason = "there is a row for every kind")]

use Limit::{Bytes, Records};

/// A kind of file that this program reads. Each has one limit and one parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A model's `config.json`.
    ModelConfig,
    /// The `hf_quant_config.json` next to it.
    QuantisationConfig,
    /// The `generation_config.json` next to it.
    GenerationConfig,
    /// A GPU in TOML.
    Hardware,
    /// An efficiency table in csv with a TOML header.
    EfficiencyTable,
    /// A correction in TOML.
    Correction,
    /// A fitted black box in TOML.
    LatencyModel,
    /// Fitted rates of a start in TOML.
    ColdStart,
    /// The requests of one step in JSON.
    Batch,
    /// The settings of a server in YAML or JSON.
    ServerConfig,
    /// A load profile in YAML or JSON.
    Profile,
    /// The requests of a load in csv, jsonl or a benchmark's JSON.
    Requests,
    /// The grid of a sweep in TOML.
    Grid,
    /// The rows of a sweep in csv, JSON or jsonl.
    SweepTable,
    /// A trace of an engine, a report of a load generator, or a table of steps or requests.
    Trace,
    /// KV events in msgpack, each batch behind its length.
    KvEventDump,
    /// The figures of a serving run in csv.
    ServingFigures,
    /// Closed-loop runs in csv.
    ClosedLoop,
    /// Kernel timings in csv.
    KernelTimings,
    /// A public table of kernel timings in parquet.
    KernelParquet,
    /// The `meta.toml` next to kernel timings.
    Certificate,
    /// The exclusions of calibration in TOML.
    Exclusions,
    /// A prompt, a token or a key: text without a form.
    PlainText,
}

/// How much of a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Most bytes of a file that is read whole.
    Bytes(u64),
    /// Most records of a file that is read record by record; its length does not matter.
    Records(u64),
}

const MIB: u64 = 1 << 20;

/// Each kind in words, and how much of such a file is read.
const KINDS: [(FileKind, &str, Limit); 23] = [
    (FileKind::ModelConfig, "model's config.json", Bytes(16 * MIB)),
    (FileKind::QuantisationConfig, "model's hf_quant_config.json", Bytes(16 * MIB)),
    (FileKind::GenerationConfig, "model's generation_config.json", Bytes(MIB)),
    (FileKind::Hardware, "hardware file", Bytes(MIB)),
    (FileKind::EfficiencyTable, "table of efficiencies", Bytes(64 * MIB)),
    (FileKind::Correction, "correction", Bytes(MIB)),
    (FileKind::LatencyModel, "latency model", Bytes(MIB)),
    (FileKind::ColdStart, "file of fitted start-up rates", Bytes(MIB)),
    (FileKind::Batch, "batch", Bytes(256 * MIB)),
    (FileKind::ServerConfig, "server configuration", Bytes(16 * MIB)),
    (FileKind::Profile, "load profile", Bytes(16 * MIB)),
    (FileKind::Requests, "request file", Records(100_000_000)),
    (FileKind::Grid, "grid", Bytes(4 * MIB)),
    (FileKind::SweepTable, "table of a sweep", Bytes(512 * MIB)),
    (FileKind::Trace, "trace or report", Records(20_000_000)),
    (FileKind::KvEventDump, "dump of KV events", Records(20_000_000)),
    (FileKind::ServingFigures, "file of measured figures", Records(1_000_000)),
    (FileKind::ClosedLoop, "file of closed-loop runs", Records(1_000_000)),
    (FileKind::KernelTimings, "file of kernel timings", Records(10_000_000)),
    (FileKind::KernelParquet, "parquet table", Bytes(256 * MIB)),
    (FileKind::Certificate, "meta.toml", Bytes(MIB)),
    (FileKind::Exclusions, "file of exclusions", Bytes(MIB)),
    (FileKind::PlainText, "text", Bytes(16 * MIB)),
];

impl FileKind {
    /// Returns every kind.
    pub fn all() -> impl Iterator<Item = FileKind> {
        KINDS.into_iter().map(|(kind, ..)| kind)
    }

    /// Returns what such a file is, in words.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Returns how much of such a file is read.
    pub fn limit(self) -> Limit {
        KINDS[self as usize].2
    }

    /// Returns whether such a file is no text.
    pub fn is_binary(self) -> bool {
        matches!(self, FileKind::KernelParquet | FileKind::KvEventDump)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_where_their_number_says() {
        for (index, kind) in FileKind::all().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
