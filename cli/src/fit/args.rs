//! The arguments of `fit`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, value_parser};

use ridgepoint::Options;
use ridgepoint_lab::fit::FittedRows;
use ridgepoint_lab::prediction::engine_named;

use crate::common::one_of;
use crate::evaluate::bench::BenchLoadArgs;
use crate::flags::Flags;
use crate::outcome::Failure;
use crate::output::Force;
use crate::server::ServerArgs;

/// What a correction is fitted on, and where it goes.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Fit {
    /// Sampled steps: traces, tables of `ridgepoint ingest`, or folders of tables; tables of requests with them
    #[arg(long, value_name = "FILE|DIR", num_args = 1.., required_unless_present_any = ["serving", "bench"])]
    #[arg(conflicts_with_all = ["serving", "bench"], help_heading = FITTING)]
    pub steps: Vec<PathBuf>,
    /// Serving runs: experiments as `ridgepoint evaluate serving` takes them, or folders of them
    #[arg(long, value_name = "DIR", num_args = 1.., help_heading = FITTING)]
    pub serving: Vec<PathBuf>,
    /// Results of a load generator on one server, as `ridgepoint evaluate bench` takes them, with --serve-command or --config
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "serving", help_heading = FITTING)]
    pub bench: Vec<PathBuf>,
    /// The command that started the server of --bench or --steps, as in 'vllm serve NAME -tp 2'; --hardware names the GPU. With --steps it
    /// is the server on which the requests of the run are replayed, to judge what clients see [default there: what the capture shows]
    #[arg(long, value_name = "LINE", conflicts_with_all = ["config", "serving"], help_heading = FITTING)]
    pub serve_command: Option<String>,
    /// Server file of --bench or --steps, as `ridgepoint simulate` takes it
    #[arg(long, value_name = "FILE", conflicts_with = "serving", help_heading = FITTING)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub bench_load: BenchLoadArgs,
    /// For any model, or for one
    #[arg(long, value_enum, default_value_t = FitLevel::Global, value_name = "LEVEL")]
    #[arg(help_heading = FITTING)]
    pub level: FitLevel,
    /// What to shrink towards: none is the operators alone [default: none; global with --level model]
    #[arg(long, value_name = "none|global|FILE", help_heading = FITTING)]
    pub prior: Option<String>,
    /// Which part of the steps is fitted
    #[arg(long, value_parser = one_of(SPLITS), default_value = "judged", value_name = "PART", help_heading = FITTING)]
    pub split: FittedRows,
    /// Write the correction even if it is worse than none on rows that it has not seen
    #[arg(long, conflicts_with = "serving", help_heading = FITTING)]
    pub allow_worse: bool,
    /// Write alpha.csv, a row per request with its wait in the queue, and beta.csv, a row per step, as the papers on learned simulators
    /// train on; and ridge.toml and lasso.toml, fitted to the first 60 % of them, for `simulate --latency`
    #[arg(long, value_name = "DIR", conflicts_with = "serving", help_heading = FITTING)]
    pub training_tables: Option<PathBuf>,
    /// The measurements in words, with who took them, for the file [default: the names of what was read]
    #[arg(long, value_name = "WORDS", help_heading = FITTING)]
    pub data: Option<String>,
    /// Version of the serving engine that was measured, where the runs don't say
    #[arg(long, value_name = "NAME", help_heading = FITTING)]
    pub engine_version: Option<String>,
    /// Seed of arrival times and lengths that are random
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = FITTING)]
    pub seed: u64,

    /// File to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub force: Force,
    /// Model that the correction is for; required with --level model, and for step files that do not name their model
    #[arg(long, value_name = "NAME|PATH", required_if_eq("level", "model"))]
    pub model: Option<String>,
    /// GPU of step files that do not name theirs: built-in name, path of a TOML file, or FILE.json#NAME
    #[arg(long, value_name = "NAME|PATH", conflicts_with = "serving")]
    pub hardware: Option<String>,
    /// GPUs that share every layer's matrices, for step files that do not say
    #[arg(long, visible_alias = "tp", value_name = "N", value_parser = value_parser!(u32).range(1..), conflicts_with = "serving")]
    pub tensor_parallel_size: Option<u32>,
    /// vLLM's flag of the server, for step files that do not say
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), conflicts_with = "serving")]
    pub max_num_seqs: Option<u32>,
    /// vLLM's flag of the server, for step files that do not say
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), conflicts_with = "serving")]
    pub max_num_batched_tokens: Option<u32>,
}

impl Fit {
    /// The options of a prediction by the engine of `--engine-version`.
    ///
    /// # Errors
    /// An engine or a version that is not known.
    pub fn engine_options(&self, data_dir: Option<&Path>) -> Result<Options, Failure> {
        let mut options = Options { data_dir: data_dir.map(Into::into), ..Options::default() };
        if let Some(version) = &self.engine_version {
            options.engine = engine_named(version).filter(|engine| engine.version().is_some()).ok_or_else(|| {
                Failure::usage(format!(
                    "--engine-version {version}: must be a version of vLLM such as 0.19, or sglang-0.5 or trtllm-1.0"
                ))
            })?;
        }
        Ok(options)
    }

    /// The server of `--bench` or `--steps`.
    pub fn server(&self) -> ServerArgs {
        let names = [("model", self.model.clone()), ("hardware", self.hardware.clone())];
        let numbers = [
            ("tensor_parallel_size", self.tensor_parallel_size),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
        ];
        let names = names.into_iter().filter_map(|(name, given)| Some((name.to_owned(), given?.into())));
        let numbers = numbers.into_iter().filter_map(|(name, given)| Some((name.to_owned(), given?.into())));
        ServerArgs::new(self.config.clone(), self.serve_command.clone(), Flags::of(names.chain(numbers).collect()))
    }
}

const FITTING: &str = "Fitting";

const SPLITS: [(&str, &str, FittedRows); 3] = [
    ("judged", "All of it, once a fit of the first 60 % of each run was judged on the rest", FittedRows::Judged),
    ("all", "All of it, without a judgement", FittedRows::All),
    ("first60", "The first 60 % of each run; the rest judges it", FittedRows::First60),
];

/// For which models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FitLevel {
    /// Any model
    Global,
    /// A single one: the model of --model, or the judged one
    Model,
}
