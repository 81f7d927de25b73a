//! Assumptions about a GPU that widen the interval of a step: by how far its time is from that under the opposite.

use std::sync::Arc;

use super::{CorrectionChoice, Options, StepModel};
use crate::correction::{Correction, SDS_OF_90_PCT};
use crate::deployment::Deployment;
use crate::error::Result;
use crate::hardware::Hardware;
use crate::model::Model;
use crate::physics::BatchSums;

/// Half of the change that a power limit makes is its 90 % interval (assumed).
const OF_POWER_LIMIT: f64 = 0.5;
/// With peer access that is assumed, the 90 % interval reaches the time under the opposite (assumed).
const OF_PEER_ACCESS: f64 = 1.0;

/// One assumption about the GPU.
#[derive(Debug, Clone)]
pub(super) struct Assumption {
    /// The steps under the opposite.
    opposite: Arc<StepModel>,
    /// Half width of the 90 % interval by the change that the assumption makes.
    half_width: f64,
}

impl Assumption {
    /// The assumptions about a GPU that options have set up: the effect of a power limit, and peer access by the card's kind.
    ///
    /// # Errors
    /// Those of the step model of an opposite.
    pub fn all(
        model: &Model,
        hardware: &Hardware,
        deployment: &Deployment,
        options: &Options,
        correction: Option<&Arc<Correction>>,
    ) -> Result<Vec<Self>> {
        let peers = hardware.peer_access();
        let mut opposites = Vec::new();
        if let Some(unlimited) = hardware.without_power_limit() {
            let settled = peers.map_or_else(|| unlimited.clone(), |peers| unlimited.with_peer_access(peers.is_there));
            opposites.push((settled, OF_POWER_LIMIT));
        }
        if let Some(peers) = peers.filter(|peers| peers.is_assumed && deployment.num_gpus() > 1) {
            let mut other = hardware.with_peer_access(!peers.is_there);
            // Its peaks are those of the same limit, which it does not question again.
            other.power_limit_watt = None;
            opposites.push((other, OF_PEER_ACCESS));
        }
        let options = Options {
            correction: correction.map_or(CorrectionChoice::None, |of| CorrectionChoice::Given(of.clone())),
            power_limit_watt: None,
            peer_access: None,
            operators_only: true,
            ..options.clone()
        };
        let built = opposites.into_iter().map(|(gpu, half_width)| {
            let steps = StepModel::with_options(model, &gpu, deployment, &options)?;
            Ok(Assumption { opposite: Arc::new(steps), half_width })
        });
        built.collect()
    }

    /// The same assumption about other steps.
    pub fn map(&self, change: impl Fn(&StepModel) -> StepModel) -> Self {
        Assumption { opposite: Arc::new(change(&self.opposite)), half_width: self.half_width }
    }
}

impl StepModel {
    /// Relative standard deviation of a step's time from assumptions about the GPU; 0 without any.
    pub(super) fn assumed_sd(&self, batch: &BatchSums, time_us: f64) -> f64 {
        let of = |assumption: &Assumption| {
            let change_us = time_us - assumption.opposite.time_us_by_operator(batch);
            assumption.half_width * (change_us / time_us).abs() / SDS_OF_90_PCT
        };
        self.assumptions.iter().map(of).fold(0.0, f64::hypot)
    }
}
