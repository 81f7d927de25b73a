//! Judges a prediction by one run's own capture: its arrivals, lengths and prefixes are replayed, and each request's predicted times
//! are compared with the measured ones.

mod counts;
mod distributions;
mod judge;
mod knob;
mod load;
mod queue_wait;
mod read;
mod replayed;
mod times;

pub use counts::WorkCount;
pub use distributions::{
    AtShare, Distributions, GapFigures, GapStatistics, LongerGaps, Sample, Sources, captured_gaps_ms,
};
pub(crate) use judge::NO_TIME_MS;
pub use judge::{CaptureReport, CaptureServer, LimitCheck, REQUEST_COLUMNS, judge_capture, traced_blocks};
pub use knob::{Knob, MAX_STD_DEV_SHARE};
pub use queue_wait::{OtherWaits, QueueWaits};
pub use read::{CapturedRun, read_capture};
pub use replayed::{ReplayedRequest, replayed_requests};
pub use times::{JudgedRequest, RequestTimes};
