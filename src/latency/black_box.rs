//! Latency models without a GPU: a linear model ([`BlackBox`]), and fixed delays ([`FixedLatency`]) for tests and for studies of
//! the scheduler alone.

use serde::{Deserialize, Serialize};

use super::{HostTimes, LatencyModel, TransferDirection, non_negative};
use crate::request::Request;
use crate::step::Step;

/// Number of [`BlackBox::COLUMNS`].
const NUM_COLUMNS: usize = 6;

/// `step = beta0 + beta1 · prefill tokens + beta2 · decodes`, `queueing = alpha0 + alpha1 · input length`, a constant per token.
/// A step may also have prices of [`BlackBox::COLUMNS`] that the usual line lacks.
///
/// Model and GPU are whatever the coefficients were fitted on. A decode is one scheduled token on top of a cache
/// ([`Request::is_decode`]). Negative and non-finite coefficients count as 0.
///
/// ```
/// use ridgepoint::{Request, Step};
/// use ridgepoint::latency::{BlackBox, LatencyModel};
/// let line = BlackBox { beta0_us: 5000.0, beta1_us: 10.0, beta2_us: 20.0, ..BlackBox::default() };
/// let batch = [Request::prefill(100, 0), Request::decode(9), Request::decode(900)];
/// assert_eq!(line.step_time_us(&Step::from(&batch)), 6040.0);
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
    /// µs per request with a prefill chunk.
    pub prefill_request_us: f64,
    /// µs per token that the requests of the step have in the cache.
    pub cached_token_us: f64,
    /// µs per decode and token that the requests of the step have in the cache: the number of decodes times that of cached tokens.
    pub decode_cached_token_us: f64,
    /// µs per square of the number of requests in the step.
    pub squared_request_us: f64,
}

impl BlackBox {
    /// Quantities that a step's time may rise with, under their names in training tables.
    pub const COLUMNS: [&str; NUM_COLUMNS] =
        ["prefill_tokens", "num_decode", "num_prefill", "kv_tokens", "decode_tokens*kv_tokens", "batch_size^2"];

    /// The values of [`BlackBox::COLUMNS`] in a step.
    ///
    /// ```
    /// use ridgepoint::Request;
    /// use ridgepoint::latency::BlackBox;
    /// let step = [Request::prefill(100, 20), Request::decode(9), Request::decode(900)];
    /// assert_eq!(BlackBox::columns(&step), [100.0, 2.0, 1.0, 929.0, 2.0 * 929.0, 9.0]);
    /// ```
    pub fn columns(step: &[Request]) -> [f64; NUM_COLUMNS] {
        let cached_tokens = step.iter().map(|request| u64::from(request.num_computed_tokens)).sum();
        Self::columns_with(step, cached_tokens)
    }

    #[inline]
    fn columns_with(step: &[Request], cached_tokens: u64) -> [f64; NUM_COLUMNS] {
        let (mut decodes, mut prefill_tokens) = (0u64, 0u64);
        for request in step {
            if request.is_decode() {
                decodes += 1;
            } else {
                prefill_tokens += u64::from(request.num_scheduled_tokens);
            }
        }
        let (all, decodes, cached_tokens) = (step.len() as f64, decodes as f64, cached_tokens as f64);
        [prefill_tokens as f64, decodes, all - decodes, cached_tokens, decodes * cached_tokens, all * all]
    }

    /// The same delays with these prices of [`BlackBox::COLUMNS`], µs.
    #[must_use]
    pub fn with_prices(self, prices_us: [f64; NUM_COLUMNS]) -> Self {
        let [beta1_us, beta2_us, prefill_request_us, cached_token_us, decode_cached_token_us, squared_request_us] =
            prices_us;
        BlackBox {
            beta1_us,
            beta2_us,
            prefill_request_us,
            cached_token_us,
            decode_cached_token_us,
            squared_request_us,
            ..self
        }
    }

    /// The same prices with the delays of a host around the engine, of which a black box knows three.
    #[must_use]
    pub fn with_host(self, host: &HostTimes) -> Self {
        BlackBox {
            alpha0_us: host.queueing_us + host.front_end_us,
            alpha1_us: host.queueing_us_per_token,
            alpha2_us: host.output_token_us,
            ..self
        }
    }

    /// Every coefficient by its key.
    pub(super) fn by_key(&self) -> [(&'static str, f64); 10] {
        [
            ("beta0_us", self.beta0_us),
            ("beta1_us", self.beta1_us),
            ("beta2_us", self.beta2_us),
            ("alpha0_us", self.alpha0_us),
            ("alpha1_us", self.alpha1_us),
            ("alpha2_us", self.alpha2_us),
            ("prefill_request_us", self.prefill_request_us),
            ("cached_token_us", self.cached_token_us),
            ("decode_cached_token_us", self.decode_cached_token_us),
            ("squared_request_us", self.squared_request_us),
        ]
    }

    fn prices_us(&self) -> [f64; NUM_COLUMNS] {
        [
            self.beta1_us,
            self.beta2_us,
            self.prefill_request_us,
            self.cached_token_us,
            self.decode_cached_token_us,
            self.squared_request_us,
        ]
    }
}

impl LatencyModel for BlackBox {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        let requests = step.requests;
        if requests.is_empty() {
            return 0.0;
        }
        let [beta1_us, beta2_us, others_us @ ..] = self.prices_us();
        let priced_us = if others_us.iter().all(|price| *price <= 0.0) {
            // The usual line. To sum cached tokens, and to price them by 0, would take as long again.
            let [prefill_tokens, decodes, ..] = Self::columns_with(requests, 0);
            non_negative(beta1_us) * prefill_tokens + non_negative(beta2_us) * decodes
        } else {
            let priced = self.prices_us().into_iter().zip(Self::columns(requests));
            priced.map(|(price, of)| non_negative(price) * of).sum()
        };
        (non_negative(self.beta0_us) + priced_us).min(f64::MAX)
    }

    fn host(&self) -> HostTimes {
        HostTimes {
            queueing_us: self.alpha0_us,
            queueing_us_per_token: self.alpha1_us,
            output_token_us: self.alpha2_us,
            ..HostTimes::NONE
        }
    }

    /// None is known.
    fn kv_transfer_time_us(&self, _: TransferDirection, _: u64) -> f64 {
        0.0
    }
}

/// Every step takes the same time, whatever is in it. All fields in µs; negative or not finite counts as 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FixedLatency {
    /// Time of a step with at least one request.
    pub step_us: f64,
    /// [`HostTimes::queueing_time_us`].
    pub queueing_us: f64,
    /// [`HostTimes::output_token_processing_time_us`].
    pub output_token_us: f64,
    /// [`HostTimes::scheduling_processing_time_us`].
    pub scheduling_us: f64,
    /// [`HostTimes::preemption_processing_time_us`].
    pub preemption_us: f64,
}

impl LatencyModel for FixedLatency {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        if step.requests.is_empty() { 0.0 } else { non_negative(self.step_us) }
    }

    fn host(&self) -> HostTimes {
        let FixedLatency { queueing_us, output_token_us, scheduling_us, preemption_us, .. } = *self;
        HostTimes { queueing_us, output_token_us, scheduling_us, preemption_us, ..HostTimes::NONE }
    }

    /// None is known.
    fn kv_transfer_time_us(&self, _: TransferDirection, _: u64) -> f64 {
        0.0
    }
}
