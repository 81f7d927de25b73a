//! `ridgepoint evaluate`: compares predictions with measured serving runs, closed loops and traces of steps.

mod args;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use indicatif::ProgressBar;
use ridgepoint::internals::correction::Correction;
use ridgepoint::{CorrectionChoice, EfficiencyMode};
use ridgepoint_lab::evaluate::attribution::attribute;
use ridgepoint_lab::evaluate::case::{Case, correct, correct_with};
use ridgepoint_lab::evaluate::closed_loop::{ClosedLoopOptions, closed_loop_cases};
use ridgepoint_lab::evaluate::closed_loop_row::read_closed_loop;
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::fold::GroupBy;
use ridgepoint_lab::evaluate::judge::{judge, replays};
use ridgepoint_lab::evaluate::metric::Metric;
use ridgepoint_lab::evaluate::report::{Baseline, EvaluationReport};
use ridgepoint_lab::evaluate::steps::case::{CaseOptions, step_cases};
use ridgepoint_lab::evaluate::steps::judge::{JudgeOptions, judge_steps};
use ridgepoint_lab::evaluate::steps::read::read_runs;
use ridgepoint_lab::evaluate::steps::split::{Fitter, StepFold, StepSplit};
use ridgepoint_lab::fit::{Fold, Prior, fit_serving, leave_out};

use crate::common::Common;
use crate::fit::{Refit, RefitLevel};
use crate::hint;
use crate::outcome::{Failure, Outcome};
use crate::plots::Plot;
use crate::progress;
pub use args::Evaluate;
use args::{ClosedLoop, Of, Serving, Steps};

/// Judges predictions.
///
/// # Errors
/// Files that are missing or at fault; nothing that can be judged.
pub fn run(args: &Evaluate, common: &Common) -> Result<Outcome<EvaluationReport>, Failure> {
    match &args.of {
        Of::Serving(args) => serving(args, common),
        Of::ClosedLoop(args) => closed_loop(args, common),
        Of::Steps(args) => steps(args, common),
    }
}

fn serving(args: &Serving, common: &Common) -> Result<Outcome<EvaluationReport>, Failure> {
    args.view.plot.prepare()?;
    let seed = args.view.seed;
    let experiments = Experiment::find(&args.paths)?;
    let (mut cases, skipped) = serving_cases(&experiments, common.data_dir());
    match args.leave_one_out {
        Some(by) => leave_one_out(&mut cases, by, seed)?,
        None => correct(&mut cases, &args.view.correction.correction)?,
    }
    let replaced = if args.attribute { Baseline::REPLACED.len() * cases.len() } else { 0 };
    let bar = replay_bar(&cases, replaced);
    let mut report = judge(&cases, skipped, seed, &|| bar.inc(1))?;
    if args.attribute {
        report = attribute(&cases, report, seed, &|| bar.inc(1))?;
    }
    bar.finish_and_clear();
    let missed = args.max_median_e2e_pct.and_then(|limit_pct| missed(&report, Metric::E2E_MEAN, limit_pct));
    output(report.split_by(args.view.split), missed, "serving", &args.view.plot)
}

/// Corrects each case with a correction that was fitted without it.
fn leave_one_out(cases: &mut [Case], by: GroupBy, seed: u64) -> Result<(), Failure> {
    let bar = progress::bar(0, "{spinner} fitting without each group: {pos} replays, {elapsed}");
    let folds = {
        let cases: Vec<&Case> = cases.iter().collect();
        let prior = Prior::of_any_model();
        let (all, _) = fit_serving("all", &cases, &prior, prior.means(), seed, &|| bar.inc(1))?;
        leave_out(&cases, by, &prior, &all.correction, seed, &|| bar.inc(1))?
    };
    bar.finish_and_clear();
    let unseen = |fold: &Fold| {
        let name = format!("all but {}", fold.left_out);
        (fold.left_out.clone(), Arc::new(Correction { name, ..fold.correction.clone() }))
    };
    let unseen: BTreeMap<String, Arc<Correction>> = folds.iter().map(unseen).collect();
    correct_with(cases, |case| unseen.get(case.labels.group(by)).cloned());
    Ok(())
}

fn closed_loop(args: &ClosedLoop, common: &Common) -> Result<Outcome<EvaluationReport>, Failure> {
    args.view.plot.prepare()?;
    let rows = read_closed_loop(&args.files)?;
    let options = ClosedLoopOptions { data_dir: common.data_dir.clone(), backends: args.backend.clone() };
    let (mut cases, skipped) = closed_loop_cases(&rows, &options);
    correct(&mut cases, &args.view.correction.correction)?;
    let bar = replay_bar(&cases, 0);
    let report = judge(&cases, skipped, args.view.seed, &|| bar.inc(1))?;
    bar.finish_and_clear();
    output(report.split_by(args.view.split), None, "closed-loop", &args.view.plot)
}

fn steps(args: &Steps, common: &Common) -> Result<Outcome<EvaluationReport>, Failure> {
    let split = args.split().map_err(Failure::usage)?;
    if args.refit.is_some() && split == StepSplit::All {
        let message = "--refit learns from rows that are not judged: add --split, or --judge-from X";
        return Err(Failure::usage(message));
    }
    args.plot.prepare()?;
    let correction = &args.correction.correction;
    let runs = read_runs(&args.files, args.cleaning(), &|run| args.labels.put_over(run))?;
    let options = CaseOptions { data_dir: common.data_dir.clone(), correction: correction.clone() };
    let (cases, refused) = step_cases(runs, &options);
    let rows = cases.iter().map(|case| case.rows.len() as u64).sum();
    let bar = progress::bar(rows, "steps [{bar:30}] {pos}/{len}, {elapsed}");
    let global = match args.refit {
        Some(RefitLevel::Model) => CorrectionChoice::Global.resolve("any model", EfficiencyMode::Tables)?,
        _ => None,
    };
    let refit = args.refit.map(|level| Refit::new(&cases, level, global.as_deref()));
    let fit = |fold: &StepFold<'_>| refit.as_ref().map_or_else(|| Ok(Correction::neutral()), |refit| refit.fit(fold));
    let fitter = refit.is_some().then_some(&fit as &Fitter<'_>);
    let window = usize::try_from(args.window).unwrap_or(usize::MAX);
    let options = JudgeOptions { split, window, fitter };
    let report = judge_steps(&cases, hint::skipped(refused), &options, &|rows| bar.inc(rows))?;
    bar.finish_and_clear();
    let missed = args.max_median_ape_pct.and_then(|limit_pct| missed(&report, Metric::STEP_MEAN, limit_pct));
    output(report, missed, "steps", &args.plot)
}

/// What a report lacks to a tolerance, if it misses it.
fn missed(report: &EvaluationReport, metric: Metric, limit_pct: f64) -> Option<String> {
    match report.summary.get(&metric).map(|of| of.median_ape_pct) {
        Some(median_pct) if median_pct <= limit_pct => None,
        Some(median_pct) => Some(format!(
            "median absolute error of {metric} is {median_pct:.2} %, above the tolerance of {limit_pct} %"
        )),
        None => Some(format!("no run has a measured {metric} of the whole run to hold against the tolerance")),
    }
}

fn output(
    report: EvaluationReport,
    missed: Option<String>,
    kind: &str,
    plot: &Plot,
) -> Result<Outcome<EvaluationReport>, Failure> {
    let mut notes = plot.write(&report, kind)?;
    let skipped = report.skipped.len();
    if skipped > 0 {
        let all = skipped + report.experiments.len();
        notes.push(format!("{skipped} of {all} runs could not be judged; the result lists the reasons"));
    }
    Ok(Outcome { result: report, notes, missed })
}

fn replay_bar(cases: &[Case], more: usize) -> ProgressBar {
    progress::bar(replays(cases) + more as u64, "replays [{bar:30}] {pos}/{len}, {elapsed}")
}
