//! The calibrated roofline as a latency model: predicted steps, and constants for what the host does around them.

use super::{HostTimes, LatencyModel};
use crate::request::Request;
use crate::step_model::StepModel;

/// A [`StepModel`] with [`HostTimes`] around it.
#[derive(Debug, Clone)]
pub struct CalibratedRoofline {
    steps: StepModel,
    host: HostTimes,
}

impl CalibratedRoofline {
    /// Takes the host's delays from the correction of `steps`, or else their defaults.
    pub fn new(steps: StepModel) -> Self {
        let host = steps.correction().map_or_else(HostTimes::default, |correction| correction.host);
        CalibratedRoofline { steps, host }
    }

    /// Replaces the host's delays.
    #[must_use]
    pub fn with_host(mut self, host: HostTimes) -> Self {
        self.host = host;
        self
    }

    /// The steps.
    pub fn steps(&self) -> &StepModel {
        &self.steps
    }
}

impl LatencyModel for CalibratedRoofline {
    fn step_time_us(&self, requests: &[Request]) -> f64 {
        self.steps.step_time_us(requests)
    }

    fn sharing_step_time_us(&self, requests: &[Request], shared_kv_tokens: u64) -> f64 {
        self.steps.sharing_step_time_us(requests, shared_kv_tokens)
    }

    fn host(&self) -> HostTimes {
        self.host
    }
}
