//! A latency model of constants: for tests, and to see what a scheduler does by itself.

use super::{HostTimes, LatencyModel, non_negative};
use crate::request::Request;

/// Every step takes the same time, whatever is in it. All fields in µs; negative or not finite counts as 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FixedLatency {
    /// Time of a step with at least one request.
    pub step_us: f64,
    /// [`LatencyModel::queueing_time_us`].
    pub queueing_us: f64,
    /// [`LatencyModel::output_token_processing_time_us`].
    pub output_token_us: f64,
    /// [`LatencyModel::scheduling_processing_time_us`].
    pub scheduling_us: f64,
    /// [`LatencyModel::preemption_processing_time_us`].
    pub preemption_us: f64,
}

impl LatencyModel for FixedLatency {
    fn step_time_us(&self, requests: &[Request]) -> f64 {
        if requests.is_empty() { 0.0 } else { non_negative(self.step_us) }
    }

    fn host(&self) -> HostTimes {
        let FixedLatency { queueing_us, output_token_us, scheduling_us, preemption_us, .. } = *self;
        HostTimes { queueing_us, queueing_us_per_token: 0.0, output_token_us, scheduling_us, preemption_us }
    }
}
