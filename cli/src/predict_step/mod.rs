//! `ridgepoint predict-step`: predicts one batch; `table` lays the prediction out.

mod table;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ridgepoint_lab::predict_step::{Batch, Item, PredictedStep};

use crate::common::{Common, PREDICTION};
use crate::deployment::StepModelArgs;
use crate::outcome::{Failure, Outcome};

const BATCH: &str = "Batch";

/// The arguments of `predict-step`.
#[derive(Debug, Args)]
pub struct PredictStep {
    /// Batch file, `-` for standard input: {"requests": [{"num_computed_tokens": 2048, "num_scheduled_tokens": 1}]}. A request may set
    /// "sampling_params": {"temperature": 0}
    #[arg(long, value_name = "FILE|-", help_heading = BATCH, conflicts_with_all = ["prefill", "decode"])]
    batch: Option<PathBuf>,
    /// Prefill chunks: N (default 1) chunks of Q tokens, each after C (default 0) computed tokens; `:partial` marks a chunk
    /// that does not end its prompt and so samples no token
    #[arg(long, value_name = "[Nx]Q[@C][:partial]", num_args = 1.., value_delimiter = ',', value_parser = Item::prefill)]
    #[arg(help_heading = BATCH, allow_negative_numbers = true)]
    prefill: Vec<Item>,
    /// Decodes: N requests of one new token each, after C computed tokens (also N@C)
    #[arg(long, value_name = "NxC", num_args = 1.., value_delimiter = ',', value_parser = Item::decode)]
    #[arg(help_heading = BATCH, allow_negative_numbers = true)]
    decode: Vec<Item>,
    #[command(flatten)]
    step_model: StepModelArgs,
    /// Explain what limits the slowest operators and what would speed them up
    #[arg(long, help_heading = PREDICTION)]
    explain: bool,
}

/// Predicts a step.
///
/// # Errors
/// Input that cannot be read or is at fault.
pub fn run(args: &PredictStep, common: &Common) -> Result<Outcome<PredictedStep>, Failure> {
    if args.batch.is_none() && args.prefill.is_empty() && args.decode.is_empty() {
        return Err(Failure::usage("no batch: give --batch FILE, or --prefill Q@C and --decode NxC"));
    }
    let served = args.step_model.open(common, true)?;
    let batch = match &args.batch {
        Some(path) => Batch::read(path)?,
        None => Batch::of_items("the command line", [&*args.prefill, &args.decode].concat())?,
    };
    let efficiency = args.step_model.prediction.options(common)?.efficiency;
    Ok(Outcome::of(PredictedStep::new(Arc::new(served), efficiency, &batch, args.explain)?))
}
