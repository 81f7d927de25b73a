//! The arguments of `ingest`.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser as NotEmpty, PossibleValue, PossibleValuesParser};
use clap::{Args, value_parser};
use ridgepoint_lab::ingest::formats::FORMATS;
use ridgepoint_lab::ingest::{Cleaning, Run};

use crate::common::above_zero;
use crate::output::Force;

#[derive(Debug, Args)]
pub struct Ingest {
    /// Traces, reports, logs and experiment folders; each file is read as what it looks like, unless --input-format says
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Folder to write steps.csv, requests.csv and tokens.csv to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    #[command(flatten)]
    pub force: Force,
    /// What the files are, all of them
    #[arg(long, default_value = AUTO, value_parser = formats(), value_name = "FORMAT")]
    pub input_format: String,
    #[command(flatten)]
    pub labels: Labels,
    #[command(flatten)]
    pub cleaning: CleaningArgs,
    /// JSON file for latency and bandwidth of the transfers between GPU and CPU, and their contention
    #[arg(long, value_name = "FILE", help_heading = KV_CACHE)]
    pub output_transfers: Option<PathBuf>,
    /// Bytes of a KV block on one GPU [default: those of model, --tensor-parallel-size and the block size in the files]
    #[arg(long, value_name = "BYTES", value_parser = block_bytes, allow_negative_numbers = true, help_heading = KV_CACHE)]
    pub kv_block_bytes: Option<f64>,
    /// Take one reply of /metrics for all that its server did since it started
    #[arg(long, help_heading = KV_CACHE)]
    pub since_start: bool,
}

/// Which steps are left out.
#[derive(Debug, Args)]
pub struct CleaningArgs {
    /// Leave out steps of a number below N, in which the engine still warms up [default: 100]
    #[arg(long, value_name = "N", help_heading = CLEANING)]
    warm_up_steps: Option<u64>,
    /// Keep steps that preempt a request
    #[arg(long, help_heading = CLEANING)]
    keep_preemptions: bool,
}

impl CleaningArgs {
    /// The rules, if a flag changes them.
    pub fn given(&self) -> Option<Cleaning> {
        let warm_up_steps = self.warm_up_steps.unwrap_or(Cleaning::default().warm_up_steps);
        let is_given = self.warm_up_steps.is_some() || self.keep_preemptions;
        is_given.then_some(Cleaning { warm_up_steps, drop_preemptions: !self.keep_preemptions })
    }
}

const AUTO: &str = "auto";
const LABELS: &str = "Labels (for all rows, in place of what the files say)";
const CLEANING: &str = "Cleaning";
const KV_CACHE: &str = "KV cache";

/// What the files don't say of their runs, or say wrongly.
#[derive(Debug, Args)]
pub struct Labels {
    /// Name of the run, where the files hold one
    #[arg(long, value_name = "NAME", value_parser = NotEmpty::new(), help_heading = LABELS)]
    pub experiment: Option<String>,
    /// Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json
    #[arg(long, value_name = "NAME|PATH", value_parser = NotEmpty::new(), help_heading = LABELS)]
    pub model: Option<String>,
    /// Built-in name (`ridgepoint hardware`), path of a TOML file, or FILE.json#NAME: figures over a known GPU's
    #[arg(long, value_name = "NAME|PATH", value_parser = NotEmpty::new(), help_heading = LABELS)]
    pub hardware: Option<String>,
    /// GPUs that share every layer's matrices
    #[arg(long, visible_alias = "tp", value_name = "N", value_parser = value_parser!(u32).range(1..), help_heading = LABELS)]
    pub tensor_parallel_size: Option<u32>,
    /// Name of the workload
    #[arg(long, value_name = "NAME", value_parser = NotEmpty::new(), help_heading = LABELS)]
    pub workload: Option<String>,
    /// Version of the serving engine, as in vllm-0.15.1
    #[arg(long, value_name = "VERSION", value_parser = NotEmpty::new(), help_heading = LABELS)]
    pub engine_version: Option<String>,
    /// vLLM's flag of the server
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), help_heading = LABELS)]
    pub max_num_seqs: Option<u32>,
    /// vLLM's flag of the server
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), help_heading = LABELS)]
    pub max_num_batched_tokens: Option<u32>,
}

impl Labels {
    /// Puts the labels that were given over those of a run.
    pub fn put_over(&self, run: &mut Run) {
        let given = Run {
            experiment: self.experiment.clone().unwrap_or_default(),
            model: self.model.clone(),
            hardware: self.hardware.clone(),
            tensor_parallel_size: self.tensor_parallel_size,
            workload: self.workload.clone(),
            engine_version: self.engine_version.clone(),
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
        };
        *run = given.or(run);
    }
}

fn block_bytes(text: &str) -> Result<f64, String> {
    /// A terabyte, which no memory of a GPU has.
    const MOST: f64 = 1e12;
    let bytes = above_zero(text)?;
    if bytes <= MOST { Ok(bytes) } else { Err(format!("must be at most {MOST:e}")) }
}

/// The names of the formats for `--input-format`, and `auto`.
fn formats() -> PossibleValuesParser {
    let auto = PossibleValue::new(AUTO).help("What each file looks like");
    let named = FORMATS.map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(std::iter::once(auto).chain(named))
}
