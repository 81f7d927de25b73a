//! `ridgepoint evaluate capture`: one's own requests beside their predictions.

use std::path::PathBuf;

use clap::Args;
use ridgepoint::Model;
use ridgepoint::internals::workload::check_memory;
use ridgepoint_lab::evaluate::capture::{
    CaptureReport, CaptureServer, CapturedRun, Verdict, judge_capture, read_capture,
};
use ridgepoint_lab::evaluate::metric::Metric;
use ridgepoint_lab::evaluate::report::MetricRow;

use super::table::{absolute, signed};
use crate::common::{Common, MemoryArg, PredictionArgs, at_least_zero};
use crate::deployment::Served;
use crate::outcome::{Failure, Outcome, Report};
use crate::output::{Force, Kind, Outputs};
use crate::progress::{self, AnsweredRequests};
use crate::server::ServerArgs;
use crate::text::{Page, Rows, plural};

/// The arguments of `evaluate capture`.
#[derive(Debug, Args)]
pub struct Capture {
    /// Traces, reports and tables of one run, of any format that `ingest` reads, or the folder that it wrote
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Name of the run, where the files hold several
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    memory: MemoryArg,
    #[command(flatten)]
    prediction: PredictionArgs,
    /// Write one csv row per request, measured beside predicted
    #[arg(long, value_name = "FILE")]
    output_csv: Option<PathBuf>,
    /// Exit with 1 if the error of the mean E2E is above X percent
    #[arg(long, value_name = "X", value_parser = at_least_zero, allow_negative_numbers = true)]
    max_e2e_mean_pct: Option<f64>,
    #[command(flatten)]
    force: Force,
}

/// Judges a captured run.
///
/// # Errors
/// Files that cannot be read or hold no such run; a server that does not fit; a file that cannot be written.
pub fn run(args: &Capture, common: &Common) -> Result<Outcome<CaptureReport>, Failure> {
    let mut outputs = Outputs::new(common, args.force);
    let (served, engine, notes) = args.server.open(&args.prediction.options(common), &mut outputs)?;
    let Served { model, steps, .. } = served;
    let file = args.output_csv.as_deref().map(|path| outputs.create(path, Kind::JudgedRequests)).transpose()?;
    let captured = read_capture(&args.paths, args.experiment.as_deref())?;
    let requests = captured.requests.len() as u64;
    check_memory(requests, 1, args.memory.max_memory_gib)?;
    check_model(&captured, &model, common)?;
    let server = CaptureServer { engine: engine.config, blocks_are_given: engine.blocks_are_given, steps };
    let bar = progress::bar(requests, "replay [{bar:30}] {percent} % of {len} requests, {elapsed}");
    let report = judge_capture(captured, server, AnsweredRequests(bar.clone()))?;
    bar.finish_and_clear();
    if let Some(mut file) = file {
        file.write(|out| report.write_requests(out))?;
        file.keep()?;
    }
    let missed = args.max_e2e_mean_pct.and_then(|limit_pct| missed(&report, limit_pct));
    Ok(Outcome { result: report, notes, missed })
}

/// Refuses a capture of another model than the server's, where the capture names one that is known.
fn check_model(captured: &CapturedRun, model: &Model, common: &Common) -> Result<(), Failure> {
    let Some(name) = &captured.run.model else { return Ok(()) };
    match Model::find_in(common.data_dir(), name) {
        Ok(other) if other.name != model.name => Err(Failure::input(format!(
            "the capture is of the model {name}, the server has {}: judge the model that was captured, or correct the \
             capture's label with `ridgepoint ingest --model`",
            model.name
        ))),
        _ => Ok(()),
    }
}

fn missed(report: &CaptureReport, limit_pct: f64) -> Option<String> {
    match report.metrics.iter().find(|row| row.metric == Metric::E2E_MEAN) {
        Some(row) if row.ape_pct <= limit_pct => None,
        Some(row) => {
            Some(format!("the error of e2e_mean is {:.2} %, above the tolerance of {limit_pct} %", row.ape_pct))
        }
        None => Some("the capture has no E2E to hold against the tolerance".to_owned()),
    }
}

impl Report for CaptureReport {
    fn lay_out(&self, page: &mut Page) {
        let rows = Rows::of(self.metrics.iter())
            .left("metric", |row: &&MetricRow| row.metric.to_string())
            .right("measured ms", |row| format!("{:.3}", row.measured_ms))
            .right("predicted ms", |row| format!("{:.3}", row.predicted_ms))
            .right("90 % interval", |row| format!("{:.2} to {:.2}", row.lower_ms, row.upper_ms))
            .right("error", |row| signed(row.error_pct));
        page.line(&format!(
            "{} of '{}', predicted with the correction {}",
            plural(self.requests as u64, "request"),
            self.experiment,
            self.correction
        ));
        page.blank();
        page.rows(&rows, &["90 % interval"]);
        page.blank();
        for Verdict { metric, limit_pct, ape_pct, passed } in &self.verdicts {
            let word = if *passed { "passes" } else { "fails" };
            page.line(&format!("{word}: {metric} within {limit_pct} %, here {}", absolute(*ape_pct)));
        }
        if self.left_out.total() > 0 {
            page.paragraph("left out: ", &self.left_out.to_string());
        }
        self.notes.iter().for_each(|note| page.paragraph("note: ", note));
    }
}
