//! What `ingest` says of files and runs; the JSON of its report. Its keys are stable: keys are added, never renamed or dropped.

use std::collections::BTreeMap;

use ridgepoint_lab::ingest::{Dropped, JoinedRun};
use serde::Serialize;

/// What became of the records of one kind in a file.
#[derive(Debug, Default, Serialize)]
pub struct Records {
    /// In the file.
    pub read: u64,
    /// Steps with a time that can be used; requests.
    pub kept: u64,
    /// The rest, by reason.
    pub dropped: Dropped,
}

/// A file that was read.
#[derive(Debug, Serialize)]
pub struct FileReport {
    /// Its path, as given.
    pub file: String,
    /// What it was read as.
    pub format: &'static str,
    /// Its steps.
    pub steps: Records,
    /// Its requests.
    pub requests: Records,
    /// What to know of it.
    pub notes: Vec<String>,
}

/// A run in the tables.
#[derive(Debug, Default, Serialize)]
pub struct RunReport {
    /// Its name.
    pub experiment: String,
    /// Its model.
    pub model: Option<String>,
    /// Its GPU.
    pub hardware: Option<String>,
    /// GPUs that share every layer.
    pub tensor_parallel_size: Option<u32>,
    /// Steps with a time that can be used.
    pub steps: u64,
    /// `period` between starts of steps, or `forward_pass` on the GPU; `None` without steps.
    pub timed: Option<&'static str>,
    /// Median of these times, µs.
    pub median_time_us: Option<f64>,
    /// Requests.
    pub requests: u64,
}

/// A run's requests held against its steps.
#[derive(Debug, Serialize)]
pub struct JoinReport {
    /// Its name.
    pub experiment: String,
    /// Its requests.
    pub requests: u64,
    /// Requests whose first step is in the trace.
    pub step_found: u64,
    /// Requests whose first step was not sampled.
    pub step_not_sampled: u64,
    /// Requests that don't say in which step they were scheduled first.
    pub without_step: u64,
    /// Requests that contradict the steps: not of one engine or clock.
    pub mismatched: u64,
    /// Pairs of times in the wrong order.
    pub negative_delays: u64,
    /// Delays of the host that both times of are known, by name.
    pub delays: BTreeMap<&'static str, Delay>,
}

/// A delay of the host over a run's requests.
#[derive(Debug, Serialize)]
pub struct Delay {
    /// Requests that have both ends of it.
    pub count: usize,
    /// Its median, µs.
    pub median_us: f64,
}

impl JoinReport {
    /// What a join came to; `None` for requests that have nothing to do with an engine's steps, as in clients' reports.
    pub fn of(joined: &JoinedRun) -> Option<Self> {
        let known = joined.delays.medians().into_iter();
        let delays: BTreeMap<&'static str, Delay> =
            known.filter_map(|(name, count, median_us)| Some((name, Delay { count, median_us: median_us? }))).collect();
        let has_steps = joined.without_step < joined.requests;
        (has_steps || !delays.is_empty()).then(|| JoinReport {
            experiment: joined.experiment.clone(),
            requests: joined.requests,
            step_found: joined.step_found,
            step_not_sampled: joined.step_not_sampled,
            without_step: joined.without_step,
            mismatched: joined.mismatched,
            negative_delays: joined.delays.negative,
            delays,
        })
    }
}

/// All that was read and written.
#[derive(Debug, Default, Serialize)]
pub struct Ingestion {
    /// Files in the order of the command line.
    pub files: Vec<FileReport>,
    /// Runs.
    pub runs: Vec<RunReport>,
    /// Requests held against steps, run by run.
    pub joins: Vec<JoinReport>,
    /// Paths of the tables.
    pub written: Vec<String>,
}
