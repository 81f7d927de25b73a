//! The time between two sampled steps.

/// The time from the start of a sampled step to the start of the next sampled one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Index of its first step in the trace. Its other steps were not sampled.
    pub first: usize,
    /// Number of steps in it: the difference of the two step numbers, at least 1.
    pub steps: u64,
    /// Duration, µs. For a step whose forward pass the engine timed, that time.
    pub span_us: f64,
}

impl Interval {
    /// Returns the mean time of a step in the interval, µs.
    pub fn period_us(&self) -> f64 {
        self.span_us / self.steps as f64
    }
}
