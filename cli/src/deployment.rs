//! vLLM's engine arguments as flags, with vLLM's names and defaults.

use clap::Args;
use ridgepoint::arguments::Argument;
use ridgepoint::{DEPLOYMENT_ARGUMENTS, Deployment, Model, Options, StepModel};
use ridgepoint_lab::served::{Served, both};

use crate::common::{Common, PredictionArgs};
use crate::flags::{FlagRows, Flags};
use crate::outcome::Failure;

/// How a model is spread over GPUs and stored there.
#[derive(Debug, Clone)]
pub struct Parallel;

impl FlagRows for Parallel {
    fn rows() -> Vec<&'static Argument> {
        let own = [
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "data_parallel_size",
            "enable_expert_parallel",
            "kv_cache_dtype",
        ];
        DEPLOYMENT_ARGUMENTS.iter().filter(|row| own.contains(&row.name)).collect()
    }
}

/// All arguments of a deployment.
#[derive(Debug, Clone)]
pub struct InDeployment;

impl FlagRows for InDeployment {
    fn rows() -> Vec<&'static Argument> {
        DEPLOYMENT_ARGUMENTS.iter().collect()
    }
}

/// The model, the GPU, the deployment and the options of a step model.
#[derive(Debug, Args)]
pub struct StepModelArgs {
    /// Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder
    #[arg(long, value_name = "NAME|PATH")]
    model: String,
    /// Built-in name (`ridgepoint hardware`), path of a TOML file, or FILE.json#NAME: figures over a known GPU's
    #[arg(long, value_name = "NAME|PATH")]
    hardware: String,
    #[command(flatten)]
    deployment: Flags<InDeployment>,
    #[command(flatten)]
    pub prediction: PredictionArgs,
}

impl StepModelArgs {
    /// Finds the model and the GPU and builds the step model. `operators_only` is that of its options.
    ///
    /// # Errors
    /// Names that are unknown, files that are at fault, a deployment that does not fit the model.
    pub fn open(&self, common: &Common, operators_only: bool) -> Result<Served, Failure> {
        let data_dir = common.data_dir();
        let found =
            both(Model::find_in(data_dir, &self.model), ridgepoint_replay::find_hardware(data_dir, &self.hardware));
        let (model, hardware) = found?;
        let deployment = Deployment::try_from(self.deployment.given.clone())?;
        let options = Options { operators_only, ..self.prediction.options(common)? };
        let steps = StepModel::with_options(&model, &hardware, &deployment, &options)?;
        Ok(Served { model, hardware, deployment, steps })
    }
}
