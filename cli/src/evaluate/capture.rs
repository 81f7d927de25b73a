//! `ridgepoint evaluate capture`: one's own requests compared with their predictions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use ridgepoint::correction::Level;
use ridgepoint::latency::FittedBlackBox;
use ridgepoint::{Correction, CorrectionChoice, Deployment, Error, Hardware, Model};
use ridgepoint_lab::evaluate::capture::{
    CaptureReport, CaptureServer, Distributions, GapStatistics, LimitCheck, OtherWaits, QueueWaits, WorkCount,
    judge_capture, read_capture,
};
use ridgepoint_lab::evaluate::metric::Metric;
use ridgepoint_lab::evaluate::report::MetricRow;
use ridgepoint_lab::evaluate::steps::case::StepCase;
use ridgepoint_lab::evaluate::steps::read::StepData;
use ridgepoint_lab::fit::{
    Captured, DelaysOfRuns, FittedRows, ParameterReport, Prior, StepFitReport, fit_cases, unlike_the_fitted,
};
use ridgepoint_lab::served::{Served, of_another_server};
use ridgepoint_lab::training::{QueueRow, queue_rows};
use ridgepoint_replay::server_config::ServedEngine;
use ridgepoint_replay::workload::check_memory;

use super::table::{absolute, signed};
use crate::common::{Common, MemoryArg, PredictionArgs, above_zero, at_least_zero};
use crate::fit::{clients_on, read_labelled, requests_of_one};
use crate::outcome::{Failure, Outcome, Report};
use crate::output::Kind;
use crate::plots::Plot;
use crate::progress::{self, AnsweredRequests};
use crate::server::ServerArgs;
use crate::text::{Page, Rows, percent, plural, shown};

/// The arguments of `evaluate capture`.
#[derive(Debug, Args)]
pub struct Capture {
    /// Traces, reports and tables of one run, of any format that `ingest` reads, or the folder that it wrote
    #[arg(value_name = "PATH", required_unless_present = "judge")]
    paths: Vec<PathBuf>,
    /// Traces, reports and tables of the run to judge, with --fit-from
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "paths")]
    judge: Vec<PathBuf>,
    /// Fit a correction to the steps of these captures first: how well does one load predict another?
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "correction")]
    fit_from: Vec<PathBuf>,
    /// Name of the run, where the files hold several
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,
    /// The load was a closed loop: send each request when one of N in flight ends, not at its captured time [default: captured times]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_concurrency: Option<u32>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    memory: MemoryArg,
    #[command(flatten)]
    prediction: PredictionArgs,
    /// Take the times of steps and the host's delays from a latency model of `ridgepoint fit --training-tables`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["correction", "fit_from", "efficiency"])]
    latency: Option<PathBuf>,
    /// Write one csv row per request, measured and predicted
    #[arg(long, value_name = "FILE")]
    output_csv: Option<PathBuf>,
    /// Exit with 1 if the error of the mean E2E is above X percent
    #[arg(long, value_name = "X", value_parser = at_least_zero, allow_negative_numbers = true)]
    max_e2e_mean_pct: Option<f64>,
    /// Gaps between tokens above X ms count as long: another prompt was computed in their step [default: twice the median]
    #[arg(long, value_name = "X", value_parser = above_zero, allow_negative_numbers = true)]
    long_gap_ms: Option<f64>,
    #[command(flatten)]
    plot: Plot,
}

/// Judges a captured run.
///
/// # Errors
/// Files that cannot be read or hold no such run; a server that does not fit; a file that cannot be written.
pub fn run(args: &Capture, common: &Common) -> Result<Outcome<CaptureReport>, Failure> {
    let mut plots = args.plot.prepare("capture", common)?;
    let outputs = &mut plots.outputs;
    let mut options = args.prediction.options(common)?;
    let fitted = args.latency.as_deref().map(FittedBlackBox::load).transpose()?;
    if !args.fit_from.is_empty() {
        options.correction = CorrectionChoice::None;
    }
    let (served, engine, mut notes) = args.server.open(&options, args.prediction.logged()?, outputs)?;
    let Served { model, hardware, deployment, mut steps } = served;
    let file = args.output_csv.as_deref().map(|path| outputs.create(path, Kind::JudgedRequests)).transpose()?;
    let paths = if args.judge.is_empty() { &args.paths } else { &args.judge };
    let captured = read_capture(paths, args.experiment.as_deref())?;
    let requests = captured.requests.len() as u64;
    check_memory(requests, 1, args.memory.max_memory_gib)?;
    check_model(captured.run.model.as_deref(), &model, common.data_dir())?;
    let (mut coefficients, mut others) = (None, None);
    if !args.fit_from.is_empty() {
        let server = (&model, &hardware, &deployment);
        let (correction, report, waits) = fit(args, server, &engine, common, &mut notes)?;
        let data = correction.source.data.clone();
        notes.push(format!("fitted on {data}: {}", report.verdict.in_words()));
        notes.extend(report.verdict.remarks);
        steps = steps.with_correction(Arc::new(correction));
        notes.extend(unlike_the_fitted(&steps, &engine.config));
        coefficients = Some(report.fit.parameters);
        others = Some(OtherWaits { rows: waits, from: data });
    }
    if let Some(fitted) = &fitted {
        notes.extend(of_another_server(fitted, &model, &hardware, &deployment));
    }
    let server = CaptureServer {
        latency: engine.latency(steps)?,
        engine: engine.config,
        blocks_are_given: engine.blocks_are_given,
        max_concurrency: args.max_concurrency,
        fitted,
    };
    let bar = progress::bar(requests, "replay [{bar:30}] {percent} % of {len} requests, {elapsed}");
    let mut report = judge_capture(captured, server, others.as_ref(), &mut [&mut AnsweredRequests(bar.clone())])?;
    bar.finish_and_clear();
    if let Some((distributions, threshold_ms)) = report.distributions.as_mut().zip(args.long_gap_ms) {
        distributions.set_threshold_ms(threshold_ms);
    }
    report.coefficients = coefficients;
    if let Some(mut file) = file {
        file.write(|out| report.write_requests(out))?;
        file.keep()?;
    }
    notes.extend(plots.write_capture(&report)?);
    let missed = args.max_e2e_mean_pct.and_then(|limit_pct| missed(&report, limit_pct));
    Ok(Outcome { result: report, notes, missed })
}

/// A correction of this server's model, fitted to the steps of `--fit-from`, and the waits of its requests in the queue.
fn fit(
    args: &Capture,
    server: (&Model, &Hardware, &Deployment),
    engine: &ServedEngine,
    common: &Common,
    notes: &mut Vec<String>,
) -> Result<(Correction, StepFitReport, Vec<QueueRow>), Failure> {
    let (model, ..) = server;
    let (data, names) = read_labelled(&args.fit_from, &|_| Ok(()), notes)?;
    for run in &data.runs {
        check_model(run.run.trace.run.model.as_deref(), model, common.data_dir())?;
    }
    let (delays, StepData { runs, requests }) = (DelaysOfRuns::of(&data), data);
    let case = |run| StepCase::on(run, server, common.data_dir());
    let cases = runs.into_iter().map(case).collect::<Result<Vec<StepCase>, Error>>()?;
    let prior = Prior::of_one_model()?;
    let level = Level::Model { model: model.name.clone() };
    let clients = requests_of_one(&cases, &requests).map(|requests| clients_on(requests, &cases, engine));
    let captured = Captured { cases: &cases, delays: &delays, clients: clients.as_ref() };
    let bar = progress::bar(cases.len() as u64, "fit [{bar:30}] {pos} of {len} runs, {elapsed}");
    let (correction, report) =
        fit_cases(&names.join(", "), captured, &prior, &level, FittedRows::Judged, &|| bar.inc(1))?;
    bar.finish_and_clear();
    let waits = cases.iter().flat_map(|case| queue_rows(case, &requests).0).collect();
    Ok((correction, report, waits))
}

/// Refuses a capture of another model than the server's, where the capture names one that is known.
///
/// # Errors
/// Another model.
pub fn check_model(name: Option<&str>, model: &Model, data_dir: Option<&Path>) -> Result<(), Failure> {
    let Some(name) = name else { return Ok(()) };
    match Model::find_in(data_dir, name) {
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
        None => Some("the capture has no E2E to compare with the tolerance".to_owned()),
    }
}

impl Report for CaptureReport {
    fn lay_out(&self, page: &mut Page) {
        let rows = Rows::of(self.metrics.iter())
            .left("metric", |row: &&MetricRow| row.metric.to_string())
            .right("measured ms", |row| format!("{:.3}", row.measured_ms))
            .right("predicted ms", |row| format!("{:.3}", row.predicted_ms))
            .right("interval", |row| match row.lower_ms < row.upper_ms {
                true => format!("{:.2} to {:.2}", row.lower_ms, row.upper_ms),
                // Without a spread nothing is known of the error.
                false => "-".to_owned(),
            })
            .right("error", |row| signed(row.error_pct));
        let by = match &self.latency_model {
            Some(method) => format!("by the {method} line in place of the tables"),
            None => format!("with the correction {}", self.correction),
        };
        let requests = plural(self.requests as u64, "request");
        page.line(&format!("{requests} of '{}', predicted {by}", self.experiment));
        page.blank();
        page.rows(&rows, &["interval"]);
        page.blank();
        for WorkCount { name, vllm, ridgepoint, ratio } in &self.work {
            page.line(&format!("{name} of a GPU: {vllm:.4e} by vLLM, {ridgepoint:.4e} here, {ratio:.3} times as many"));
        }
        if let Some(distributions) = &self.distributions {
            gaps(distributions, page);
            page.blank();
        }
        if let Some(waits) = &self.queue_waits {
            queue_waits(waits, page);
            page.blank();
        }
        for LimitCheck { metric, limit_pct, ape_pct, passed } in &self.verdicts {
            let word = if *passed { "passes" } else { "fails" };
            page.line(&format!("{word}: {metric} within {limit_pct} %, here {}", absolute(*ape_pct)));
        }
        if self.left_out.total() > 0 {
            page.paragraph("left out: ", &self.left_out.to_string());
        }
        let fitted = self.coefficients.iter().flatten().filter(|of| of.identified);
        fitted.for_each(|of: &ParameterReport| {
            page.line(&format!(
                "fitted: {} = {:.4} ({:.4} to {:.4}) {}",
                of.parameter.name, of.value, of.lower, of.upper, of.parameter.unit
            ));
        });
        self.notes.iter().for_each(|note| page.paragraph("note: ", note));
    }
}

/// Waits in the queue by the replay and by lines, on the same requests.
fn queue_waits(of: &QueueWaits, page: &mut Page) {
    let lines = of.lines.iter().filter_map(|line| Some((format!("{} line", line.method), line.held_out?)));
    let rows = Rows::of(std::iter::once(("replay".to_owned(), of.replay)).chain(lines))
        .left("queue wait, ms", |(name, _)| name.clone())
        .right("requests", |(_, of)| of.rows.to_string())
        .right("measured mean", |(_, of)| format!("{:.3}", of.mean))
        .right("predicted mean", |(_, of)| format!("{:.3}", of.predicted_mean))
        .right("mean error of a request", |(_, of)| format!("{:.3}", of.mean_absolute))
        .right("of the mean", |(_, of)| shown(of.of_mean_pct, absolute));
    page.rows(&rows, &[]);
    let beats = if of.replay_is_best { "better" } else { "NOT better" };
    page.paragraph("", &format!("Lines are fitted on {}. The replay is {beats} than they are", of.lines_from));
}

/// A row per figure of the gaps between tokens, and of their means by request.
fn gaps(of: &Distributions, page: &mut Page) {
    type Figure = fn(&GapStatistics) -> f64;
    let figures: [(&str, Figure); 5] = [
        ("mean", |of| of.mean_ms),
        ("p50", |of| of.p50_ms),
        ("p90", |of| of.p90_ms),
        ("p99", |of| of.p99_ms),
        ("longest", |of| of.max_ms),
    ];
    let cells =
        |figure: Figure, of: [Option<GapStatistics>; 3]| of.map(|of| shown(of, |of| format!("{:.3}", figure(&of))));
    let pooled = [of.gaps.captured, of.gaps.predicted, of.gaps.knob];
    let means = [of.request_means.captured, of.request_means.predicted, of.request_means.knob];
    let mut rows: Vec<(String, [String; 3])> = Vec::new();
    rows.extend(figures.map(|(name, figure)| (name.to_owned(), cells(figure, pooled))));
    let long = pooled.map(|of| shown(of, |of| percent(of.share_above_threshold)));
    rows.push((format!("above {:.3}", of.threshold_ms), long));
    rows.extend(
        figures.iter().skip(1).map(|(name, figure)| (format!("{name} of requests' means"), cells(*figure, means))),
    );
    let ks = [of.ks_distance.captured, of.ks_distance.predicted, of.ks_distance.knob];
    rows.push(("KS distance to captured".to_owned(), ks.map(|of| shown(of, |of| format!("{of:.4}")))));
    let table = Rows::of(rows)
        .left("gap between tokens, ms", |(name, _)| name.clone())
        .right("captured", |(_, [captured, ..])| captured.clone())
        .right("predicted", |(_, [_, predicted, _])| predicted.clone())
        .right("best knob", |(_, [.., knob])| knob.clone());
    page.rows(&table, &[]);
    let knob = &of.knob;
    let capped = if knob.is_capped {
        format!(", capped at 30 % of the mean (captured {:.3})", knob.measured_std_dev_ms)
    } else {
        String::new()
    };
    page.paragraph(
        "",
        &format!(
            "{} of {}. The threshold is {}. The knob is llm-d-inference-sim's: normal with mean {:.3} and standard deviation {:.3} ms{capped}, \
             within 0.3 to 1.7 times the mean",
            plural(of.tokens as u64, "gap"),
            plural(of.requests as u64, "request"),
            of.threshold_from,
            knob.mean_ms,
            knob.std_dev_ms
        ),
    );
}
