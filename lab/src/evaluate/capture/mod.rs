//! Judges a prediction by one run's own capture: its arrivals, lengths and prefixes are replayed, and each request's predicted times
//! stand beside the measured ones.

mod judge;
mod load;
mod read;
mod times;

pub use judge::{CaptureReport, CaptureServer, JudgedRequest, REQUEST_COLUMNS, Verdict, judge_capture};
pub use read::{CapturedRun, read_capture};
pub use times::RequestTimes;
