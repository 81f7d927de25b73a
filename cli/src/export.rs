//! `ridgepoint export`: writes the lookup tables of a step model to a file that other languages read.

use std::path::{Path, PathBuf};

use clap::Args;
use ridgepoint::internals::correction::CorrectionInfo;
use serde::Serialize;

use crate::common::Common;
use crate::deployment::{Served, StepModelArgs};
use crate::outcome::{Failure, Outcome, Report};
use crate::output::{Force, Kind, Outputs};
use crate::text::Page;

/// The arguments of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// File to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    step_model: StepModelArgs,
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
    let mut outputs = Outputs::new(common, args.force);
    outputs.probe(&args.out, Kind::StepModelTables)?;
    let served = args.step_model.open(common, false)?;
    let Served { model, hardware, deployment, steps } = &served;
    let text = serde_json::to_string(&steps.exported(model, hardware, deployment)?)
        .map_err(|error| Failure::input(format!("the tables cannot be written as JSON: {error}")))?;
    outputs.write(&args.out, Kind::StepModelTables, &text)?;
    let exported = Exported {
        path: &args.out,
        bytes: text.len(),
        correction: CorrectionInfo::of(steps.correction()),
        served: served.title(),
    };
    let notes = steps.notes().iter().cloned().chain(steps.carried_over()).collect();
    Ok(Outcome { notes, ..Outcome::of(exported) })
}

impl Report for Exported<'_> {
    fn lay_out(&self, page: &mut Page) {
        let Exported { path, bytes, correction, served } = self;
        page.line(&format!("{}: {served}, correction {correction} ({bytes} bytes)", path.display()));
    }
}
