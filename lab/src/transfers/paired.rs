//! Transfers with both of their events, and the direction that they go.

pub use ridgepoint::latency::TransferDirection as Direction;

/// A transfer whose beginning and end are known, on one clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedTransfer {
    /// Where it goes.
    pub direction: Direction,
    /// When it was submitted, µs.
    pub begun_us: f64,
    /// Estimated end of the last step at which the transfer was still running, µs.
    pub unfinished_us: f64,
    /// The standard deviation of that, µs; 0 where the step is known.
    pub unfinished_sd_us: f64,
    /// The end of the step that noticed its end, above `begun_us`, µs.
    pub noticed_us: f64,
    /// Its blocks.
    pub blocks: u64,
    /// Whether its time counts for the rates; a failed one only occupies its queue.
    pub is_fitted: bool,
}
