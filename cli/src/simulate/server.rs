//! The server of a replay: its arguments, put over those of its file, and what a replay runs on.

use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser;
use ridgepoint::replay::SchedulingPolicy;
use ridgepoint::server_config::{Engine, ServerConfig};
use ridgepoint::{Deployment, Hardware, Model, StepModel};

use crate::common::{Common, PredictionArgs, one_of};
use crate::deployment::DeploymentArgs;
use crate::outcome::{Failure, both};

const SERVER: &str = "Server";
const SCHEDULER: &str = "Scheduler and KV cache (vLLM's engine arguments)";

/// The model, the GPU and vLLM's engine arguments.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Server file: flat YAML or JSON with `model`, `hardware` and vLLM's engine arguments; flags override it
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub config: Option<PathBuf>,
    /// Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder
    #[arg(long, value_name = "NAME|PATH", required_unless_present = "config", help_heading = SERVER)]
    model: Option<String>,
    /// Built-in name (`ridgepoint hardware`) or path of a TOML file
    #[arg(long, value_name = "NAME|PATH", required_unless_present = "config", help_heading = SERVER)]
    hardware: Option<String>,
    #[command(flatten)]
    deployment: DeploymentArgs,

    /// Number of KV blocks; auto computes it from the memory equation even if --config gives one
    #[arg(long, value_name = "N|auto", value_parser = blocks, allow_negative_numbers = true, help_heading = SCHEDULER)]
    num_gpu_blocks_override: Option<Blocks>,
    /// GiB of each GPU's weights that stay in host memory [default: 0]
    #[arg(long, value_name = "GIB", allow_negative_numbers = true, help_heading = SCHEDULER)]
    cpu_offload_gb: Option<f64>,
    /// Reuse KV blocks of equal prompt prefixes (on by default)
    #[arg(long, overrides_with = "no_enable_prefix_caching", help_heading = SCHEDULER)]
    enable_prefix_caching: bool,
    /// Compute every prompt from its start
    #[arg(long, overrides_with = "enable_prefix_caching", help_heading = SCHEDULER)]
    no_enable_prefix_caching: bool,
    /// Split prompts over several steps (on by default)
    #[arg(long, overrides_with = "no_enable_chunked_prefill", help_heading = SCHEDULER)]
    enable_chunked_prefill: bool,
    /// Schedule each prompt in one step
    #[arg(long, overrides_with = "enable_chunked_prefill", help_heading = SCHEDULER)]
    no_enable_chunked_prefill: bool,
    /// Schedule the next step while one runs (on by default)
    #[arg(long, overrides_with = "no_async_scheduling", help_heading = SCHEDULER)]
    async_scheduling: bool,
    /// Schedule a step only after the previous one has ended
    #[arg(long, overrides_with = "async_scheduling", help_heading = SCHEDULER)]
    no_async_scheduling: bool,
    /// Most tokens of one prompt in a step; 0 sets no limit [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = SCHEDULER)]
    long_prefill_token_threshold: Option<u32>,
    /// Several servers
    #[arg(long, hide = true, value_name = "N", value_parser = replicas)]
    replicas: Option<u32>,
    /// Draft tokens
    #[arg(long, hide = true, value_name = "JSON", value_parser = speculation)]
    speculative_config: Option<String>,
    /// Order of waiting requests [default: fcfs]
    #[arg(long, value_parser = policy(), value_name = "POLICY", help_heading = SCHEDULER)]
    scheduling_policy: Option<SchedulingPolicy>,
}

fn replicas(_: &str) -> Result<u32, String> {
    Err("several servers behind a router are not modelled; --data-parallel-size replays one replica with its share of the \
         load"
        .to_owned())
}

fn speculation(_: &str) -> Result<String, String> {
    Err("speculative decoding is not modelled (README, Limits)".to_owned())
}

/// KV blocks as given on the command line; `None` stands for auto.
type Blocks = Option<u32>;

fn blocks(text: &str) -> Result<Blocks, String> {
    match text.parse::<u32>() {
        Ok(blocks) if blocks > 0 => Ok(Some(blocks)),
        _ if text == "auto" => Ok(None),
        _ => Err("must be a whole number of blocks, at least 1, or auto".to_owned()),
    }
}

fn policy() -> impl TypedValueParser<Value = SchedulingPolicy> {
    one_of([
        ("fcfs", "First come, first served", SchedulingPolicy::Fcfs),
        ("priority", "Lowest priority value first", SchedulingPolicy::Priority),
    ])
}

/// A switch by its two flags, else as in the file.
fn switch(on: bool, off: bool, in_file: Option<bool>) -> Option<bool> {
    (on || off).then_some(on).or(in_file)
}

/// What a replay runs on.
pub struct Server {
    /// The model.
    pub model: Model,
    /// The GPU.
    pub hardware: Hardware,
    /// Scheduler and KV cache.
    pub engine: Engine,
    /// How the model is served.
    pub deployment: Deployment,
    /// Predicts the steps.
    pub steps: StepModel,
    /// Remarks.
    pub notes: Vec<String>,
}

impl ServerArgs {
    /// Finds model and GPU, checks the server and builds its step model.
    ///
    /// # Errors
    /// Names and files that cannot be found; a server that does not fit or cannot run.
    pub fn open(&self, prediction: &PredictionArgs, common: &Common) -> Result<Server, Failure> {
        let (server, mut notes) = self.config()?;
        let ((model, precision_notes), hardware) =
            both(server.find_model(common.data_dir()), server.find_hardware(common.data_dir()))?;
        let engine = server.engine_config(&model, &hardware)?;
        let options = prediction.options(common);
        let steps = StepModel::with_options(&model, &hardware, &server.deployment, &options)?;
        notes.extend(precision_notes);
        notes.extend(steps.notes().iter().cloned());
        notes.extend(engine.notes.iter().cloned());
        Ok(Server { model, hardware, deployment: server.deployment, engine, steps, notes })
    }

    /// The file's server with the flags put over it, and remarks.
    fn config(&self) -> Result<(ServerConfig, Vec<String>), Failure> {
        let (model, hardware) = (self.model.as_deref(), self.hardware.as_deref());
        let of_file = match &self.config {
            Some(path) => ServerConfig::read_for(path, model, hardware)?,
            None => ServerConfig::new("the command line", model.unwrap_or_default(), hardware.unwrap_or_default()),
        };
        let mut server = of_file.clone();
        if model.is_some() {
            // The file's precision is that of its own model.
            server.precision = None;
        }
        server.deployment = self.deployment.over(server.deployment);
        let scheduler = &mut server.scheduler;
        scheduler.enable_prefix_caching =
            switch(self.enable_prefix_caching, self.no_enable_prefix_caching, scheduler.enable_prefix_caching);
        scheduler.enable_chunked_prefill =
            switch(self.enable_chunked_prefill, self.no_enable_chunked_prefill, scheduler.enable_chunked_prefill);
        scheduler.async_scheduling =
            switch(self.async_scheduling, self.no_async_scheduling, scheduler.async_scheduling);
        let threshold = self.long_prefill_token_threshold;
        scheduler.long_prefill_token_threshold = threshold.or(scheduler.long_prefill_token_threshold);
        scheduler.scheduling_policy = self.scheduling_policy.or(scheduler.scheduling_policy);
        server.cpu_offload_gb = self.cpu_offload_gb.unwrap_or(server.cpu_offload_gb);
        let mut notes = std::mem::take(&mut server.notes);
        if let Some(blocks) = self.num_gpu_blocks_override {
            server.num_gpu_blocks_override = blocks;
        } else if let Some(blocks) = server.num_gpu_blocks_override
            && (server.deployment != of_file.deployment || model.is_some() || hardware.is_some())
        {
            notes.push(format!(
                "num_gpu_blocks = {blocks} is what {} gives for its own server, which flags have changed; \
                 --num-gpu-blocks-override auto computes it from the memory equation",
                server.origin
            ));
        }
        Ok((server, notes))
    }
}
