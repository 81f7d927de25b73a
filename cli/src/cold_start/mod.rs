//! `ridgepoint cold-start`: the time from the start of a server to its first token, predicted, and fitted to logs. `args` are those that
//! `simulate` shares, `table` lays the report out.

mod args;
mod table;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::{Args, value_parser};
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::{Deployment, Options};
use ridgepoint_lab::cold_start::{ColdStartFit, StartLog, compare, read_start_logs};
use ridgepoint_lab::served::Served;
use ridgepoint_replay::cold_start::{ColdStart, CompileCache, FittedRates, Rates, StartUp, Storage};
use serde::Serialize;

pub use args::{OpenedRates, StartArgs};
pub use table::terms;

use crate::common::Common;
use crate::deployment::StepModelArgs;
use crate::outcome::{Failure, Outcome};
use crate::output::{Force, Kind, Outputs};

const LOGS: &str = "Measured starts";

/// The arguments of `cold-start`.
#[derive(Debug, Args)]
pub struct ColdStartArgs {
    #[command(flatten)]
    step_model: StepModelArgs,
    #[command(flatten)]
    start: StartArgs,
    /// Prompt tokens of the first request
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MOST_TOKENS), default_value_t = 512)]
    #[arg(allow_negative_numbers = true)]
    input_len: u32,
    /// vLLM's logs of starts of this model: measured and predicted times, and rates fitted to them
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "storage_gb_s", help_heading = LOGS)]
    log: Vec<PathBuf>,
    /// Rates that --out wrote, in place of the assumed ones
    #[arg(long, value_name = "FILE", help_heading = LOGS)]
    fitted: Option<PathBuf>,
    /// File to write the rates that are fitted to --log to
    #[arg(long, value_name = "FILE", requires = "log", help_heading = LOGS)]
    out: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Longest first prompt.
const MOST_TOKENS: i64 = 10_000_000;

/// A predicted start. Its JSON keys are stable: keys are added, never renamed or dropped.
#[derive(Debug, Serialize)]
pub struct ColdStartReport {
    #[serde(skip)]
    title: String,
    model: String,
    hardware: String,
    deployment: Deployment,
    storage: String,
    compile_cache: &'static str,
    prompt_tokens: u32,
    correction: CorrectionInfo,
    #[serde(flatten)]
    start_up: StartUp,
    /// Logged starts; `None` without logs.
    logs: Option<ColdStartFit>,
    /// The file of fitted rates.
    written: Option<PathBuf>,
    warnings: Vec<String>,
}

/// Predicts a start.
///
/// # Errors
/// Input that cannot be read or is at fault; logs without a whole start or of another model; a file that cannot be written.
pub fn run(args: &ColdStartArgs, common: &Common) -> Result<Outcome<ColdStartReport>, Failure> {
    let mut outputs = Outputs::new(common, args.force);
    if let Some(out) = &args.out {
        outputs.probe(out, Kind::StartRates)?;
    }
    let served = args.step_model.open(common, true)?;
    let logs = read(&args.log)?;
    let opened = args.start.rates(args.fitted.as_deref(), &served.model, &served.hardware)?;
    let mut warnings = served.steps.notes();
    warnings.extend(opened.notes);
    let options = args.step_model.prediction.options(common)?;
    let (rates, fit) = fitted(&logs, &served, &options, opened.rates, opened.fitted, &mut warnings)?;
    if let (Some(out), Some(fit)) = (&args.out, &fit) {
        outputs.write(out, Kind::StartRates, &fit.fitted.to_toml_string()?)?;
    }
    let compile_cache = args.start.compile_cache();
    let start_up = start(&served, &rates, compile_cache, args.input_len)?;
    if served.deployment.num_gpus() > GPUS_OF_A_HOST {
        warnings
            .push("the server has more GPUs than a host: storage is read once, as if all hosts shared it".to_owned());
    }
    let report = ColdStartReport {
        title: served.title(),
        storage: rates.storage().to_string(),
        compile_cache: compile_cache.name(),
        prompt_tokens: args.input_len,
        correction: CorrectionInfo::of(served.steps.correction()),
        start_up,
        logs: fit,
        written: args.out.clone(),
        warnings,
        model: served.model.name,
        hardware: served.hardware.name,
        deployment: served.deployment,
    };
    Ok(Outcome::of(report))
}

/// GPUs of a common host.
const GPUS_OF_A_HOST: u64 = 8;

/// Predicts the start of a server.
///
/// # Errors
/// Those of [`ColdStart::predict`].
pub fn start(
    served: &Served,
    rates: &Rates,
    compile_cache: CompileCache,
    prompt_tokens: u32,
) -> Result<StartUp, Failure> {
    let Served { model, hardware, deployment, steps } = served;
    Ok(ColdStart { model, hardware, deployment, steps, rates, compile_cache, prompt_tokens }.predict()?)
}

/// Reads all logs, or returns the problems of all.
fn read(paths: &[PathBuf]) -> Result<Vec<StartLog>, Failure> {
    let (mut logs, mut errors) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for path in paths {
        if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            return Err(Failure::input(format!("{}: is given twice, and a start counts once", path.display())));
        }
        match read_start_logs(path) {
            Ok(found) => logs.extend(found),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(logs) } else { Err(errors.into()) }
}

/// The rates after the logs: those that were fitted now, those of the file, and the assumed ones.
fn fitted(
    logs: &[StartLog],
    served: &Served,
    options: &Options,
    rates: Rates,
    file: Option<FittedRates>,
    warnings: &mut Vec<String>,
) -> Result<(Rates, Option<ColdStartFit>), Failure> {
    if logs.is_empty() {
        return Ok((rates, None));
    }
    let mut fit = compare(logs, (&served.model, &served.hardware), &served.deployment, options, &rates)?;
    warnings.append(&mut fit.notes);
    let storage: Storage = rates.storage();
    // A rate that the logs do not determine keeps the file's value; one of other storage does not.
    if let Some(file) = file.filter(|file| file.storage == storage) {
        for (name, rate) in file.rates {
            fit.fitted.rates.entry(name).or_insert(rate);
        }
    }
    Ok((Rates::new(&served.hardware, storage, Some(&fit.fitted)), Some(fit)))
}
