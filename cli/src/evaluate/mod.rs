//! `ridgepoint evaluate`: replays measured serving runs and compares them with the measurements; `steps` does so for traces of
//! steps.

mod args;
mod steps;
mod steps_table;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use indicatif::ProgressBar;
use ridgepoint::Error;
use ridgepoint::internals::correction::Correction;
use ridgepoint_lab::evaluate::attribution::{Attribution, Component, attribute};
use ridgepoint_lab::evaluate::case::Case;
use ridgepoint_lab::evaluate::closed_loop::{ClosedLoopOptions, closed_loop_cases};
use ridgepoint_lab::evaluate::closed_loop_row::read_closed_loop;
use ridgepoint_lab::evaluate::comparison::{Evaluation, Skipped};
use ridgepoint_lab::evaluate::corrected::{correct, correct_with};
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::judge::{judge, replays};
use ridgepoint_lab::evaluate::metric::Metric;
use ridgepoint_lab::evaluate::split::Split;
use ridgepoint_lab::fit::{LeaveOut, Prior, fit_serving, leave_out};

use crate::common::{Common, Format};
pub use args::Evaluate;
use args::{ClosedLoop, LeaveOneOut, Of, Serving, View};
use table::Evaluated;

use crate::outcome::{Failure, Output};
use crate::plots;
use crate::progress;

/// Judges predictions.
///
/// # Errors
/// Files that are missing or at fault; nothing that can be run.
pub fn run(args: &Evaluate, common: &Common) -> Result<Output, Failure> {
    match &args.of {
        Of::Serving(args) => serving(args, common),
        Of::ClosedLoop(args) => closed_loop(args, common),
        Of::Steps(args) => steps::run(args, common),
    }
}

fn serving(args: &Serving, common: &Common) -> Result<Output, Failure> {
    args.view.plot.prepare()?;
    let all_problems = |errors: Vec<Error>| Failure::Input(errors.iter().map(Error::to_string).collect());
    let experiments = Experiment::find(&args.paths).map_err(all_problems)?;
    let (mut cases, skipped) = serving_cases(&experiments, common.data_dir());
    match args.leave_one_out {
        Some(by) => leave_one_out(&mut cases, by, args.view.seed)?,
        None => correct(&mut cases, &args.view.correction.correction)?,
    }
    let replaced = if args.attribute { Component::ALL.len() * cases.len() } else { 0 };
    let bar = progress_bar(replays(&cases) + replaced as u64);
    let evaluation = judge(&cases, skipped, args.view.seed, &|| bar.inc(1))?;
    let attribution = if args.attribute { Some(attributed(&cases, &evaluation, args.view.seed, &bar)?) } else { None };
    bar.finish_and_clear();
    let median_pct = evaluation.summary.get(&Metric::E2E_MEAN).map(|of| of.median_ape_pct);
    let missed = args.max_median_e2e_pct.and_then(|limit| missed(median_pct, limit));
    let mut output = output(evaluation, attribution, &args.view, common, "serving")?;
    output.missed = missed;
    Ok(output)
}

/// Corrects each case with a correction that was fitted without it.
fn leave_one_out(cases: &mut [Case], by: LeaveOneOut, seed: u64) -> Result<(), Failure> {
    let by = match by {
        LeaveOneOut::Model => LeaveOut::Model,
        LeaveOneOut::Workload => LeaveOut::Workload,
        LeaveOneOut::Experiment => LeaveOut::Experiment,
    };
    let bar = progress::spinner("{spinner} fitting without each group: {pos} replays, {elapsed}");
    let folds = {
        let cases: Vec<&Case> = cases.iter().collect();
        let prior = Prior::of_any_model();
        let (all, _) = fit_serving("all", &cases, &prior, prior.means(), seed, &|| bar.inc(1))?;
        leave_out(&cases, by, &prior, &all.correction, seed, &|| bar.inc(1))?
    };
    bar.finish_and_clear();
    let mut unseen: BTreeMap<String, Arc<Correction>> = BTreeMap::new();
    for fold in folds {
        let correction = Arc::new(Correction { name: format!("all but {}", fold.left_out), ..fold.correction });
        let names = fold.cases.into_iter().filter_map(|case| cases.get(case)).map(|case| case.name.clone());
        unseen.extend(names.map(|name| (name, Arc::clone(&correction))));
    }
    correct_with(cases, |case| unseen.get(&case.name).cloned());
    Ok(())
}

/// Cases that could not be replayed are listed as skipped by then.
fn attributed(cases: &[Case], evaluation: &Evaluation, seed: u64, bar: &ProgressBar) -> Result<Attribution, Failure> {
    let is_judged = |case: &&Case| evaluation.experiments.iter().any(|judged| judged.name == case.name);
    let judged: Vec<&Case> = cases.iter().filter(is_judged).collect();
    Ok(attribute(&judged, seed, &|| bar.inc(1))?)
}

fn missed(median_pct: Option<f64>, limit_pct: f64) -> Option<String> {
    match median_pct {
        Some(median_pct) if median_pct <= limit_pct => None,
        Some(median_pct) => {
            Some(format!("median absolute error of E2E is {median_pct:.2} %, above the tolerance of {limit_pct} %"))
        }
        None => Some("no experiment has a measured e2e_mean of the whole run to hold against the tolerance".to_owned()),
    }
}

fn closed_loop(args: &ClosedLoop, common: &Common) -> Result<Output, Failure> {
    args.view.plot.prepare()?;
    let rows = read_closed_loop(&args.files)?;
    let options = ClosedLoopOptions { data_dir: common.data_dir.clone(), backends: args.backend.clone() };
    let (mut cases, skipped): (Vec<Case>, Vec<Skipped>) = closed_loop_cases(&rows, &options);
    correct(&mut cases, &args.view.correction.correction)?;
    let bar = progress_bar(replays(&cases));
    let evaluation = judge(&cases, skipped, args.view.seed, &|| bar.inc(1))?;
    bar.finish_and_clear();
    output(evaluation, None, &args.view, common, "closed-loop")
}

fn output(
    evaluation: Evaluation,
    attribution: Option<Attribution>,
    view: &View,
    common: &Common,
    kind: &str,
) -> Result<Output, Failure> {
    let plotted = view.plot.write(|| plots::serving::figures(&evaluation, kind))?;
    let split = view.split.map(|key| Split::new(&evaluation.experiments, key));
    let evaluated = Evaluated { evaluation, split, attribution };
    let mut output = match common.format {
        Format::Table => Output::of(table::render(&evaluated)),
        Format::Json => Output::json(&evaluated)?,
    };
    let skipped = evaluated.evaluation.skipped.len();
    if skipped > 0 {
        let all = skipped + evaluated.evaluation.experiments.len();
        output.notes.push(format!("{skipped} of {all} experiments were not run; the result lists why"));
    }
    output.add_plots(plotted, common.format);
    Ok(output)
}

fn progress_bar(replays: u64) -> ProgressBar {
    progress::bar(replays, "replays [{bar:30}] {pos}/{len}, {elapsed}")
}
