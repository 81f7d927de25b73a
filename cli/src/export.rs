//! `ridgepoint export`: writes the lookup tables of a step model to a file that other languages read.

use std::path::{Path, PathBuf};

use clap::Args;
use ridgepoint::internals::correction::CorrectionInfo;
use ridgepoint::{Hardware, Model, StepModel};
use serde::Serialize;

use crate::common::{Common, PredictionArgs};
use crate::deployment::{DeploymentArgs, served};
use crate::outcome::{Failure, Outcome, Report, both};
use crate::whole_file::write_whole;

/// The arguments of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder
    #[arg(long, value_name = "NAME|PATH")]
    model: String,
    /// Built-in name (`ridgepoint hardware`) or path of a TOML file
    #[arg(long, value_name = "NAME|PATH")]
    hardware: String,
    /// File to write; one that exists is replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    deployment: DeploymentArgs,
    #[command(flatten)]
    prediction: PredictionArgs,
}

/// The file that was written.
#[derive(Debug, Serialize)]
pub struct Exported<'a> {
    path: &'a Path,
    bytes: usize,
    correction: CorrectionInfo,
    #[serde(skip)]
    served: String,
}

/// Writes the tables.
///
/// # Errors
/// Input that cannot be read or is at fault, a file that cannot be written.
pub fn run<'a>(args: &'a Export, common: &Common) -> Result<Outcome<Exported<'a>>, Failure> {
    let data_dir = common.data_dir();
    let (model, hardware) = both(Model::find_in(data_dir, &args.model), Hardware::find_in(data_dir, &args.hardware))?;
    let deployment = args.deployment.deployment();
    let steps = StepModel::with_options(&model, &hardware, &deployment, &args.prediction.options(common))?;
    let text = serde_json::to_string(&steps.exported(&model, &hardware, &deployment)?)
        .map_err(|error| Failure::input(format!("the tables cannot be written as JSON: {error}")))?;
    write_whole(&args.out, &text)?;
    let exported = Exported {
        path: &args.out,
        bytes: text.len(),
        correction: CorrectionInfo::of(steps.correction()),
        served: served(&model, &hardware, &deployment),
    };
    let notes = steps.notes().iter().cloned().chain(steps.carried_over()).collect();
    Ok(Outcome { notes, ..Outcome::of(exported) })
}

impl Report for Exported<'_> {
    fn table(&self) -> String {
        let Exported { path, bytes, correction, served } = self;
        format!("{}: {served}, correction {correction} ({bytes} bytes)\n", path.display())
    }
}
