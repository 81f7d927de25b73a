//! The server of a replay: its flags override the arguments of its file.

use std::path::PathBuf;

use clap::Args;
use ridgepoint::Options;
#[cfg(feature = "serve")]
use ridgepoint::latency::KvTransfers;
use ridgepoint_lab::served::{Served, both, served};
use ridgepoint_replay::server_config::{ServedEngine, ServerConfig};
use serde::Serialize;
use serde_json::Value;

use crate::common::at_least_zero;
use crate::deployment::{DeploymentArgs, deployment, given};
use crate::outcome::Failure;
use crate::output::Outputs;

const SERVER: &str = "Server";
const SCHEDULER: &str = "Scheduler and KV cache (vLLM's engine arguments)";

/// The model, the GPU and vLLM's engine arguments.
#[derive(Debug, Args, Serialize)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
pub struct ServerArgs {
    /// Server file: flat YAML or JSON with `model`, `hardware` and vLLM's engine arguments; flags override it
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder
    #[arg(long, value_name = "NAME|PATH", required_unless_present = "config", help_heading = SERVER)]
    model: Option<String>,
    /// Built-in name (`ridgepoint hardware`), path of a TOML file, or FILE.json#NAME: figures over a known GPU's
    #[arg(long, value_name = "NAME|PATH", required_unless_present = "config", help_heading = SERVER)]
    hardware: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    deployment: DeploymentArgs,

    /// Number of KV blocks; auto computes it from the memory equation even if --config gives one
    #[arg(long, value_name = "N|auto", value_parser = blocks, allow_negative_numbers = true, help_heading = SCHEDULER)]
    num_gpu_blocks_override: Option<Value>,
    /// Host memory for KV blocks of all GPUs of a replica, GiB: full blocks are copied there, and prompts load them back
    #[arg(long, value_name = "GIB", value_parser = at_least_zero, allow_negative_numbers = true, help_heading = SCHEDULER)]
    kv_offloading_size: Option<f64>,
    /// vLLM's connector as JSON, in place of --kv-offloading-size: the OffloadingConnector with cpu_bytes_to_use or num_cpu_blocks,
    /// offload_prompt_only, and a disk in secondary_tiers of the TieringOffloadingSpec
    #[arg(long, value_name = "JSON", conflicts_with = "kv_offloading_size", help_heading = SCHEDULER)]
    kv_transfer_config: Option<String>,
    /// File of measured transfer times, as `ridgepoint ingest --output-transfers` writes it [default: a copy takes 20 µs, and its bytes at
    /// 85 % of the link between GPU and host; one of a disk takes 100 µs, and its bytes at 7 GB/s to the host and 5 GB/s from it]
    #[arg(long, value_name = "FILE", help_heading = SCHEDULER)]
    #[cfg_attr(feature = "serve", schemars(with = "Option<KvTransfers>"))]
    kv_transfers: Option<PathBuf>,
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
    /// Admit a prompt only if the free KV blocks hold all of it, not only its first chunk; vLLM's default since 0.19
    #[arg(long, overrides_with = "no_scheduler_reserve_full_isl", help_heading = SCHEDULER)]
    scheduler_reserve_full_isl: bool,
    /// Admit a prompt if the free KV blocks hold its first chunk (the default)
    #[arg(long, overrides_with = "scheduler_reserve_full_isl", help_heading = SCHEDULER)]
    no_scheduler_reserve_full_isl: bool,
    /// Order of waiting requests: first come, first served, or lowest priority value first [default: fcfs]
    #[arg(long, value_parser = ["fcfs", "priority"], value_name = "POLICY", help_heading = SCHEDULER)]
    scheduling_policy: Option<String>,
}

/// A number, or a text that the reader of servers judges.
fn blocks(text: &str) -> Result<Value, std::convert::Infallible> {
    Ok(text.parse::<u64>().map_or_else(|_| text.into(), Value::from))
}

impl ServerArgs {
    /// Finds model and GPU, checks the server and builds its step model; with remarks. `outputs` keep off its files.
    ///
    /// # Errors
    /// Names and files that cannot be found; a server that does not fit or cannot run.
    pub fn open(
        &self,
        options: &Options,
        outputs: &mut Outputs,
    ) -> Result<(Served, ServedEngine, Vec<String>), Failure> {
        let (server, mut notes) = self.config()?;
        outputs.reads([&server.model, &server.hardware]);
        outputs.reads(server.transfers_file());
        let data_dir = options.data_dir.as_deref();
        let ((model, precision_notes), hardware) = both(server.find_model(data_dir), server.find_hardware(data_dir))?;
        notes.extend(precision_notes);
        let (served, engine) = served(server, model, hardware, options, &mut notes)?;
        Ok((served, engine, notes))
    }

    /// The file's server with the flags put over it, and remarks.
    fn config(&self) -> Result<(ServerConfig, Vec<String>), Failure> {
        let flags = given(self);
        // The faults of a flag are not those of the file.
        deployment(&self.deployment)?;
        let mut server = match &self.config {
            Some(path) => ServerConfig::read_with(path, &flags)?,
            None => ServerConfig::from_values("the command line", &flags)?,
        };
        let mut notes = std::mem::take(&mut server.notes);
        let is_changed = self.model.is_some() || self.hardware.is_some() || !given(&self.deployment).is_empty();
        if let Some(blocks) = server.num_gpu_blocks_override.filter(|_| is_changed)
            && self.num_gpu_blocks_override.is_none()
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
