//! `ridgepoint export`: writes the lookup tables of a step model to a file that other languages read, or prints the flags of another
//! simulator.

mod llm_d;

use std::path::{Path, PathBuf};

use clap::Args;
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::latency::KvTransfers;
use ridgepoint_lab::served::Served;
use serde::Serialize;

use crate::common::{Common, PREDICTION, one_of};
use crate::deployment::StepModelArgs;
use crate::outcome::{Failure, Outcome, Report, print};
use crate::output::{Force, Kind, Outputs};
use crate::text::Page;
use llm_d::LlmDCommand;

/// The arguments of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// What to export: lookup tables to --out, or the nearest latency flags of llm-d-inference-sim to stdout
    #[arg(long = "as", value_parser = one_of(TARGETS), default_value = "tables", value_name = "KIND")]
    target: Target,
    /// File to write the tables to
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Captures of one run, as `evaluate capture` reads them: flags of its latencies instead of predicted ones
    #[arg(long, value_name = "PATH", num_args = 1..)]
    capture: Vec<PathBuf>,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    step_model: StepModelArgs,
    /// File of measured transfer times for the tables, as `ridgepoint ingest --output-transfers` writes it [default: those of the link
    /// between GPU and host]
    #[arg(long, value_name = "FILE", help_heading = PREDICTION)]
    kv_transfers: Option<PathBuf>,
}

/// The tables of steps, and the times of KV transfers.
#[derive(Serialize)]
struct File<T: Serialize> {
    #[serde(flatten)]
    steps: T,
    /// `None` where the link between GPU and host is not known.
    kv_transfers: Option<KvTransfers>,
}

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Lookup tables.
    Tables,
    /// Flags of llm-d-inference-sim.
    LlmD,
}

const TARGETS: [(&str, &str, Target); 2] = [
    ("tables", "Lookup tables of steps as JSON, for simulators in other languages", Target::Tables),
    (llm_d::PROGRAM, "Its latency flags, from predicted steps or from --capture", Target::LlmD),
];

/// The file that was written.
#[derive(Debug, Serialize)]
pub struct Exported<'a> {
    path: &'a Path,
    bytes: usize,
    correction: CorrectionInfo,
    #[serde(skip)]
    served: String,
}

/// Exports a step model and prints what became of it; returns the exit code.
pub fn run(args: &Export, common: &Common) -> u8 {
    match args.target {
        Target::Tables => print(tables(args, common), common.format),
        Target::LlmD => print(flags(args, common), common.format),
    }
}

/// Prints the flags of llm-d-inference-sim.
fn flags(args: &Export, common: &Common) -> Result<Outcome<LlmDCommand>, Failure> {
    if args.kv_transfers.is_some() {
        return Err(Failure::usage(format!("--kv-transfers is for tables: {} copies no KV blocks", llm_d::PROGRAM)));
    }
    if args.out.is_some() {
        let message = format!("--out is for tables: --as {} prints its flags on stdout", llm_d::PROGRAM);
        return Err(Failure::usage(message));
    }
    llm_d::run(args.step_model.open(common, false)?, &args.capture, common)
}

/// Writes lookup tables.
fn tables<'a>(args: &'a Export, common: &Common) -> Result<Outcome<Exported<'a>>, Failure> {
    let Some(out) = args.out.as_deref() else {
        return Err(Failure::usage("--out FILE is missing: tables are written to a file"));
    };
    if !args.capture.is_empty() {
        return Err(Failure::usage(format!("--capture gives latencies to --as {} alone", llm_d::PROGRAM)));
    }
    let mut outputs = Outputs::new(common, args.force);
    outputs.probe(out, Kind::StepModelTables)?;
    outputs.reads(&args.kv_transfers);
    let measured = args.kv_transfers.as_deref().map(KvTransfers::read).transpose()?;
    let served = args.step_model.open(common, false)?;
    let title = served.title();
    let Served { model, hardware, deployment, steps } = served;
    let latency = CalibratedRoofline::new(steps).with_kv_transfers(measured);
    let (steps, kv_transfers) = (latency.steps(), latency.kv_transfers().map(KvTransfers::with_disk));
    let text = serde_json::to_string(&File { steps: steps.exported(&model, &hardware, &deployment)?, kv_transfers })
        .map_err(|error| Failure::input(format!("the tables cannot be written as JSON: {error}")))?;
    outputs.write(out, Kind::StepModelTables, &text)?;
    let exported =
        Exported { path: out, bytes: text.len(), correction: CorrectionInfo::of(steps.correction()), served: title };
    Ok(Outcome { notes: steps.notes(), ..Outcome::of(exported) })
}

impl Report for Exported<'_> {
    fn lay_out(&self, page: &mut Page) {
        let Exported { path, bytes, correction, served } = self;
        page.line(&format!("{}: {served}, correction {correction} ({bytes} bytes)", path.display()));
    }
}
