//! The arguments of every subcommand and the help text beside them; what they mean is up to the subcommands' files.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::args_evaluate::Evaluate;
use super::args_fit::Fit;
use super::args_ingest::Ingest;
use super::deployment::{DeploymentArgs, ParallelArgs};
use super::examples;
use super::output::Failure;
use super::shorthand::{DecodeItem, PrefillItem};
use super::simulate::Simulate;
use super::sweep::Sweep;

/// How long does one step of an LLM serving engine take?
#[derive(Debug, Parser)]
#[command(
    name = "ridgepoint",
    version,
    about = "How long does one step of an LLM serving engine take?",
    long_about = "How long does one step of an LLM serving engine take?\n\nA step is one iteration of the engine: a batch \
        of prompt chunks and decodes. Its operators follow from the model's config.json, their times from the \
        GPU's roofline and from efficiency tables that were calibrated on measured kernels.",
    after_help = examples::TOP,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct Common {
    /// A table for people, or JSON with stable keys; JSON is alone on stdout
    #[arg(long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub format: Format,
    /// Folder whose hardware/, models/ and bench_data/ come before the built-in ones
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl Common {
    /// Refuses a data directory that is not there, as every look-up in it would silently find nothing.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.data_dir {
            Some(dir) if !dir.is_dir() => Err(Failure::input(format!(
                "--data-dir {}: no such folder; give one that holds hardware/, models/ or bench_data/",
                dir.display()
            ))),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Predict the time of one step, operator by operator
    #[command(after_help = examples::PREDICT_STEP)]
    PredictStep(Box<PredictStep>),
    /// Replay a load on a server: TTFT, ITL and E2E of its clients
    #[command(after_help = examples::SIMULATE)]
    Simulate(Box<Simulate>),
    /// Replay a grid of servers and loads, or find the highest rate of each server that holds limits on latency
    #[command(after_help = examples::SWEEP)]
    Sweep(Sweep),
    /// Build efficiency tables from kernel measurements, or score the tables on measurements
    #[command(after_help = examples::CALIBRATE)]
    Calibrate(Calibrate),
    /// Read engines' traces and load generators' reports into a step table and a request table
    #[command(after_help = examples::INGEST)]
    Ingest(Box<Ingest>),
    /// Judge predictions on measured serving runs
    #[command(after_help = examples::EVALUATE)]
    Evaluate(Evaluate),
    /// Fit a correction on real steps or serving runs, or export one for other simulators
    #[command(after_help = examples::FIT)]
    Fit(Box<Fit>),
    /// List the built-in models, or show one
    #[command(after_help = examples::MODELS)]
    Models(Models),
    /// List the built-in GPUs, or show one
    #[command(after_help = examples::HARDWARE)]
    Hardware(HardwareArgs),
    /// Print a completion script for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(Completions),
}

#[derive(Debug, Args)]
pub struct PredictStep {
    /// Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder
    #[arg(long, value_name = "NAME|PATH")]
    pub model: String,
    /// Built-in name (`ridgepoint hardware`) or path of a TOML file
    #[arg(long, value_name = "NAME|PATH")]
    pub hardware: String,
    /// Batch file, `-` for standard input: {"requests": [{"num_computed_tokens": 2048, "num_scheduled_tokens": 1}]}
    #[arg(long, value_name = "FILE|-", help_heading = BATCH, conflicts_with_all = ["prefill", "decode"])]
    pub batch: Option<PathBuf>,
    /// Prompt chunks: [Nx]Q[@C][:partial], N chunks (1 if left out) of Q tokens each on top of C computed ones (0 if
    /// left out); `:partial` marks a chunk before its prompt's last, which samples no token
    #[arg(long, value_name = "[Nx]Q[@C]", num_args = 1.., value_delimiter = ',', value_parser = PrefillItem::parse)]
    #[arg(help_heading = BATCH, allow_negative_numbers = true)]
    pub prefill: Vec<PrefillItem>,
    /// Decodes: NxC or N@C, N requests of one new token each on top of C computed ones
    #[arg(long, value_name = "NxC", num_args = 1.., value_delimiter = ',', value_parser = DecodeItem::parse)]
    #[arg(help_heading = BATCH, allow_negative_numbers = true)]
    pub decode: Vec<DecodeItem>,
    #[command(flatten)]
    pub deployment: DeploymentArgs,
    /// Kernel efficiencies as measured, or the textbook roofline
    #[arg(long, value_enum, default_value_t = Efficiency::Tables, value_name = "KIND", help_heading = PREDICTION)]
    pub efficiency: Efficiency,
    /// Correction learned from real steps: none, global, auto (the best there is) or a file
    #[arg(long, value_name = "none|global|auto|FILE", default_value = "auto", help_heading = PREDICTION)]
    pub correction: String,
    /// Say for the longest operators what bounds them and what would change that
    #[arg(long, help_heading = PREDICTION)]
    pub explain: bool,
}

const BATCH: &str = "Batch";
const PREDICTION: &str = "Prediction";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Efficiency {
    Tables,
    Ideal,
}

#[derive(Debug, Args)]
pub struct Calibrate {
    /// Folders of kernel measurements: csv files (docs/measurements.md) or the public parquet tables
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub measurements: Vec<PathBuf>,
    /// GPU that was measured: built-in name or path of a TOML file
    #[arg(long, value_name = "NAME|PATH")]
    pub hardware: String,
    /// Folder to write <gpu>/<operator>.csv to
    #[arg(long, value_name = "DIR", conflicts_with = "check", required_unless_present = "check")]
    pub out: Option<PathBuf>,
    /// Score the tables at hand on the measurements (given here or with --measurements) and write nothing
    #[arg(long, value_name = "DIR", num_args = 0..)]
    pub check: Option<Vec<PathBuf>>,
    /// Tolerance: exit with 1 where an operator's median absolute error is above X percent
    #[arg(long, value_name = "X", value_parser = percent, allow_negative_numbers = true)]
    pub max_median_ape_pct: Option<f64>,
}

pub fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0);
    value.ok_or_else(|| "must be a number of percent, at least 0".to_owned())
}

#[derive(Debug, Args)]
pub struct Models {
    /// Name or path of one model, to see its layers and what a GPU holds of it
    #[arg(value_name = "NAME|PATH")]
    pub name: Option<String>,
    #[command(flatten)]
    pub parallel: ParallelArgs,
}

#[derive(Debug, Args)]
pub struct HardwareArgs {
    /// Name or path of one GPU, to see its figures, their sources and its tables
    #[arg(value_name = "NAME|PATH")]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct Completions {
    /// Shell to complete in
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_argument_definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
