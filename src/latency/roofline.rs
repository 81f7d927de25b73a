//! The calibrated roofline as a latency model: predicted steps, and constants for what the host does around them.

use std::sync::Arc;

use super::{HostTimes, KvTransfers, LatencyModel, TransferDirection};
use crate::correction::Correction;
use crate::error::{Error, Result};
use crate::step::Step;
use crate::step_model::StepModel;

/// A [`StepModel`] with [`HostTimes`] around it.
#[derive(Debug, Clone)]
pub struct CalibratedRoofline {
    steps: StepModel,
    host: HostTimes,
    kv_transfers: Option<KvTransfers>,
}

impl CalibratedRoofline {
    /// Takes the host's delays from the correction of `steps`, or else their defaults by the deployment's `host_speed`, and the times of KV transfers from the GPU's link
    /// to its host.
    pub fn new(steps: StepModel) -> Self {
        let host = HostTimes::of(&steps);
        let kv_transfers = steps.host_link().map(KvTransfers::assumed);
        CalibratedRoofline { steps, host, kv_transfers }
    }

    /// Replaces the host's delays.
    #[must_use]
    pub fn with_host(mut self, host: HostTimes) -> Self {
        self.host = host;
        self
    }

    /// Replaces the times of KV transfers, for a link that was measured; `None` keeps them.
    #[must_use]
    pub fn with_kv_transfers(mut self, measured: impl Into<Option<KvTransfers>>) -> Self {
        self.kv_transfers = measured.into().or(self.kv_transfers);
        self
    }

    /// The same server without what drafts tokens for its steps.
    #[must_use]
    pub fn without_draft(mut self) -> Self {
        self.steps = self.steps.without_draft();
        self
    }

    /// The same with another correction, and its host's delays.
    #[must_use]
    pub fn with_correction(self, correction: Arc<Correction>) -> Self {
        let steps = self.steps.with_correction(correction);
        CalibratedRoofline { host: HostTimes::of(&steps), steps, ..self }
    }

    /// Returns the times of KV transfers; `None` if the GPU's file has no link to the host and no times were given.
    pub fn kv_transfers(&self) -> Option<KvTransfers> {
        self.kv_transfers
    }

    /// Time to copy `bytes` of KV blocks between the GPU and host memory, as [`LatencyModel::kv_transfer_time_us`] has it, µs.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for a chip whose link to the host is not known, for which that method answers 0.
    pub fn known_kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> Result<f64> {
        if self.kv_transfers.is_none() {
            let problem = "has no host_link, which a copy of KV blocks takes: add [host_link] with kind, unidirectional_bytes_per_s, source \
                           and retrieved to its file, or give measured times";
            return Err(Error::invalid("the GPU", vec![problem.to_owned()]));
        }
        Ok(self.kv_transfer_time_us(direction, bytes))
    }

    /// The steps.
    pub fn steps(&self) -> &StepModel {
        &self.steps
    }
}

impl HostTimes {
    /// The delays around the steps of a server: those that a correction of one's own has measured, or else those of hosts like it, by the
    /// deployment's `host_speed`.
    pub fn of(steps: &StepModel) -> Self {
        let factor = steps.plan().host_speed.factor();
        match steps.correction() {
            Some(correction) if !correction.is_builtin() => correction.host,
            Some(correction) => correction.host.scaled(factor),
            None => HostTimes::default().scaled(factor),
        }
    }
}

impl LatencyModel for CalibratedRoofline {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        self.steps.step_time_us(step) + self.steps.draft_time_us(step)
    }

    fn host(&self) -> HostTimes {
        self.host
    }

    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        self.kv_transfers.map_or(0.0, |transfers| transfers.time_us(direction, bytes))
    }
}
