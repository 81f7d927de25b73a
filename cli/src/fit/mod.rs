//! `ridgepoint fit`: fits a correction and writes its file.

mod args;
mod files;
mod job;
mod serving;
mod steps;
mod steps_table;
mod table;

use std::path::Path;
use std::sync::Arc;

use indicatif::ProgressBar;
use ridgepoint::internals::correction::{Correction, Level};
use ridgepoint::{CorrectionChoice, EfficiencyMode, Model};

use crate::common::{Common, Format};
pub use args::Fit;
use args::FitLevel;
use job::{FitJob, Fitted};
pub use steps::{Refit, RefitLevel};

use crate::outcome::{Failure, Output};
use crate::progress;
use crate::whole_file::write_whole;

/// Fits.
///
/// # Errors
/// Input that is missing or at fault, a file that is there already or can't be written.
pub fn run(args: &Fit, common: &Common) -> Result<Output, Failure> {
    refuse_to_replace(&args.out, args.force)?;
    let job = job(args, common)?;
    let bar = progress::bar(0, "{msg} [{bar:30}] {pos}/{len}, {elapsed}");
    let fitted = fitted(&job, &bar)?;
    bar.finish_and_clear();
    write_whole(&args.out, &fitted.correction.to_toml_string()?)?;
    let mut output = match common.format {
        Format::Table => Output::of(fitted.table),
        Format::Json => Output::json(&fitted.json)?,
    };
    output.notes = fitted.notes;
    Ok(output)
}

/// The fit itself; `bar` counts the solver's work.
///
/// # Errors
/// Data that is missing or at fault, or that nothing can be fitted on.
fn fitted(job: &FitJob<'_>, bar: &ProgressBar) -> Result<Fitted, Failure> {
    if job.steps.is_empty() { serving::fitted(job, bar) } else { steps::fitted(job, bar) }
}

fn job<'a>(args: &'a Fit, common: &'a Common) -> Result<FitJob<'a>, Failure> {
    let data_dir = common.data_dir();
    let level = match (args.level, args.model.as_deref()) {
        (FitLevel::Model, Some(model)) => Level::Model { model: Model::find_in(data_dir, model)?.name().to_owned() },
        (FitLevel::Model, None) => {
            return Err(Failure::missing("--level model needs --model NAME"));
        }
        (FitLevel::Global, Some(_)) if args.steps.is_empty() => {
            let message = "--model goes with --level model; a global correction is fitted on all models in the data";
            return Err(Failure::conflict(message));
        }
        (FitLevel::Global, _) => Level::Global,
    };
    let labels = args.labels()?;
    Ok(FitJob {
        steps: &args.steps,
        serving: &args.serving,
        prior: prior(args.prior.as_deref(), &level)?,
        level,
        split: args.split,
        data: args.data.as_deref(),
        engine_version: args.engine_version.as_deref(),
        labels,
        seed: args.seed,
        data_dir,
    })
}

fn prior(wanted: Option<&str>, level: &Level) -> Result<Option<Correction>, Failure> {
    let (usual, model) = match level {
        Level::Global => ("none", "any model"),
        Level::Model { model } => ("global", model.as_str()),
    };
    match wanted.unwrap_or(usual) {
        "auto" => {
            Err(Failure::input("--prior auto: must be none, global or the path of a file that `ridgepoint fit` wrote"))
        }
        wanted => {
            let prior = CorrectionChoice::from(wanted).resolve(model, EfficiencyMode::Tables)?;
            Ok(prior.map(Arc::unwrap_or_clone))
        }
    }
}

fn refuse_to_replace(out: &Path, force: bool) -> Result<(), Failure> {
    if out.is_file() && !force {
        return Err(Failure::input(format!("--out {}: is there already; --force replaces it", out.display())));
    }
    Ok(())
}
