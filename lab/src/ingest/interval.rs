//! The times of steps: intervals between the starts of sampled steps.

use serde::Serialize;

use super::dropped::{Dropped, Reason};
use crate::stats::median;

/// The time from the start of a sampled step to the start of the next sampled one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Index of its first step in the trace. Its other steps were not sampled.
    pub first: usize,
    /// Number of steps in it: the difference of the two step numbers, at least 1.
    pub steps: u64,
    /// Duration, µs. For a step whose forward pass the engine timed, that time.
    pub span_us: f64,
}

impl Interval {
    /// Mean time of a step in the interval, µs.
    pub fn period_us(&self) -> f64 {
        self.span_us / self.steps as f64
    }
}

/// A step without a usable time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Index among the trace's steps.
    pub step: usize,
    /// Why it has none.
    pub reason: Reason,
}

/// The times of a trace. Each step is either in `intervals` or in `left_out`, both in the trace's order.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Periods {
    /// Usable times.
    pub intervals: Vec<Interval>,
    /// Steps without one.
    pub left_out: Vec<LeftOut>,
}

impl Periods {
    /// Steps left out, by reason.
    pub fn dropped(&self) -> Dropped {
        let mut dropped = Dropped::default();
        self.left_out.iter().for_each(|left_out| dropped.add(left_out.reason));
        dropped
    }

    /// Median of the intervals' periods, µs; `None` without intervals.
    pub fn median_period_us(&self) -> Option<f64> {
        median(self.intervals.iter().map(Interval::period_us).collect())
    }
}
