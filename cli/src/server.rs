//! The server of a replay: its flags override the arguments of its file.

use std::path::PathBuf;

use clap::Args;
use ridgepoint::arguments::{Argument, ArgumentSupport, Section};
use ridgepoint::{DEPLOYMENT_ARGUMENTS, Deployment, Engine, Options};
use ridgepoint_lab::served::{Served, both, served};
use ridgepoint_replay::server_config::{Beside, ServedEngine, ServerConfig, server_arguments};
use serde_json::{Map, Value};

use crate::flags::{self, FlagRows, Flags};
use crate::outcome::Failure;
use crate::output::Outputs;

const SERVER: &str = flags::heading(Section::Server);

/// The arguments of a server.
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
    /// Server file: flat YAML or JSON with `model`, `hardware` and vLLM's engine arguments, or the script, compose file or manifest that
    /// starts the server; flags override it
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub config: Option<PathBuf>,
    /// The command that starts the server, as in 'vllm serve NAME -tp 2', 'python -m sglang.launch_server …' or 'trtllm-serve NAME …'; flags
    /// override it, and --hardware names the GPU
    #[arg(long, value_name = "LINE", help_heading = SERVER, conflicts_with = "config")]
    pub serve_command: Option<String>,
    #[command(flatten)]
    flags: Flags<OfServer>,
}

impl ServerArgs {
    /// A server of a file or a command, with flags over it.
    pub fn new(config: Option<PathBuf>, serve_command: Option<String>, flags: Flags<OfServer>) -> Self {
        ServerArgs { config, serve_command, flags }
    }

    /// The same server with further flags, which override those that are given.
    #[must_use]
    pub fn with(&self, flags: Map<String, Value>) -> Self {
        let mut given = self.flags.given.clone();
        given.extend(flags);
        ServerArgs::new(self.config.clone(), self.serve_command.clone(), Flags::of(given))
    }

    /// The flags that were given.
    pub fn into_flags(self) -> Map<String, Value> {
        self.flags.given
    }

    /// Finds model and GPU, checks the server and builds its step model; with remarks. Arguments that are not given are those of `logged`.
    /// `outputs` keep off its files.
    ///
    /// # Errors
    /// Names and files that cannot be found; a server that does not fit or cannot run.
    pub fn open(
        &self,
        options: &Options,
        logged: Map<String, Value>,
        outputs: &mut Outputs,
    ) -> Result<(Served, ServedEngine, Vec<String>), Failure> {
        let (server, mut notes) = self.config(logged, &options.engine)?;
        outputs.reads([&server.model, &server.hardware]);
        outputs.reads(server.transfers_file());
        let data_dir = options.data_dir.as_deref();
        let ((model, precision_notes), hardware) = both(server.find_model(data_dir), server.find_hardware(data_dir))?;
        notes.extend(precision_notes);
        let (served, engine) = served(server, model, hardware, options, &mut notes)?;
        Ok((served, engine, notes))
    }

    /// The file's server with the flags put over it and the log under it, and remarks.
    fn config(&self, logged: Map<String, Value>, engine: &Engine) -> Result<(ServerConfig, Vec<String>), Failure> {
        let flags = &self.flags.given;
        // The faults of a flag are not those of the file.
        let is_of_steps = |name: &str| DEPLOYMENT_ARGUMENTS.iter().any(|row| row.name == name);
        let of_steps: Map<String, Value> = flags.clone().into_iter().filter(|(name, _)| is_of_steps(name)).collect();
        let is_changed = match logged.is_empty() {
            true => !of_steps.is_empty() || ["model", "hardware"].iter().any(|name| flags.contains_key(*name)),
            false => of_steps.iter().any(|(name, value)| logged.get(name).is_some_and(|of_log| of_log != value)),
        };
        Deployment::try_from(of_steps)?;
        let source = if logged.is_empty() { None } else { Some("the engine's log") };
        let beside = &Beside { engine: engine.clone(), over: flags.clone(), under: logged };
        let mut server = match &self.config {
            Some(path) => ServerConfig::read_with(path, beside)?,
            None if self.serve_command.is_some() => ServerConfig::parse_with(
                "the serve command",
                self.serve_command.as_deref().unwrap_or_default(),
                beside,
            )?,
            None => ServerConfig::from_values_with("the command line", &Map::new(), beside)?,
        };
        let mut notes = std::mem::take(&mut server.notes);
        let blocks = server.num_gpu_blocks_override.map(|blocks| format!("num_gpu_blocks = {blocks} is"));
        let tokens = || server.kv_cache_tokens.map(|tokens| format!("a KV cache of {tokens} tokens is"));
        let is_own = ["num_gpu_blocks_override", "kv_cache_tokens"].iter().any(|name| flags.contains_key(*name));
        if let Some(given) = blocks.or_else(tokens).filter(|_| is_changed && !is_own) {
            notes.push(format!(
                "{given} what {} gives for its own server, which flags have changed; --num-gpu-blocks-override auto computes it from the \
                 memory equation",
                source.unwrap_or(&server.origin)
            ));
        }
        Ok((server, notes))
    }
}
