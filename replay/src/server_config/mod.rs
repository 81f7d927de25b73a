//! The server of an experiment: a model, a GPU and vLLM's engine arguments, read from a flat YAML or JSON file, and the
//! engine configuration that a replay needs. Uses `input`, `model`, `hardware`, `deployment`, `kv_capacity`, and the
//! configuration of `replay`.

mod arguments;
mod disk;
mod engine_log;
#[cfg(test)]
mod engines_tests;
mod helm;
mod launch_text;
mod model;
mod offload;
mod other_arguments;
mod read;
mod refused;
mod sglang_arguments;
mod sglang_other_arguments;
mod shell_variables;
mod speculative;
#[cfg(test)]
mod tests;
mod transfers;
mod trtllm_arguments;
mod trtllm_other_arguments;

pub use arguments::{arguments_of, server_arguments};
pub use disk::KvDiskTier;
pub use engine_log::EngineLog;
pub use launch_text::words as launch_words;
pub use offload::{KvOffloading, KvOffloadingSize};
pub use other_arguments::NOT_MODELLED;
pub use speculative::{DraftTree, GivenAcceptance, ServedSpeculation, Speculative};
pub use transfers::{KvTransfersSource, unused_disk};

use std::collections::BTreeSet;
use std::path::Path;

use ridgepoint::DEPLOYMENT_ARGUMENTS;
use ridgepoint::Deployment;
use ridgepoint::Hardware;
use ridgepoint::Model;
use ridgepoint::arguments::ServedOn;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::engine_on;
use ridgepoint::input::{FileKind, read_text};
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::latency::KvTransfers;
use ridgepoint::{Error, Result};
use serde_json::{Map, Value};

use crate::{EngineConfig, EngineRules, SchedulerOptions, SglangOptions, TrtllmOptions, find_hardware};

/// A note says that the given blocks are unusual if they are more than this many times those of the memory equation.
const SURPRISING_BLOCKS: f64 = 1.1;
/// A server, as its file describes it.
///
/// # Keys
/// vLLM's engine arguments under their own names, with dashes or underscores, and those of published experiments: `model`,
/// `hardware`, `tensor_parallelism` (`tensor_parallel_size`), `total_kv_blocks` (`num_gpu_blocks_override`), `precision`,
/// `cpu_offload` (`cpu_offload_gb`). `kv_transfers` has measured times of KV transfers, as `ridgepoint ingest` writes them: a path or an object. A key without a value counts as absent.
///
/// ```
/// use ridgepoint_replay::server_config::ServerConfig;
/// let text = "model: llama-3.1-8b\nhardware: H100\ntensor_parallelism: 2\nmax-num-seqs: 128\ntotal_kv_blocks: 8000\n";
/// let server = ServerConfig::parse("exp-config.yaml", text)?;
/// assert_eq!((server.deployment.tensor_parallel_size, server.deployment.max_num_seqs), (2, 128));
/// assert_eq!(server.num_gpu_blocks_override, Some(8000));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    /// Name of the server in errors: a path, usually.
    pub origin: String,
    /// Name, Hugging Face id or path of the model.
    pub model: String,
    /// Name or path of the GPU.
    pub hardware: String,
    /// The engine arguments that a step depends on.
    pub deployment: Deployment,
    /// Number format of the weights; `None` is that of the checkpoint.
    pub precision: Option<MatmulFormat>,
    /// Family of the layers of a config.json whose own is not known.
    pub as_family: Option<String>,
    /// Arguments of the scheduler.
    pub scheduler: SchedulerOptions,
    /// Arguments that only SGLang's scheduler has.
    pub sglang: SglangOptions,
    /// Arguments that only TensorRT-LLM's scheduler has.
    pub trtllm: TrtllmOptions,
    /// The engine that the text names or starts; `None` where it does neither.
    pub engine: Option<ridgepoint::Engine>,
    /// vLLM's method of quantisation; `None` takes the checkpoint's.
    pub quantization: Option<String>,
    /// Names of the arguments that were given; the others have their defaults.
    pub given: BTreeSet<String>,
    /// KV blocks; `None` takes those of the tokens, or of the memory equation.
    pub num_gpu_blocks_override: Option<u32>,
    /// Tokens of the KV cache as the engine's version logs them.
    pub kv_cache_tokens: Option<u32>,
    /// The host's tier of KV blocks; `None` without one.
    pub kv_offloading: Option<KvOffloading>,
    /// Measured times of KV transfers; `None` takes those of the GPU's link to its host.
    pub kv_transfers: Option<KvTransfersSource>,
    /// Speculative decoding; `None` without it.
    pub speculative: Option<Speculative>,
    /// Notes for users about keys that have no effect here but have one on a server. Keys without an effect on times get none.
    pub notes: Vec<String>,
    /// Look the model and the GPU up by name alone, and never as a path. Defaults to false.
    pub names_only: bool,
}

/// Arguments beside those of a server's own text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Beside {
    /// The engine whose arguments these are, unless the text starts a server of another.
    pub engine: ridgepoint::Engine,
    /// Taken instead of the text's. A model here discards the text's precision, which is that of its own model.
    pub over: Map<String, Value>,
    /// Taken where neither the text nor `over` has them, as what the server's log says ([`EngineLog::arguments`]).
    pub under: Map<String, Value>,
}

/// The engine that a replay runs on.
#[derive(Debug, Clone)]
pub struct ServedEngine {
    /// The deployment, with the engine's defaults for the GPU.
    pub deployment: Deployment,
    /// Scheduler and cache.
    pub config: EngineConfig,
    /// The memory equation. It may find no blocks if the file gives their number.
    pub capacity: KvCapacity,
    /// The file gives the number of blocks.
    pub blocks_are_given: bool,
    /// Measured times of KV transfers.
    pub kv_transfers: Option<KvTransfers>,
    /// Speculative decoding; `None` without.
    pub speculation: Option<ServedSpeculation>,
    /// Notes for users about unusual settings.
    pub notes: Vec<String>,
}

impl ServerConfig {
    /// Returns a server with vLLM's defaults.
    pub fn new(origin: &str, model: &str, hardware: &str) -> Self {
        ServerConfig {
            origin: origin.to_owned(),
            model: model.to_owned(),
            hardware: hardware.to_owned(),
            deployment: Deployment::default(),
            precision: None,
            quantization: None,
            as_family: None,
            scheduler: SchedulerOptions::default(),
            sglang: SglangOptions::default(),
            trtllm: TrtllmOptions::default(),
            engine: None,
            given: BTreeSet::new(),
            num_gpu_blocks_override: None,
            kv_cache_tokens: None,
            kv_offloading: None,
            kv_transfers: None,
            speculative: None,
            notes: Vec::new(),
            names_only: false,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// `ErrorKind::Io` for a file that can't be read, `ErrorKind::Parse` for one that is not text or longer than 16 MiB, and
    /// those of [`ServerConfig::parse`].
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_with(path, &Beside::default())
    }

    /// Reads a file, and the arguments beside it.
    ///
    /// # Errors
    /// Those of [`ServerConfig::read`].
    pub fn read_with(path: &Path, beside: &Beside) -> Result<Self> {
        read::parse(&path.display().to_string(), &read_text(FileKind::ServerConfig, path)?, beside)
    }

    /// Parses the text of a file, YAML or JSON, that errors call `origin`.
    ///
    /// # Errors
    /// `ErrorKind::Parse` for other text. `ErrorKind::Invalid` with all problems: unknown keys, values out of range, two names
    /// of one argument with different values, and a missing `model` or `hardware`.
    pub fn parse(origin: &str, text: &str) -> Result<Self> {
        read::parse(origin, text, &Beside::default())
    }

    /// [`ServerConfig::parse`] with the arguments beside the text.
    ///
    /// # Errors
    /// Those of [`ServerConfig::parse`].
    pub fn parse_with(origin: &str, text: &str, beside: &Beside) -> Result<Self> {
        read::parse(origin, text, beside)
    }

    /// Reads a server from keys and values, which are those of [`ServerConfig::parse`].
    ///
    /// # Errors
    /// The `ErrorKind::Invalid` of [`ServerConfig::parse`].
    pub fn from_values(origin: &str, values: &Map<String, Value>) -> Result<Self> {
        Self::from_values_with(origin, values, &Beside::default())
    }

    /// Returns the engine that this server's text names or starts, or `engine` where it does neither, or `engine` has the version.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if `engine` names another one.
    pub fn engine_or(&self, engine: &ridgepoint::Engine) -> Result<ridgepoint::Engine> {
        match &self.engine {
            Some(own) if own.name() == engine.name() => {
                Ok(if engine.version().is_some() { engine.clone() } else { own.clone() })
            }
            Some(own) if *engine == ridgepoint::Engine::default() => Ok(own.clone()),
            Some(own) => {
                let problem = format!("starts {own}, and the engine is {engine}: give --engine {}", own.name());
                Err(Error::invalid(self.origin.clone(), vec![problem]))
            }
            None => Ok(engine.clone()),
        }
    }

    /// [`ServerConfig::from_values`] with the arguments beside the values.
    ///
    /// # Errors
    /// Those of [`ServerConfig::from_values`].
    pub fn from_values_with(origin: &str, values: &Map<String, Value>, beside: &Beside) -> Result<Self> {
        read::from_map(origin, values, beside)
    }

    /// Finds the GPU.
    ///
    /// # Errors
    /// Those of [`find_hardware`].
    pub fn find_hardware(&self, data_dir: Option<&Path>) -> Result<Hardware> {
        let find = if self.names_only { Hardware::named_in } else { find_hardware };
        find(data_dir, &self.hardware)
    }

    /// Returns the deployment with the engine's own defaults for the GPU where this server gives nothing. Without chunked prefill a step
    /// has room for the longest prompt.
    pub fn deployment_on(&self, model: &Model, hardware: &Hardware, engine: &ridgepoint::Engine) -> Deployment {
        let mut deployment = self.deployment.clone().on(&self.given, engine, hardware);
        if engine.is_vllm() && !self.scheduler.enable_chunked_prefill && !self.given.contains("max_num_batched_tokens")
        {
            let longest = deployment.max_model_len.map_or(model.max_position_embeddings, u64::from);
            let longest = u32::try_from(longest).unwrap_or(u32::MAX);
            deployment.max_num_batched_tokens = deployment.max_num_batched_tokens.max(longest);
        }
        if let EngineRules::Sglang(options) = self.rules_on(engine, hardware, &mut Vec::new()) {
            if self.speculative.is_some() && !self.given.contains("max_num_seqs") {
                deployment.max_num_seqs = speculative::SGLANG_MAX_RUNNING;
            }
            deployment.take_sglang_limits(&self.given, hardware, options.most_prefill_tokens());
        }
        deployment
    }

    /// Returns the rules of an engine, with the arguments that this server gives its scheduler.
    fn rules_on(&self, engine: &ridgepoint::Engine, hardware: &Hardware, notes: &mut Vec<String>) -> EngineRules {
        let on = ServedOn { engine, hardware };
        match engine.name() {
            "sglang" => EngineRules::Sglang(self.sglang.with_ruled_defaults(&self.given, &on, notes)),
            "trtllm" => EngineRules::Trtllm(self.trtllm),
            _ => EngineRules::Vllm,
        }
    }

    /// Returns this server with a deployment whose arguments all count as given.
    #[must_use]
    pub fn with_deployment(mut self, deployment: Deployment) -> Self {
        self.given.extend(DEPLOYMENT_ARGUMENTS.iter().map(|row| row.name.to_owned()));
        ServerConfig { deployment, ..self }
    }

    /// Returns the scheduler and cache of this server, and its measured KV transfers. `max_model_len` defaults to the model's own limit, and the blocks to
    /// those of the memory equation with the sampler of `kernels`.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if the deployment does not fit the model, and those of [`KvCapacity::new`],
    /// [`EngineConfig::validate`] and a file of KV transfers.
    pub fn engine_config(
        &self,
        model: &Model,
        hardware: &Hardware,
        kernels: &ridgepoint::Engine,
    ) -> Result<ServedEngine> {
        let kernels = &engine_on(&self.engine_or(kernels)?, hardware);
        let mut notes = Vec::new();
        let deployment = self.deployment_on(model, hardware, kernels);
        let blocks_are_given = self.num_gpu_blocks_override.is_some() || self.kv_cache_tokens.is_some();
        let estimate = KvCapacity::estimate(model, hardware, &deployment, kernels)?;
        // SGLang starts with a cache of less than its longest context, and refuses longer requests.
        let starts = blocks_are_given || (kernels.is_sglang() && estimate.usable_tokens() > 0);
        let capacity = if starts { estimate } else { KvCapacity::for_engine(model, hardware, &deployment, kernels)? };
        let of_tokens = self.kv_cache_tokens.map(|tokens| capacity.blocks_of_logged(tokens));
        let num_gpu_blocks = self.num_gpu_blocks_override.or(of_tokens).unwrap_or(capacity.pool_blocks);
        if f64::from(num_gpu_blocks) > SURPRISING_BLOCKS * f64::from(capacity.pool_blocks) {
            let given = match self.kv_cache_tokens.filter(|_| self.num_gpu_blocks_override.is_none()) {
                Some(tokens) => format!("kv_cache_tokens = {tokens} make {num_gpu_blocks} blocks"),
                None => format!("num_gpu_blocks_override = {num_gpu_blocks}"),
            };
            notes.push(format!(
                "{given}: the memory equation finds room for {} blocks, so such a server might not start",
                capacity.pool_blocks
            ));
        }
        if !blocks_are_given {
            notes.extend(capacity.barely_fits());
        }
        if kernels.is_vllm() {
            notes.extend(refused::by_vllm(&deployment));
        }
        let defaults = EngineConfig::with_capacity(&deployment, &capacity);
        let mut config = EngineConfig {
            num_gpu_blocks,
            scheduler: self.scheduler.with_ruled_defaults(
                &self.given,
                &ServedOn { engine: kernels, hardware },
                &mut notes,
            ),
            rules: self.rules_on(kernels, hardware, &mut notes),
            kv_offload: self.kv_offloading.map(|tier| tier.tier(&capacity, &deployment)).transpose()?,
            ..defaults
        };
        if kernels.is_sglang() {
            notes.extend(config.shorten_context());
        }
        let kv_transfers = self.measured_transfers()?;
        if let Some(transfers) = kv_transfers {
            transfers::share_links(config.kv_offload.as_mut(), &transfers, &mut notes);
        }
        if config.kv_offload.as_ref().is_some_and(|tier| tier.disk.is_some()) {
            notes.push(disk::RULES.to_owned());
        }
        if config.state_blocks_per_request > 0 && config.scheduler.enable_prefix_caching {
            notes.push(format!(
                "mamba_cache_mode = align is not modelled: {} keeps states at the ends of chunks alone, and prefix caching counts a hit at \
                 every block of {} tokens",
                model.name, config.block_size
            ));
        }
        let speculation = match &self.speculative {
            Some(speculative) => {
                let (served, speculation) = speculative.on(&self.origin, model, kernels)?;
                config.speculation = Some(speculation);
                if !self.given.contains("async_scheduling") && served.waits_for_drafts(kernels) {
                    config.scheduler.async_scheduling = false;
                }
                notes.extend(served.notes(kernels));
                Some(served)
            }
            None => None,
        };
        config.validate().map_err(|error| error.of(&self.origin))?;
        Ok(ServedEngine { deployment, config, capacity, blocks_are_given, kv_transfers, speculation, notes })
    }
}
