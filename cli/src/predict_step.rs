//! `ridgepoint predict-step`: one batch, one prediction. Uses `batch`, `report` and the library's step model.

use clap::error::ErrorKind;
use ridgepoint::Options;
use ridgepoint::internals::correction::Correction;
use ridgepoint::internals::efficiency::EfficiencyMode;
use ridgepoint::internals::step_report::{StepReport, Subject};
use ridgepoint::{Hardware, Model, StepModel};

use super::args::{Common, Efficiency, Format, PredictStep};
use super::batch::Batch;
use super::output::{Failure, Output, both};
use crate::report::{explain, step_table};

/// A prediction with what it was made from, as the reports show it.
pub struct Prediction {
    /// The model.
    pub model: Model,
    /// The GPU.
    pub hardware: Hardware,
    /// The deployment.
    pub deployment: ridgepoint::Deployment,
    /// Sums over the batch.
    pub batch: ridgepoint::physics::BatchShape,
    /// The prediction.
    pub step: ridgepoint::StepEstimate,
    /// How efficient kernels are taken to be.
    pub efficiency: EfficiencyMode,
    /// What real engines taught, on top of the tables.
    pub correction: Option<Correction>,
    /// Sentences on the longest operators, if asked for.
    pub explanation: Vec<String>,
}

/// Predicts a step.
///
/// # Errors
/// Input that can't be read or can't be.
pub fn run(args: &PredictStep, common: &Common) -> Result<Output, Failure> {
    if args.batch.is_none() && args.prefill.is_empty() && args.decode.is_empty() {
        return Err(Failure::usage(
            ErrorKind::MissingRequiredArgument,
            "predict-step",
            "no batch: give --batch FILE, or --prefill Q@C and --decode NxC",
        ));
    }
    let data_dir = common.data_dir.as_deref();
    let (model, hardware) = both(Model::find_in(data_dir, &args.model), Hardware::find_in(data_dir, &args.hardware))?;
    let deployment = args.deployment.deployment();
    let efficiency = match args.efficiency {
        Efficiency::Tables => EfficiencyMode::Tables,
        Efficiency::Ideal => EfficiencyMode::Ideal,
    };
    let options = Options {
        efficiency,
        data_dir: common.data_dir.clone(),
        correction: args.correction.as_str().into(),
        operators_only: true,
    };
    let step_model = StepModel::with_options(&model, &hardware, &deployment, &options)?;

    let batch = match &args.batch {
        Some(path) => Batch::read(path)?,
        None => Batch::from_flags(&args.prefill, &args.decode)?,
    };
    let plan = step_model.plan();
    let step = step_model
        .try_step_time(&batch.requests)
        .map_err(|error| batch.refused(&error, |request| plan.batch_shape(&[*request]).map(|_| ())))?;
    let shape = plan.batch_shape(&batch.requests)?;
    let explanation = if args.explain { explain::longest(&step, plan, &shape, &hardware) } else { Vec::new() };
    let correction = step_model.correction().cloned();
    let prediction =
        Prediction { model, hardware, deployment, batch: shape, step, efficiency, correction, explanation };
    match common.format {
        Format::Table => Ok(Output::of(step_table::render(&prediction))),
        Format::Json => Output::json(&as_json(&prediction)),
    }
}

fn as_json(prediction: &Prediction) -> StepReport<'_> {
    let subject = Subject {
        model: prediction.model.name(),
        hardware: prediction.hardware.name(),
        deployment: &prediction.deployment,
        efficiency: prediction.efficiency,
        correction: prediction.correction.as_ref(),
    };
    StepReport::new(subject, &prediction.batch, &prediction.step).explained(&prediction.explanation)
}
