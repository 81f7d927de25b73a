//! Latency models without a GPU: the black box that every simulator starts from, a straight line per delay; and constants, for
//! tests and to see what a scheduler does by itself.

use serde::{Deserialize, Serialize};

use super::{HostTimes, LatencyModel, non_negative};
use crate::request::Request;

/// `step = beta0 + beta1 · prefill tokens + beta2 · decodes`, `queueing = alpha0 + alpha1 · input length`, a constant per token.
///
/// KV length, model and GPU are whatever the coefficients were fitted on. A decode is one scheduled token on top of a cache
/// ([`Request::is_decode`]). Negative and non-finite coefficients count as 0.
///
/// ```
/// use ridgepoint::Request;
/// use ridgepoint::latency::{BlackBox, LatencyModel};
/// let line = BlackBox { beta0_us: 5000.0, beta1_us: 10.0, beta2_us: 20.0, ..BlackBox::default() };
/// assert_eq!(line.step_time_us(&[Request::prefill(100, 0), Request::decode(9), Request::decode(900)]), 6040.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BlackBox {
    /// µs per step.
    pub beta0_us: f64,
    /// µs per scheduled token of a prefill chunk.
    pub beta1_us: f64,
    /// µs per decode.
    pub beta2_us: f64,
    /// µs per request before it can be scheduled.
    pub alpha0_us: f64,
    /// µs per prompt token before a request can be scheduled.
    pub alpha1_us: f64,
    /// µs from the end of a step until the client has its token.
    pub alpha2_us: f64,
}

impl LatencyModel for BlackBox {
    fn step_time_us(&self, requests: &[Request]) -> f64 {
        if requests.is_empty() {
            return 0.0;
        }
        let (mut decodes, mut prefill_tokens) = (0u64, 0u64);
        for request in requests {
            if request.is_decode() {
                decodes += 1;
            } else {
                prefill_tokens += u64::from(request.num_scheduled_tokens);
            }
        }
        non_negative(self.beta0_us)
            + non_negative(self.beta1_us) * prefill_tokens as f64
            + non_negative(self.beta2_us) * decodes as f64
    }

    fn host(&self) -> HostTimes {
        HostTimes {
            queueing_us: self.alpha0_us,
            queueing_us_per_token: self.alpha1_us,
            output_token_us: self.alpha2_us,
            ..HostTimes::NONE
        }
    }
}

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
        HostTimes { queueing_us, output_token_us, scheduling_us, preemption_us, ..HostTimes::NONE }
    }
}
