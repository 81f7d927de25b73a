//! A batch and its predicted step. `batch` and `shorthand` read the batch, `explain` says what limits the slowest operators.

mod batch;
mod explain;
mod shorthand;

use std::sync::Arc;

use ridgepoint::correction::CorrectionInfo;
use ridgepoint::step_report::{StepReport, Subject};
use ridgepoint::{EfficiencyMode, Request, StepEstimate};
use serde::{Serialize, Serializer};

pub use batch::Batch;
pub use shorthand::Item;

use crate::served::Served;

/// A prediction with its inputs.
pub struct PredictedStep {
    /// The server.
    pub served: Arc<Served>,
    /// Its predicted step.
    pub step: StepEstimate,
    /// Measured or ideal kernel efficiency.
    pub efficiency: EfficiencyMode,
    /// Sentences on the slowest operators, if asked for.
    pub explanation: Vec<String>,
}

impl PredictedStep {
    /// Predicts a batch; `efficiency` is the requested one. With `explain` there are sentences on the slowest operators.
    ///
    /// # Errors
    /// Requests that cannot be.
    pub fn new(
        served: Arc<Served>,
        efficiency: EfficiencyMode,
        batch: &Batch,
        explain: bool,
    ) -> ridgepoint::Result<Self> {
        let single = |request: &Request| served.steps.plan().batch_sums(&[*request]).map(drop);
        let step =
            batch.steps(&served.steps).estimate(&batch.requests()).map_err(|error| batch.refused(error, single))?;
        let explanation = if explain { explain::longest(&step) } else { Vec::new() };
        Ok(PredictedStep { served, step, efficiency, explanation })
    }

    /// Adds warnings to those of the step.
    pub fn warn(&mut self, warnings: &[String]) {
        self.step.warnings.extend_from_slice(warnings);
    }
}

impl Serialize for PredictedStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let subject = Subject {
            model: &self.served.model.name,
            hardware: &self.served.hardware.name,
            deployment: &self.served.deployment,
            serving_engine: self.served.steps.engine(),
            efficiency: self.efficiency,
            correction: CorrectionInfo::of(self.served.steps.correction()),
        };
        StepReport::new(subject, &self.step, &self.explanation).serialize(serializer)
    }
}
