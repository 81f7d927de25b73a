//! The report on files and runs that were read. Keys of its JSON are stable: keys are added, never renamed or dropped.

use std::collections::BTreeMap;

use serde::Serialize;

use super::dropped::Dropped;
use super::join::JoinedRun;

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
    /// Its name.
    pub experiment: String,
    /// Its model.
    pub model: Option<String>,
    /// Its GPU.
    pub hardware: Option<String>,
    /// GPUs that share every layer.
    pub tensor_parallel_size: Option<u32>,
    /// Steps with a usable time.
    pub steps: u64,
    /// What the times measure: `period` between starts of steps, or `forward_pass` on the GPU; `None` without steps.
    pub timed: Option<&'static str>,
    /// Median time, µs.
    pub median_time_us: Option<f64>,
    /// Requests.
    pub requests: u64,
}

/// The comparison of a run's requests with its steps.
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
    /// Requests that do not name the step in which they were first scheduled.
    pub without_step: u64,
    /// Requests that contradict the steps: they are not of one engine or clock.
    pub mismatched: u64,
    /// Pairs of times in the wrong order.
    pub negative_delays: u64,
    /// Host delays by name, where both of their times are known.
    pub delays: BTreeMap<&'static str, Delay>,
}

/// A host delay over a run's requests.
#[derive(Debug, Serialize)]
pub struct Delay {
    /// Requests with both times of it.
    pub count: usize,
    /// Its median, µs.
    pub median_us: f64,
}

impl JoinReport {
    /// The report on a join; `None` for requests that have no relation to an engine's steps, such as those of load generators.
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

/// The files read and the tables written.
#[derive(Debug, Default, Serialize)]
pub struct Ingestion {
    /// Files, in the order in which they were given.
    pub files: Vec<FileReport>,
    /// Runs.
    pub runs: Vec<RunReport>,
    /// Comparisons of requests with steps, run by run.
    pub joins: Vec<JoinReport>,
    /// Paths of the tables.
    pub written: Vec<String>,
}
