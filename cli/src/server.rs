//! The server of a replay: its flags override the arguments of its file.

use std::path::PathBuf;

use clap::Args;
use ridgepoint::arguments::{Argument, ArgumentSupport, Section};
use ridgepoint::{DEPLOYMENT_ARGUMENTS, Deployment, Options};
use ridgepoint_lab::served::{Served, both, served};
use ridgepoint_replay::server_config::{ServedEngine, ServerConfig, server_arguments};
use serde_json::{Map, Value};

use crate::flags::{self, FlagRows, Flags};
use crate::outcome::Failure;
use crate::output::Outputs;

const SERVER: &str = flags::heading(Section::Server);

/// The arguments of a server, of vLLM.
#[derive(Debug, Clone)]
pub struct OfServer;

impl FlagRows for OfServer {
    fn rows() -> Vec<&'static Argument> {
        // A flag that is not modelled is unknown, and the hint says why.
        let is_possible = |row: &&Argument| row.is_flag && !matches!(row.support, ArgumentSupport::NotModelled(_));
        server_arguments().iter().filter(is_possible).collect()
    }
}

/// The model, the GPU and vLLM's engine arguments.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Server file: flat YAML or JSON with `model`, `hardware` and vLLM's engine arguments; flags override it
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags<OfServer>,
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
        let flags = &self.flags.given;
        // The faults of a flag are not those of the file.
        let is_of_steps = |name: &str| DEPLOYMENT_ARGUMENTS.iter().any(|row| row.name == name);
        let of_steps: Map<String, Value> = flags.clone().into_iter().filter(|(name, _)| is_of_steps(name)).collect();
        let is_changed = !of_steps.is_empty() || ["model", "hardware"].iter().any(|name| flags.contains_key(*name));
        Deployment::try_from(of_steps)?;
        let mut server = match &self.config {
            Some(path) => ServerConfig::read_with(path, flags)?,
            None => ServerConfig::from_values("the command line", flags)?,
        };
        let mut notes = std::mem::take(&mut server.notes);
        if let Some(blocks) = server.num_gpu_blocks_override.filter(|_| is_changed)
            && !flags.contains_key("num_gpu_blocks_override")
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
