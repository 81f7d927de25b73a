//! Reads captures of real engines and load generators into two kinds of record: steps and requests. Each format has a reader;
//! unusable records are counted by reason.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

mod capture;
mod dropped;
pub mod folder;
pub mod format;
pub mod formats;
pub mod forward_pass;
mod hash_chains;
mod hits;
pub(crate) mod join;
pub(crate) mod json_stream;
mod kv_counts;
mod kv_events;
mod kv_transfers;
mod list;
mod metrics;
mod other_tools;
pub mod otlp;
mod pace;
mod periods;
#[cfg(test)]
mod periods_tests;
mod report;
pub mod reports;
mod request;
mod request_cell;
mod request_rows;
pub mod request_table;
mod server_labels;
mod server_totals;
mod step;
pub mod step_csv;
pub mod step_table;
#[cfg(test)]
mod step_table_tests;
mod table;
mod token;
mod token_jsonl;
pub mod token_table;
mod unknown_names;
mod vllm_log;
mod whole;

pub use capture::Capture;
pub use dropped::{DropReason, Dropped};
pub use hits::TierHits;
pub use join::{HostDelays, JoinedRun, join};
pub use kv_counts::{EventCount, KvEvents};
pub use kv_transfers::{
    ContentionReport, CopyLog, DirectionLog, RateBounds, TransferFaults, TransferFaultsReport, TransferLog,
    TransferReport, known_rates,
};
pub use list::Numbers;
pub use periods::{Cleaning, Periods, periods};
pub use report::{FileReport, Ingestion, Records, RunReport, Tables};
pub use request::{RequestRow, RequestTrace, disagreeing_chains, own_sampling};
pub use request_cell::{read_chunks, read_count};
pub use server_labels::ServerLog;
pub use server_totals::{MetricsReply, Total};
pub(crate) use server_totals::{counted, totals};
pub use step::{Interval, Run, StepRecord, StepTrace};
pub(crate) use table::write_rows;
pub(crate) use token::gaps_ns;
pub use token::{Chunk, RequestTokens, TokenTrace};
pub use whole::Whole;

/// The name of a file without its extension and that of gzip, which names a run that has no other name.
pub(crate) fn file_name(path: &std::path::Path) -> String {
    let unpacked = if path.extension().is_some_and(|extension| extension == "gz") {
        path.with_extension("")
    } else {
        path.to_owned()
    };
    unpacked.file_stem().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The runs of one file with their names: the file's own, followed by a number where there are several.
pub(crate) fn named_runs<T>(name: &str, runs: Vec<T>) -> impl Iterator<Item = (String, T)> {
    let is_one = runs.len() == 1;
    let numbered = move |(index, run)| (if is_one { name.to_owned() } else { format!("{name}/{index}") }, run);
    runs.into_iter().enumerate().map(numbered)
}

/// Converts seconds from 0 to nanoseconds. Whole seconds and the rest are converted apart, so that unix times keep their digits.
fn seconds_to_ns(seconds: f64) -> u64 {
    let ns_per_s = ridgepoint::units::NS_PER_S;
    (seconds.trunc() as u64).saturating_mul(ns_per_s).saturating_add((seconds.fract() * ns_per_s as f64).round() as u64)
}
