//! A latency model of constants: for tests, and to see what a scheduler does by itself.

use super::LatencyModel;
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

pub(super) fn non_negative(us: f64) -> f64 {
    if us.is_finite() { us.max(0.0) } else { 0.0 }
}

impl LatencyModel for FixedLatency {
    fn step_time_us(&self, requests: &[Request]) -> f64 {
        if requests.is_empty() { 0.0 } else { non_negative(self.step_us) }
    }
    fn queueing_time_us(&self, _: &Request) -> f64 {
        non_negative(self.queueing_us)
    }
    fn output_token_processing_time_us(&self) -> f64 {
        non_negative(self.output_token_us)
    }
    fn scheduling_processing_time_us(&self) -> f64 {
        non_negative(self.scheduling_us)
    }
    fn preemption_processing_time_us(&self) -> f64 {
        non_negative(self.preemption_us)
    }
}
