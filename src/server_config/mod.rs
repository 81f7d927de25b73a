//! The server of an experiment: which model on which GPU, with which of vLLM's engine arguments, read from a flat YAML or
//! JSON file. Turns them into what a replay needs. Uses `model`, `hardware`, `deployment`, `kv_capacity`, `replay`'s
//! configuration.

mod keys;
mod precision;
mod read;
#[cfg(test)]
mod tests;

pub use precision::Precision;

use std::path::Path;

use serde_json::{Map, Value};

use crate::deployment::Deployment;
use crate::error::Result;
use crate::hardware::Hardware;
use crate::input;
use crate::kv_capacity::{KvCapacity, MemoryOptions};
use crate::model::Model;
use crate::replay::{EngineConfig, SchedulingPolicy};

/// Given blocks are remarked on from this many times those of the memory equation.
const SURPRISING_BLOCKS: f64 = 1.1;

/// The scheduler's arguments; `None` is vLLM's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedulerOptions {
    /// Reuse of equal blocks at the beginning of prompts; on by default.
    pub enable_prefix_caching: Option<bool>,
    /// Prompts may be split over steps; on by default.
    pub enable_chunked_prefill: Option<bool>,
    /// One step is scheduled while another runs; on by default.
    pub async_scheduling: Option<bool>,
    /// Most tokens of a prompt in one step; 0, the default, is no limit of its own.
    pub long_prefill_token_threshold: Option<u32>,
    /// Order of waiting requests; first come, first served by default.
    pub scheduling_policy: Option<SchedulingPolicy>,
}

/// A server as its file describes it.
///
/// # Keys
/// vLLM's engine arguments under their own names, with dashes or underscores, and those of published experiments: `model`,
/// `hardware`, `tensor_parallelism` (`tensor_parallel_size`), `total_kv_blocks` (`num_gpu_blocks_override`), `precision`,
/// `cpu_offload` (`cpu_offload_gb`). A key without a value is as good as left out.
///
/// ```
/// use ridgepoint::server_config::ServerConfig;
/// let text = "model: llama-3.1-8b\nhardware: H100\ntensor_parallelism: 2\nmax-num-seqs: 128\ntotal_kv_blocks: 8000\n";
/// let server = ServerConfig::parse("exp-config.yaml", text)?;
/// assert_eq!((server.deployment.tensor_parallel_size, server.deployment.max_num_seqs), (2, 128));
/// assert_eq!(server.num_gpu_blocks_override, Some(8000));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    /// What errors call it: a path, or where else it came from.
    pub origin: String,
    /// Name, Hugging Face id or path of the model.
    pub model: String,
    /// Name or path of the GPU.
    pub hardware: String,
    /// The engine arguments that a step depends on.
    pub deployment: Deployment,
    /// How weights are stored, where it is said.
    pub precision: Option<Precision>,
    /// The scheduler's arguments.
    pub scheduler: SchedulerOptions,
    /// KV blocks, where given; else the memory equation has them.
    pub num_gpu_blocks_override: Option<u32>,
    /// GiB of each GPU's weights that stay in the host's memory.
    pub cpu_offload_gb: f64,
    /// What was read but changes nothing, in plain words.
    pub notes: Vec<String>,
}

/// What a replay runs on.
#[derive(Debug, Clone)]
pub struct Engine {
    /// Scheduler and cache.
    pub config: EngineConfig,
    /// The memory equation; it may have no blocks where they are given.
    pub capacity: KvCapacity,
    /// The configuration's blocks are not those of the equation but given.
    pub blocks_are_given: bool,
    /// What is unusual, in plain words.
    pub notes: Vec<String>,
}

impl ServerConfig {
    /// A server with vLLM's defaults.
    pub fn new(origin: &str, model: &str, hardware: &str) -> Self {
        ServerConfig {
            origin: origin.to_owned(),
            model: model.to_owned(),
            hardware: hardware.to_owned(),
            deployment: Deployment::default(),
            precision: None,
            scheduler: SchedulerOptions::default(),
            num_gpu_blocks_override: None,
            cpu_offload_gb: 0.0,
            notes: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// `ErrorKind::Io` where it can't be read, `ErrorKind::Parse` where it is no text or longer than 16 MiB, else as
    /// [`ServerConfig::parse`].
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_for(path, None, None)
    }

    /// [`ServerConfig::read`] for another `model` or `hardware` than the file's, which then need not name it.
    ///
    /// # Errors
    /// As [`ServerConfig::read`].
    pub fn read_for(path: &Path, model: Option<&str>, hardware: Option<&str>) -> Result<Self> {
        read::parse(&path.display().to_string(), &input::read_text(path)?, model, hardware)
    }

    /// Reads the text of a file, YAML or JSON, that errors call `origin`.
    ///
    /// # Errors
    /// `ErrorKind::Parse` where the text is neither; `ErrorKind::Invalid` with all problems: unknown keys with near matches,
    /// values out of range, two names of one argument with different values, `model` or `hardware` missing.
    pub fn parse(origin: &str, text: &str) -> Result<Self> {
        read::parse(origin, text, None, None)
    }

    /// A server whose keys and values come from elsewhere than a file of its own: those of [`ServerConfig::parse`].
    ///
    /// # Errors
    /// `ErrorKind::Invalid` as [`ServerConfig::parse`].
    pub fn from_values(origin: &str, values: &Map<String, Value>) -> Result<Self> {
        read::from_map(origin, values, None, None)
    }

    /// The model in the precision that is asked for, and what there is to say about that.
    ///
    /// A narrower precision than the checkpoint's takes the checkpoint of that kind, or the plain scheme, as an engine does that
    /// quantises while loading; a wider one can only be that of the activations.
    ///
    /// # Errors
    /// Those of [`Model::find_in`], and `ErrorKind::Invalid` where no such variant can be: a `config.json` of one's own, or
    /// weights quantised in another way.
    pub fn find_model(&self, data_dir: Option<&Path>) -> Result<(Model, Vec<String>)> {
        precision::find(self, data_dir)
    }

    /// The GPU.
    ///
    /// # Errors
    /// Those of [`Hardware::find_in`].
    pub fn find_hardware(&self, data_dir: Option<&Path>) -> Result<Hardware> {
        Hardware::find_in(data_dir, &self.hardware)
    }

    /// Scheduler and cache of this server: `max_model_len` is the model's own limit where none is given, the blocks are those
    /// that are given or else those of the memory equation.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` where the deployment does not fit the model, where memory has no room for the blocks (as
    /// [`KvCapacity::new`]), and where scheduler or cache can't be (as [`EngineConfig::validate`]).
    pub fn engine_config(&self, model: &Model, hardware: &Hardware) -> Result<Engine> {
        let options = MemoryOptions { cpu_offload_gb: self.cpu_offload_gb };
        let mut notes = Vec::new();
        let (capacity, num_gpu_blocks) = match self.num_gpu_blocks_override {
            Some(blocks) => {
                let capacity = KvCapacity::estimate(model, hardware, &self.deployment, options)?;
                notes.extend(surprise(blocks, &capacity));
                (capacity, blocks)
            }
            None => {
                let capacity = KvCapacity::with_options(model, hardware, &self.deployment, options)?;
                let blocks = capacity.num_gpu_blocks;
                (capacity, blocks)
            }
        };
        if capacity.offloaded_bytes > 0.0 {
            notes.push(format!(
                "cpu_offload_gb = {}: the weights on the host cross the bus in every step, which the step time leaves out",
                self.cpu_offload_gb
            ));
        }
        let max_model_len = u32::try_from(capacity.max_model_len).unwrap_or(u32::MAX);
        let defaults = EngineConfig::new(&self.deployment, max_model_len, num_gpu_blocks);
        let scheduler = self.scheduler;
        let config = EngineConfig {
            enable_prefix_caching: scheduler.enable_prefix_caching.unwrap_or(defaults.enable_prefix_caching),
            enable_chunked_prefill: scheduler.enable_chunked_prefill.unwrap_or(defaults.enable_chunked_prefill),
            async_scheduling: scheduler.async_scheduling.unwrap_or(defaults.async_scheduling),
            long_prefill_token_threshold: scheduler
                .long_prefill_token_threshold
                .unwrap_or(defaults.long_prefill_token_threshold),
            scheduling_policy: scheduler.scheduling_policy.unwrap_or(defaults.scheduling_policy),
            ..defaults
        };
        config.validate().map_err(|error| error.of(&self.origin))?;
        Ok(Engine { config, capacity, blocks_are_given: self.num_gpu_blocks_override.is_some(), notes })
    }
}

fn surprise(blocks: u32, capacity: &KvCapacity) -> Option<String> {
    let found = capacity.num_gpu_blocks;
    (f64::from(blocks) > SURPRISING_BLOCKS * f64::from(found)).then(|| {
        format!(
            "num_gpu_blocks_override = {blocks}: the memory equation finds room for {found} blocks, so such a server might not start"
        )
    })
}
