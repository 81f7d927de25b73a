//! What a reader hands over. Uses `step`, `request`, `dropped`.

use super::dropped::Dropped;
use super::request::RequestRow;
use super::step::{Run, StepTrace};

/// A run's requests, in order of arrival where that is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestTrace {
    /// The run.
    pub run: Run,
    /// Its requests.
    pub requests: Vec<RequestRow>,
}

/// Steps and requests out of one file, and the count of what is not among them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ingested {
    /// Steps, run by run.
    pub steps: Vec<StepTrace>,
    /// Requests, run by run.
    pub requests: Vec<RequestTrace>,
    /// Step records in the file.
    pub steps_read: u64,
    /// Request records in the file.
    pub requests_read: u64,
    /// Step records left out.
    pub dropped_steps: Dropped,
    /// Request records left out.
    pub dropped_requests: Dropped,
    /// What to know of the file, in plain words.
    pub notes: Vec<String>,
}
