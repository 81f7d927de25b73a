//! `ridgepoint predict-step`: predicts one batch. `batch` and `shorthand` read it, `table` and `explain` lay the prediction out.

mod batch;
mod explain;
mod shorthand;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::step_report::{StepReport, Subject};
use ridgepoint::{EfficiencyMode, Request, StepEstimate};
use serde::{Serialize, Serializer};

use crate::common::{Common, PREDICTION};
use crate::deployment::{Served, StepModelArgs};
use crate::outcome::{Failure, Outcome};
pub use batch::Batch;
pub use shorthand::Item;

const BATCH: &str = "Batch";

/// The arguments of `predict-step`.
#[derive(Debug, Args)]
pub struct PredictStep {
    /// Batch file, `-` for standard input: {"requests": [{"num_computed_tokens": 2048, "num_scheduled_tokens": 1}]}. A request may set
    /// "sampling_params": {"temperature": 0}
    #[arg(long, value_name = "FILE|-", help_heading = BATCH, conflicts_with_all = ["prefill", "decode"])]
    batch: Option<PathBuf>,
    /// Prefill chunks: N (default 1) chunks of Q tokens, each after C (default 0) computed tokens; `:partial` marks a chunk
    /// that does not end its prompt and so samples no token
    #[arg(long, value_name = "[Nx]Q[@C][:partial]", num_args = 1.., value_delimiter = ',', value_parser = Item::prefill)]
    #[arg(help_heading = BATCH, allow_negative_numbers = true)]
    prefill: Vec<Item>,
    /// Decodes: N requests of one new token each, after C computed tokens (also N@C)
    #[arg(long, value_name = "NxC", num_args = 1.., value_delimiter = ',', value_parser = Item::decode)]
    #[arg(help_heading = BATCH, allow_negative_numbers = true)]
    decode: Vec<Item>,
    #[command(flatten)]
    step_model: StepModelArgs,
    /// Explain what limits the slowest operators and what would speed them up
    #[arg(long, help_heading = PREDICTION)]
    explain: bool,
}

/// A prediction with its inputs.
pub struct Prediction {
    served: Arc<Served>,
    step: StepEstimate,
    efficiency: EfficiencyMode,
    /// Sentences on the slowest operators, if asked for.
    explanation: Vec<String>,
}

/// Predicts a step.
///
/// # Errors
/// Input that cannot be read or is at fault.
pub fn run(args: &PredictStep, common: &Common) -> Result<Outcome<Prediction>, Failure> {
    if args.batch.is_none() && args.prefill.is_empty() && args.decode.is_empty() {
        return Err(Failure::usage("no batch: give --batch FILE, or --prefill Q@C and --decode NxC"));
    }
    let served = args.step_model.open(common, true)?;
    let batch = match &args.batch {
        Some(path) => Batch::read(path)?,
        None => Batch::of_items("the command line", [&*args.prefill, &args.decode].concat())?,
    };
    let efficiency = args.step_model.prediction.efficiency;
    Ok(Outcome::of(Prediction::new(Arc::new(served), efficiency, &batch, args.explain)?))
}

impl Prediction {
    /// Predicts a batch; `efficiency` is the one that was asked for. With `explain` there are sentences on the slowest operators.
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
        Ok(Prediction { served, step, efficiency, explanation })
    }

    /// Adds warnings to those of the step.
    #[cfg(feature = "serve")]
    pub fn warn(&mut self, warnings: &[String]) {
        self.step.warnings.extend_from_slice(warnings);
    }
}

impl Serialize for Prediction {
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
