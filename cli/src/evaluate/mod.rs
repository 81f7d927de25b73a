//! `ridgepoint evaluate`: compares predictions with measured serving runs, closed loops and traces of steps.

mod args;
pub mod bench;
pub mod capture;
mod judging;
mod scorecard;
mod table;

use ridgepoint_lab::evaluate::case::correct;
use ridgepoint_lab::evaluate::closed_loop::closed_loop_cases;
use ridgepoint_lab::evaluate::closed_loop_row::read_closed_loop;
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::metric::Metric;
use ridgepoint_lab::evaluate::report::{Baseline, EvaluationReport};
use ridgepoint_lab::evaluate::steps::case::step_cases;
use ridgepoint_lab::evaluate::steps::judge::{JudgeOptions, judge_steps};
use ridgepoint_lab::evaluate::steps::read::read_runs;
use ridgepoint_lab::evaluate::steps::split::{Fitter, StepFold, StepSplit};
use ridgepoint_lab::fit::{Prior, fit_fold};
use ridgepoint_lab::ingest::Run;

use crate::common::Common;
use crate::fit::FitLevel;
use crate::hint;
use crate::outcome::{Failure, Outcome, print};
use crate::plots::Plots;
use crate::progress;
pub use args::Evaluate;
use args::{ClosedLoop, Of, Serving, Steps};
use judging::{judge_cases, leave_one_out};

/// Judges predictions and prints the report; returns the exit code.
pub fn run(args: &Evaluate, common: &Common) -> u8 {
    let format = common.format;
    match &args.of {
        Of::Serving(args) => print(serving(args, common), format),
        Of::ClosedLoop(args) => print(closed_loop(args, common), format),
        Of::Steps(args) => print(steps(args, common), format),
        Of::Scorecard(args) => print(scorecard::run(args, common), format),
        Of::Capture(args) => print(capture::run(args, common), format),
        Of::Bench(args) => print(bench::run(args, common), format),
    }
}

fn serving(args: &Serving, common: &Common) -> Result<Outcome<EvaluationReport>, Failure> {
    let mut plots = args.view.plot.prepare("serving", common)?;
    let seed = args.view.seed;
    let experiments = Experiment::find(&args.paths)?;
    plots.outputs.reads(experiments.iter().flat_map(|of| [&of.server.model, &of.server.hardware]));
    let (mut cases, skipped) = serving_cases(&experiments, common.data_dir());
    match args.leave_one_out {
        Some(by) => leave_one_out(&mut cases, by, seed)?,
        None => correct(&mut cases, &args.view.correction.correction)?,
    }
    let replaced = if args.attribute { &Baseline::REPLACED[..] } else { &[] };
    let report = judge_cases(&cases, skipped, seed, replaced)?;
    let missed = args.max_median_e2e_pct.and_then(|limit_pct| missed(&report, Metric::E2E_MEAN, limit_pct));
    output(report.split_by(args.view.split), missed, plots)
}

fn closed_loop(args: &ClosedLoop, common: &Common) -> Result<Outcome<EvaluationReport>, Failure> {
    let plots = args.view.plot.prepare("closed-loop", common)?;
    let rows = read_closed_loop(&args.files)?;
    let (mut cases, skipped) = closed_loop_cases(&rows, &args.backend, common.data_dir());
    correct(&mut cases, &args.view.correction.correction)?;
    let report = judge_cases(&cases, skipped, args.view.seed, &[])?;
    output(report.split_by(args.view.split), None, plots)
}

fn steps(args: &Steps, common: &Common) -> Result<Outcome<EvaluationReport>, Failure> {
    let split = args.split().map_err(Failure::usage)?;
    if args.refit.is_some() && split == StepSplit::All {
        let message = "--refit learns from rows that are not judged: add --split, or --judge-from X";
        return Err(Failure::usage(message));
    }
    let plots = args.plot.prepare("steps", common)?;
    let label = |run: &mut Run| {
        args.labels.put_over(run);
        Ok(())
    };
    let runs = read_runs(&args.files, args.cleaning.given(), false, &label)?.runs;
    let (cases, refused) = step_cases(runs, &args.correction.correction, common.data_dir());
    let rows = cases.iter().map(|case| case.rows.len() as u64).sum();
    let bar = progress::bar(rows, "steps [{bar:30}] {pos}/{len}, {elapsed}");
    let prior = match args.refit {
        Some(FitLevel::Model) => Prior::of_one_model()?,
        _ => Prior::of_any_model(),
    };
    let fit = |fold: &StepFold<'_>| fit_fold(fold, args.refit == Some(FitLevel::Model), &prior);
    let fitter = args.refit.map(|_| &fit as &Fitter<'_>);
    let window = usize::try_from(args.window).unwrap_or(usize::MAX);
    let options = JudgeOptions { split, window, fitter };
    let report = judge_steps(&cases, hint::skipped(refused), &options, &|rows| bar.inc(rows))?;
    bar.finish_and_clear();
    let missed = args.max_median_ape_pct.and_then(|limit_pct| missed(&report, Metric::STEP_MEAN, limit_pct));
    output(report, missed, plots)
}

/// Returns an error message if the median error exceeds the tolerance.
fn missed(report: &EvaluationReport, metric: Metric, limit_pct: f64) -> Option<String> {
    match report.summary.get(&metric).map(|of| of.median_ape_pct) {
        Some(median_pct) if median_pct <= limit_pct => None,
        Some(median_pct) => Some(format!(
            "median absolute error of {metric} is {median_pct:.2} %, above the tolerance of {limit_pct} %"
        )),
        None => Some(format!("no run has a measured {metric} of the whole run to compare with the tolerance")),
    }
}

fn output(
    report: EvaluationReport,
    missed: Option<String>,
    plots: Plots,
) -> Result<Outcome<EvaluationReport>, Failure> {
    let mut notes = plots.write(&report)?;
    let skipped = report.skipped.len();
    if skipped > 0 {
        let all = skipped + report.experiments.len();
        notes.push(format!("{skipped} of {all} runs could not be judged; the result lists the reasons"));
    }
    Ok(Outcome { result: report, notes, missed })
}
