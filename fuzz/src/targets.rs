//! The registry of targets.

use ridgepoint::input::FileKind;

use crate::{command, core_files, ingest_files, lab_files, laws, streams, whole_runs};

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is that of its corpus's folder.
    pub name: &'static str,
    /// Runs a case. A panic is a finding.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// Every target.
pub fn targets() -> &'static [Target] {
    &TARGETS
}

/// The target of a name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// The names of a kind's targets. A new kind of file does not compile without one.
pub const fn of_kind(kind: FileKind) -> &'static [&'static str] {
    match kind {
        FileKind::ModelConfig | FileKind::QuantisationConfig => &["model_config"],
        FileKind::GenerationConfig => &["generation_config"],
        FileKind::Hardware => &["hardware"],
        FileKind::EfficiencyTable => &["efficiency_table"],
        FileKind::Correction => &["correction"],
        FileKind::LatencyModel => &["latency_model"],
        FileKind::ColdStart => &["start_rates"],
        FileKind::Batch => &["batch"],
        FileKind::ServerConfig => &["server_config"],
        FileKind::Profile => &["profile"],
        FileKind::Requests => &["requests", "requests_csv"],
        FileKind::Grid => &["sweep_grid"],
        FileKind::SweepTable => &["sweep_rows"],
        FileKind::Trace => &[
            "otlp",
            "step_csv",
            "forward_pass",
            "inference_perf",
            "aiperf",
            "sglang_bench",
            "guidellm",
            "vllm_bench",
            "step_table",
            "request_table",
            "token_jsonl",
            "token_table",
            "vllm_log",
            "kv_events",
            "metrics",
        ],
        FileKind::KvEventDump => &["kv_event_dump"],
        FileKind::ServingFigures => &["measured"],
        FileKind::ClosedLoop => &["closed_loop"],
        FileKind::KernelTimings => &["measurements_csv"],
        FileKind::KernelParquet => &["measurements_parquet"],
        FileKind::Certificate => &["certificate"],
        FileKind::Exclusions => &["exclusions"],
        FileKind::PlainText => &["plain_text"],
    }
}

const TARGETS: [Target; 45] = [
    target("model_config", core_files::model_config),
    target("generation_config", core_files::generation_config),
    target("deployment", core_files::deployment),
    target("hardware", core_files::hardware),
    target("correction", core_files::correction),
    target("latency_model", core_files::latency_model),
    target("start_rates", core_files::start_rates),
    target("efficiency_table", core_files::efficiency_table),
    target("server_config", core_files::server_config),
    target("profile", core_files::profile),
    target("requests", core_files::requests),
    target("requests_csv", core_files::requests_csv),
    target("batch", command::batch),
    target("shorthand", command::shorthand),
    target("otlp", ingest_files::otlp),
    target("step_csv", ingest_files::step_csv),
    target("forward_pass", ingest_files::forward_pass),
    target("inference_perf", ingest_files::inference_perf),
    target("aiperf", ingest_files::aiperf),
    target("sglang_bench", ingest_files::sglang_bench),
    target("guidellm", ingest_files::guidellm),
    target("vllm_bench", ingest_files::vllm_bench),
    target("step_table", ingest_files::step_table),
    target("request_table", ingest_files::request_table),
    target("token_jsonl", ingest_files::token_jsonl),
    target("token_table", ingest_files::token_table),
    target("vllm_log", ingest_files::vllm_log),
    target("kv_events", ingest_files::kv_events),
    target("kv_event_dump", ingest_files::kv_event_dump),
    target("metrics", ingest_files::metrics),
    target("measurements_csv", lab_files::measurements_csv),
    target("measurements_parquet", lab_files::measurements_parquet),
    target("certificate", lab_files::certificate),
    target("exclusions", lab_files::exclusions),
    target("measured", lab_files::measured),
    target("closed_loop", lab_files::closed_loop),
    target("sweep_grid", lab_files::sweep_grid),
    target("sweep_rows", lab_files::sweep_rows),
    target("plain_text", core_files::plain_text),
    target("server_sent_events", streams::server_sent_events),
    target("experiment", whole_runs::experiment),
    target("fit_steps", whole_runs::fit_steps),
    target("law_step", laws::step::law),
    target("law_replay", laws::replay::law),
    target("law_sweep", laws::sweep::law),
];
