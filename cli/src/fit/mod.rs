//! `ridgepoint fit`: fits a correction and writes its file.

mod args;
mod bench;
mod clients;
mod files;
mod serving;
mod steps;
mod table;
mod training;

use std::path::Path;

use indicatif::ProgressBar;
use ridgepoint::correction::{Level, Source};
use ridgepoint::{CorrectionChoice, EfficiencyMode, Model};
use ridgepoint_lab::bench::BenchFitReport;
use ridgepoint_lab::fit::{FitReport, Prior, StepFitReport};
use ridgepoint_lab::training::Training;
use serde::Serialize;

use crate::common::Common;
pub use args::{Fit, FitLevel};
pub use clients::{clients_on, requests_of_one};
pub use files::read_labelled;

use crate::outcome::{Failure, Outcome};
use crate::output::{Kind, OutputFolder, Outputs};
use crate::progress;

/// The report of a fit, by the kind of its data.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Fitted {
    /// Of serving runs.
    Serving(FitReport),
    /// Of results of a load generator.
    Bench(BenchFitReport),
    /// Of sampled steps.
    Steps(Box<FittedSteps>),
}

/// The report of a fit to sampled steps.
#[derive(Serialize)]
pub struct FittedSteps {
    #[serde(flatten)]
    report: StepFitReport,
    /// The training tables, if they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    training: Option<Training>,
}

/// A fit that is to be made.
struct Job<'a> {
    args: &'a Fit,
    data_dir: Option<&'a Path>,
    /// The models that the correction is for.
    level: Level,
    /// The prior of the coefficients.
    prior: Prior,
    bar: ProgressBar,
}

impl Job<'_> {
    /// Replaces the description of the data by `--data`, and a missing engine version by `--engine-version`.
    fn describe(&self, source: &mut Source) {
        if let Some(data) = &self.args.data {
            data.clone_into(&mut source.data);
        }
        if source.engine_versions.is_empty() {
            source.engine_versions.extend(self.args.engine_version.clone());
        }
    }
}

/// Fits.
///
/// # Errors
/// Input that is missing or at fault, a file that is there already or can't be written.
pub fn run(args: &Fit, common: &Common) -> Result<Outcome<Fitted>, Failure> {
    let mut outputs = Outputs::new(common, args.force);
    outputs.probe(&args.out, Kind::Correction)?;
    let folder = args.training_tables.clone().map(OutputFolder::make).transpose()?;
    for (path, kind) in folder.iter().flat_map(|folder| training::paths(&folder.path)) {
        outputs.probe(&path, kind)?;
    }
    let data_dir = common.data_dir();
    let level = level(args, data_dir)?;
    let prior = prior(args, &level)?;
    let bar = progress::bar(0, "{msg} [{bar:30}] {pos}/{len}, {elapsed}");
    let job = Job { args, data_dir, level, prior, bar };
    let (correction, mut outcome) = match (args.bench.is_empty(), args.steps.is_empty()) {
        (false, _) => bench::fitted(&job, &mut outputs, common)?,
        (true, true) => serving::fitted(&job, &mut outputs)?,
        (true, false) => steps::fitted(&job, &mut outputs)?,
    };
    job.bar.finish_and_clear();
    if outcome.missed.is_some() {
        return Ok(outcome);
    }
    let mut files = vec![(args.out.clone(), Kind::Correction, correction.to_toml_string()?)];
    if let (Some(folder), Fitted::Steps(fitted)) = (&folder, &outcome.result) {
        files.extend(training::files(&folder.path, fitted, &correction)?);
        let others = training::paths(&folder.path).into_iter().filter(|(path, _)| files.iter().all(|of| of.0 != *path));
        let there = others.filter(|(path, _)| path.exists());
        outcome
            .notes
            .extend(there.map(|(path, _)| format!("{}: was there before and is not of this fit", path.display())));
    }
    outputs.write_all(files)?;
    Ok(outcome)
}

fn level(args: &Fit, data_dir: Option<&Path>) -> Result<Level, Failure> {
    match (args.level, args.model.as_deref()) {
        (FitLevel::Model, Some(model)) => Ok(Level::Model { model: Model::find_in(data_dir, model)?.name }),
        (FitLevel::Model, None) => Err(Failure::usage("--level model needs --model NAME")),
        (FitLevel::Global, Some(_)) if !args.serving.is_empty() => {
            let message = "--model goes with --level model; a global correction is fitted on all models in the data";
            Err(Failure::usage(message))
        }
        (FitLevel::Global, _) => Ok(Level::Global),
    }
}

fn prior(args: &Fit, level: &Level) -> Result<Prior, Failure> {
    let (usual, model) = match level {
        Level::Global => ("none", "any model"),
        Level::Model { model } => ("global", model.as_str()),
    };
    let requested = args.prior.as_deref().unwrap_or(usual);
    if requested == "auto" {
        let message = "--prior auto: must be none, global or the path of a file that `ridgepoint fit` wrote";
        return Err(Failure::input(message));
    }
    let global = CorrectionChoice::from(requested).resolve(model, EfficiencyMode::Tables)?;
    let uncorrected = match level {
        Level::Global if args.steps.is_empty() => Prior::of_serving_runs,
        _ => Prior::of_any_model,
    };
    Ok(global.map_or_else(uncorrected, |global| Prior::around(&global)))
}
