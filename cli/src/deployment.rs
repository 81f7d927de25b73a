//! vLLM's engine arguments as flags, with vLLM's names and defaults.

use clap::Args;
use ridgepoint::arguments::{Argument, ArgumentRows, Engines};
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
    #[arg(long, value_name = "NAME|PATH", required_unless_present = "engine_log")]
    model: Option<String>,
    /// Family (`model_type`) whose keys and layers the config.json has, for one of a family that is not known
    #[arg(long, value_name = "NAME")]
    as_family: Option<String>,
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
        let mut logged = self.prediction.logged()?;
        let of_log = logged.remove("model").and_then(|model| Some(model.as_str()?.to_owned()));
        let Some(name) = self.model.as_ref().or(of_log.as_ref()) else {
            return Err(Failure::input("the engine's log does not name the model: give --model".to_owned()));
        };
        let model = Model::find_as(data_dir, name, self.as_family.as_deref());
        let found = both(model, ridgepoint_replay::find_hardware(data_dir, &self.hardware));
        let (model, hardware) = found?;
        let options = Options { operators_only, ..self.prediction.options(common)? };
        let rows = ArgumentRows::new(&[DEPLOYMENT_ARGUMENTS], Engines::ALL);
        let mut given = rows.without(&rows.taken(&mut logged), &self.deployment.given);
        given.extend(self.deployment.given.clone());
        let names = given.keys().cloned().collect();
        let hardware = options.gpu(&hardware)?;
        let deployment = Deployment::try_from(given)?.on(&names, &options.engine, &hardware);
        let steps = StepModel::with_options(&model, &hardware, &deployment, &options)?;
        Ok(Served { model, hardware, deployment, steps })
    }
}
