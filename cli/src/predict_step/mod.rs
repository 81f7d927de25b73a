//! `ridgepoint predict-step`: predicts one batch. `batch` and `shorthand` read it, `table` and `explain` lay the prediction out.

mod batch;
mod explain;
mod shorthand;
mod table;

use std::path::PathBuf;

use clap::Args;
use ridgepoint::internals::correction::Correction;
use ridgepoint::internals::step_report::{StepReport, Subject};
use ridgepoint::{Deployment, EfficiencyMode, Hardware, Model, Options, Request, StepEstimate, StepModel};
use serde::{Serialize, Serializer};

use crate::common::{Common, PREDICTION, PredictionArgs};
use crate::deployment::DeploymentArgs;
use crate::outcome::{Failure, Outcome, both};
use batch::Batch;
use shorthand::Item;

const BATCH: &str = "Batch";

/// The arguments of `predict-step`.
#[derive(Debug, Args)]
pub struct PredictStep {
    /// Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder
    #[arg(long, value_name = "NAME|PATH")]
    model: String,
    /// Built-in name (`ridgepoint hardware`) or path of a TOML file
    #[arg(long, value_name = "NAME|PATH")]
    hardware: String,
    /// Batch file, `-` for standard input: {"requests": [{"num_computed_tokens": 2048, "num_scheduled_tokens": 1}]}
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
    deployment: DeploymentArgs,
    #[command(flatten)]
    prediction: PredictionArgs,
    /// Explain what limits the slowest operators and what would speed them up
    #[arg(long, help_heading = PREDICTION)]
    explain: bool,
}

/// A prediction with what it was made from.
pub struct Prediction {
    model: Model,
    hardware: Hardware,
    deployment: Deployment,
    step: StepEstimate,
    efficiency: EfficiencyMode,
    correction: Option<Correction>,
    /// Sentences on the slowest operators, if asked for.
    explanation: Vec<String>,
}

/// Predicts a step.
///
/// # Errors
/// Input that cannot be read or is at fault.
pub fn run(args: &PredictStep, common: &Common) -> Result<Outcome<Prediction>, Failure> {
    if args.batch.is_none() && args.prefill.is_empty() && args.decode.is_empty() {
        return Err(Failure::missing("no batch: give --batch FILE, or --prefill Q@C and --decode NxC"));
    }
    let data_dir = common.data_dir();
    let (model, hardware) = both(Model::find_in(data_dir, &args.model), Hardware::find_in(data_dir, &args.hardware))?;
    let deployment = args.deployment.deployment();
    let options = Options { operators_only: true, ..args.prediction.options(common) };
    let steps = StepModel::with_options(&model, &hardware, &deployment, &options)?;
    let batch = match &args.batch {
        Some(path) => Batch::read(path)?,
        None => Batch::from_flags(&args.prefill, &args.decode)?,
    };
    let single = |request: &Request| steps.plan().batch_shape(&[*request]).map(drop);
    let step = steps.estimate(&batch.requests()).map_err(|error| batch.refused(&error, single))?;
    let explanation = if args.explain { explain::longest(&step) } else { Vec::new() };
    let (efficiency, correction) = (args.prediction.efficiency, steps.correction().cloned());
    Ok(Outcome::of(Prediction { model, hardware, deployment, step, efficiency, correction, explanation }))
}

impl Serialize for Prediction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let subject = Subject {
            model: &self.model.name,
            hardware: &self.hardware.name,
            deployment: &self.deployment,
            efficiency: self.efficiency,
            correction: self.correction.as_ref(),
        };
        StepReport::new(subject, &self.step, &self.explanation).serialize(serializer)
    }
}
