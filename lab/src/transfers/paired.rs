//! Transfers with both of their events, and the direction that they go.

use serde::{Deserialize, Serialize};

/// Where the blocks of a transfer go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// A store.
    GpuToCpu,
    /// A load.
    CpuToGpu,
}

impl Direction {
    /// Both, in the order of reports.
    pub const BOTH: [Direction; 2] = [Direction::GpuToCpu, Direction::CpuToGpu];

    /// Returns the direction between two media, by vLLM's names in any case; `None` for other media.
    pub fn between(from: &str, to: &str) -> Option<Self> {
        let is = |medium: &str, name: &str| medium.eq_ignore_ascii_case(name);
        match () {
            () if is(from, "GPU") && is(to, "CPU") => Some(Direction::GpuToCpu),
            () if is(from, "CPU") && is(to, "GPU") => Some(Direction::CpuToGpu),
            () => None,
        }
    }

    /// Returns the name in reports and files.
    pub fn name(self) -> &'static str {
        match self {
            Direction::GpuToCpu => "gpu_to_cpu",
            Direction::CpuToGpu => "cpu_to_gpu",
        }
    }
}

/// A transfer whose beginning and end are known, on one clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedTransfer {
    /// Where it goes.
    pub direction: Direction,
    /// When it was submitted, µs.
    pub begun_us: f64,
    /// About the end of the step before, which did not notice its end, µs.
    pub unfinished_us: f64,
    /// The standard deviation of that, µs; 0 where the step is known.
    pub unfinished_sd_us: f64,
    /// The end of the step that noticed its end, above `begun_us`, µs.
    pub noticed_us: f64,
    /// Its blocks.
    pub blocks: u64,
    /// Whether its time tells the rates; a failed one only holds its queue.
    pub is_fitted: bool,
}
