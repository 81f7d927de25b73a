//! The tables of some files and the report on them. Keys of its JSON are stable: keys are added, never renamed or dropped.

use std::collections::BTreeSet;
use std::path::Path;

use ridgepoint::Result;
use serde::Serialize;

use super::capture::Capture;
use super::dropped::Dropped;
use super::format::Format;
use super::hits::{TierHits, hits};
use super::join::{JoinedRun, join};
use super::kv_counts::KvEvents;
use super::kv_transfers::{BlockBytes, ContentionReport, FileTransfers, TransferFaultsReport, TransferReport, reports};
use super::periods::{Cleaning, periods};
use super::request::{RequestTrace, disagreeing_chains};
use super::server_totals::{MetricsReply, Total, copies, totals};
use super::step::{ByRun, Run, StepTrace};
use super::step_table::TableRun;
use super::token::TokenTrace;

/// Counts of the records of one kind in a file.
#[derive(Debug, Default, Serialize)]
pub struct Records {
    /// Records in the file.
    pub read: u64,
    /// Steps with a usable time, or requests.
    pub kept: u64,
    /// The other records, by reason.
    pub dropped: Dropped,
}

/// A file that was read.
#[derive(Debug, Serialize)]
pub struct FileReport {
    /// Its path, as given.
    pub file: String,
    /// Its format.
    pub format: &'static str,
    /// Its steps.
    pub steps: Records,
    /// Its requests.
    pub requests: Records,
    /// Remarks.
    pub notes: Vec<String>,
}

/// A run in the tables.
#[derive(Debug, Default, Serialize)]
pub struct RunReport {
    /// Its labels.
    #[serde(flatten)]
    pub run: Run,
    /// Steps with a usable time.
    pub steps: u64,
    /// What the times measure: `period` between starts of steps, or `forward_pass` on the GPU; `None` without steps.
    pub timed: Option<&'static str>,
    /// Median time, µs.
    pub median_time_us: Option<f64>,
    /// Requests.
    pub requests: u64,
    /// Chunks of tokens with a time.
    pub token_times: u64,
    /// The file that holds its steps.
    #[serde(skip)]
    steps_file: Option<String>,
    /// The file that holds its requests.
    #[serde(skip)]
    requests_file: Option<String>,
    /// The file that holds its tokens.
    #[serde(skip)]
    tokens_file: Option<String>,
}

/// The files read and the tables written.
#[derive(Debug, Default, Serialize)]
pub struct Ingestion {
    /// Files, in the order in which they were given.
    pub files: Vec<FileReport>,
    /// Runs.
    pub runs: Vec<RunReport>,
    /// Comparisons of requests with steps, run by run.
    pub joins: Vec<JoinedRun>,
    /// Counts of KV events, file by file.
    pub kv_events: Vec<KvEvents>,
    /// Transfers of KV blocks by file and direction.
    pub transfers: Vec<TransferReport>,
    /// By how much both directions slow each other down, file by file.
    pub transfer_contention: Vec<ContentionReport>,
    /// Events of transfers without a usable time, file by file.
    pub transfer_faults: Vec<TransferFaultsReport>,
    /// Prefix cache hits by tier.
    pub cache_hits: Vec<TierHits>,
    /// Totals of the server between two replies of `/metrics`, compared with those of the rows.
    pub metrics: Vec<Total>,
    /// Paths of the tables.
    pub written: Vec<String>,
}

/// Steps and requests of some files, by run, and the report on them.
#[derive(Debug, Default)]
pub struct Tables {
    /// Runs of steps with their times.
    pub steps: Vec<TableRun>,
    /// Runs of requests.
    pub requests: Vec<RequestTrace>,
    /// Runs of tokens.
    pub tokens: Vec<TokenTrace>,
    /// The report.
    pub report: Ingestion,
    /// Runs that two files hold with the same labels; in a table they would be one.
    pub twins: Vec<String>,
    /// What replies of `/metrics` say, in the order of the files.
    metrics: Vec<MetricsReply>,
    /// What the files say of transfers, in their order.
    transfers: Vec<FileTransfers>,
    /// The sizes of a KV block that the files name, tokens.
    block_sizes: BTreeSet<u64>,
    /// The runs, while files are added.
    runs: ByRun<RunReport>,
}

impl Tables {
    /// Adds what a file holds. `label` changes the labels of its runs.
    pub fn add(&mut self, file: &str, format: Format, capture: Capture, cleaning: &Cleaning, label: &dyn Fn(&mut Run)) {
        let records =
            |read: u64, dropped: &Dropped| Records { read, kept: read - dropped.total(), dropped: dropped.clone() };
        let mut steps = records(capture.steps_read(), &capture.dropped_steps);
        let requests = records(capture.requests_read(), &capture.dropped_requests);
        let mut notes = capture.notes;
        for mut trace in capture.steps.into_iter().filter(|trace| !trace.steps.is_empty()) {
            label(&mut trace.run);
            let periods = periods(&trace, cleaning);
            let of_run = self.run(&trace.run, file, |run| &mut run.steps_file);
            of_run.steps = periods.intervals().count() as u64;
            of_run.median_time_us = periods.median_period_us();
            of_run.timed = Some(if trace.is_timed() { "forward_pass" } else { "period" });
            let dropped = periods.dropped();
            steps.kept -= dropped.total();
            steps.dropped.merge(&dropped);
            self.steps.push(TableRun { trace, periods });
        }
        for mut trace in capture.requests.into_iter().filter(|trace| !trace.requests.is_empty()) {
            label(&mut trace.run);
            self.run(&trace.run, file, |run| &mut run.requests_file).requests = trace.requests.len() as u64;
            notes.extend(disagreeing_chains(&trace.requests));
            self.requests.push(trace);
        }
        for mut trace in capture.tokens {
            label(&mut trace.run);
            let chunks: usize = trace.requests.iter().map(|request| request.chunks.len()).sum();
            self.run(&trace.run, file, |run| &mut run.tokens_file).token_times = chunks as u64;
            self.tokens.push(trace);
        }
        self.block_sizes.extend(capture.kv_events.iter().flat_map(|of| &of.block_sizes));
        self.report.kv_events.extend(capture.kv_events.map(|of| KvEvents { file: file.to_owned(), ..of }));
        self.block_sizes.extend(capture.server.and_then(|server| server.block_size));
        self.block_sizes.extend(capture.metrics.as_ref().and_then(|reply| reply.block_size));
        let (mut events, copies) = (capture.transfers, capture.copies);
        events.iter_mut().for_each(|log| label(&mut log.run));
        if events.is_some() || copies.is_some() {
            self.transfers.push(FileTransfers { file: file.to_owned(), events, copies });
        }
        self.metrics.extend(capture.metrics);
        let (file, format) = (file.to_owned(), format.name);
        self.report.files.push(FileReport { file, format, steps, requests, notes });
    }

    /// The report on a run that is in `file`; `holder` is where the report keeps that file.
    fn run(&mut self, run: &Run, file: &str, holder: fn(&mut RunReport) -> &mut Option<String>) -> &mut RunReport {
        let report = self.runs.of(run.clone(), |run| RunReport { run, ..RunReport::default() });
        if let Some(other) = holder(report).replace(file.to_owned()) {
            self.twins.push(format!("{other} and {file}: both hold a run '{}' with the same labels", run.experiment));
        }
        report
    }

    /// Compares the totals of `/metrics` with those of the rows, once all files are added. `since_start` takes a single reply for all that its
    /// server did.
    ///
    /// # Errors
    /// Replies that are not of before and after a run, or several with `since_start`.
    pub fn add_totals(&mut self, since_start: bool) -> std::result::Result<(), String> {
        match &self.metrics[..] {
            [one] if since_start => self.metrics.push(one.at_start()),
            [_, second, ..] if since_start => {
                return Err(format!(
                    "{}: a second reply of /metrics: what happened since the start is in one",
                    second.file
                ));
            }
            _ => {}
        }
        let steps: usize = self.steps.iter().map(|run| run.trace.steps.len()).sum();
        self.report.metrics = totals(&self.metrics, &self.requests, (steps > 0).then_some(steps as u64))?;
        if let (Some(copies), Some(reply)) = (copies(&self.report.metrics), self.metrics.last()) {
            self.transfers.push(FileTransfers { file: reply.file.clone(), events: None, copies: Some(copies) });
        }
        self.report.cache_hits = hits(&self.report.metrics, &self.report.kv_events, &self.requests, self.block_size());
        Ok(())
    }

    /// The tokens of a KV block, if the files name one size.
    fn block_size(&self) -> Option<u64> {
        self.block_sizes.first().copied().filter(|_| self.block_sizes.len() == 1)
    }

    /// Fits the rates of transfers, once all files are added and have their totals; returns remarks. Blocks have `block_bytes` on each GPU, or what
    /// model, GPUs and block size of the files make of them.
    ///
    /// # Errors
    /// Those of the solver.
    pub fn fit_transfers(&mut self, block_bytes: Option<f64>, data_dir: Option<&Path>) -> Result<Vec<String>> {
        let block = BlockBytes { given: block_bytes, block_size: self.block_size(), data_dir };
        let found = reports(std::mem::take(&mut self.transfers), block)?;
        self.report.transfers = found.transfers;
        self.report.transfer_contention = found.contention;
        self.report.transfer_faults = found.faults;
        Ok(found.notes)
    }

    /// Whether files say something that has no table.
    pub fn has_counts(&self) -> bool {
        !self.report.kv_events.is_empty() || !self.transfers.is_empty() || !self.metrics.is_empty()
    }

    /// Compares requests with steps, once all files are added. Steps are left out if none of them has a usable time; returns
    /// whether one has.
    pub fn compare(&mut self) -> bool {
        let mut runs = std::mem::take(&mut self.runs).values;
        let is_timed = runs.iter().any(|run| run.steps > 0);
        if !is_timed {
            self.steps.clear();
            runs.retain(|run| run.requests > 0 || run.token_times > 0);
            runs.iter_mut().for_each(|run| run.timed = None);
        }
        self.report.runs = runs;
        let steps: Vec<&StepTrace> = self.steps.iter().map(|run| &run.trace).collect();
        self.report.joins = join(&steps, &self.requests).into_iter().filter(JoinedRun::has_engine).collect();
        is_timed
    }
}
