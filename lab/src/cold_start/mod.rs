//! Starts of servers: the times that vLLM's log states of them become measured terms, and rates are fitted to those of several starts.

mod fit;
#[cfg(test)]
mod fit_tests;
mod line;
mod log;
#[cfg(test)]
mod log_tests;
mod measured;
mod report;

pub use fit::RateFit;
pub use log::{RankLog, StartLog, read_start_logs};
pub use measured::{MeasuredTime, Quantity};
pub use report::{ColdStartFit, LoggedStart, MeasuredTerm, RankMemory, compare};
