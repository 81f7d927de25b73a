//! `ridgepoint evaluate bench`: results of load generators compared with their predictions.

use std::path::PathBuf;

use clap::Args;
use ridgepoint_lab::bench::{BenchCase, BenchReport, BenchResult, LengthSpread, judge_bench, read_results};
use ridgepoint_lab::served::Served;
use ridgepoint_replay::server_config::ServedEngine;

use super::capture::check_model;
use super::table::{absolute, signed};
use crate::common::{Common, PredictionArgs, one_of};
use crate::outcome::{Failure, Outcome, Report};
use crate::output::Outputs;
use crate::progress;
use crate::server::ServerArgs;
use crate::text::{Page, Rows, four_digits};

/// The arguments of `evaluate bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Results of one server: files of vllm bench serve, SGLang's bench_serving, guidellm or AIPerf, or what they printed, as text
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pub load: BenchLoadArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    prediction: PredictionArgs,
}

/// What a result leaves open of its load.
#[derive(Debug, Args)]
pub struct BenchLoadArgs {
    /// Lengths of requests where results have their sums alone [default: equal where the means are those of fixed lengths]
    #[arg(long, value_name = "KIND", value_parser = one_of(SPREADS))]
    pub lengths: Option<LengthSpread>,
    /// Requests that the client kept in flight at most, where results do not say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_concurrency: Option<u32>,
    /// Requests a second that the client sent, where results do not say
    #[arg(long, value_name = "R", value_parser = crate::common::above_zero)]
    pub request_rate: Option<f64>,
}

const SPREADS: [(&str, &str, LengthSpread); 2] = [
    ("equal", "All the same, as of random prompts", LengthSpread::Equal),
    ("exponential", "Some long, most short, as of conversations", LengthSpread::Exponential),
];

impl BenchLoadArgs {
    /// Reads results, and fills in what they leave open.
    ///
    /// # Errors
    /// Those of all files.
    pub fn read(&self, files: &[PathBuf]) -> Result<Vec<BenchResult>, Failure> {
        let (mut results, mut errors) = (Vec::new(), Vec::new());
        for file in files {
            match read_results(file) {
                Ok(found) => results.extend(found),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors.into());
        }
        for result in &mut results {
            let says_none = result.max_concurrency.is_none() && result.request_rate.is_none();
            result.max_concurrency = result.max_concurrency.or(self.max_concurrency.filter(|_| says_none));
            result.request_rate = result.request_rate.or(self.request_rate.filter(|_| says_none));
        }
        Ok(results)
    }
}

/// The results on a server.
///
/// # Errors
/// A result of another model, or of a server with other limits.
pub fn cases(
    results: Vec<BenchResult>,
    served: &Served,
    engine: &ServedEngine,
    lengths: Option<LengthSpread>,
    common: &Common,
) -> Result<Vec<BenchCase>, Failure> {
    let (mut cases, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        check_model(result.model.as_deref(), &served.model, common.data_dir())?;
        let latency = engine.latency(served.steps.clone())?;
        let replicas = served.deployment.data_parallel_size;
        match BenchCase::new(result, (engine.config.clone(), replicas), latency, lengths, 0) {
            Ok(case) => cases.push(case),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(cases) } else { Err(errors.into()) }
}

/// Judges results.
///
/// # Errors
/// Files that cannot be read or hold no result; a server that does not fit on its GPUs; results of another server.
pub fn run(args: &Bench, common: &Common) -> Result<Outcome<BenchReport>, Failure> {
    let options = args.prediction.options(common)?;
    let mut outputs = Outputs::new(common, crate::output::Force::default());
    let (served, engine, notes) = args.server.open(&options, args.prediction.logged()?, &mut outputs)?;
    let results = args.load.read(&args.files)?;
    let cases = cases(results, &served, &engine, args.load.lengths, common)?;
    let bar = progress::bar(cases.len() as u64, "replays [{bar:30}] {pos}/{len}, {elapsed}");
    let report = judge_bench(served.title(), &cases, &|| bar.inc(1))?;
    bar.finish_and_clear();
    Ok(Outcome { notes, ..Outcome::of(report) })
}

impl Report for BenchReport {
    fn lay_out(&self, page: &mut Page) {
        page.paragraph("", &self.server);
        page.line(&format!("correction {}", self.correction));
        for result in &self.results {
            page.blank();
            page.paragraph(&format!("{}: ", result.name), &result.load);
            rows(page, &result.rows);
            result.notes.iter().for_each(|note| page.paragraph("! ", note));
        }
        if self.results.len() > 1 {
            page.blank();
            let rows = Rows::of(&self.median_ape_pct)
                .left("absolute error", |of| of.figure.clone())
                .right("median", |of| absolute(of.median_ape_pct));
            page.rows(&rows, &[]);
        }
    }
}

/// Figures of a result with their predictions.
pub fn rows(page: &mut Page, rows: &[ridgepoint_lab::bench::BenchRow]) {
    let rows = Rows::of(rows)
        .left("figure", |of| of.figure.clone())
        .left("unit", |of| of.unit.to_owned())
        .right("measured", |of| four_digits(of.measured))
        .right("predicted", |of| four_digits(of.predicted))
        .right("interval", |of| match of.lower < of.upper {
            true => format!("{} to {}", four_digits(of.lower), four_digits(of.upper)),
            false => "-".to_owned(),
        })
        .right("error", |of| signed(of.error_pct));
    page.rows(&rows, &["interval"]);
}
