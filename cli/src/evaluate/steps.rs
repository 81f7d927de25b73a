//! `ridgepoint evaluate steps`: predictions of steps are compared with traces of real engines. Uses `report` and the library's
//! `evaluate::steps`.

use ridgepoint::internals::correction::Correction;
use ridgepoint::{CorrectionChoice, EfficiencyMode, Error};
use ridgepoint_lab::evaluate::steps::case::{CaseOptions, step_cases};
use ridgepoint_lab::evaluate::steps::judge::{JudgeOptions, judge_steps};
use ridgepoint_lab::evaluate::steps::read::read_runs;
use ridgepoint_lab::evaluate::steps::report::StepEvaluation;
use ridgepoint_lab::evaluate::steps::split::{Fitter, Fold, StepSplit};

use super::args::Steps;
use super::steps_table;
use crate::common::{Common, Format};
use crate::fit::{Refit, RefitLevel};
use crate::outcome::{Failure, Output};
use crate::plots;
use crate::progress;

/// Judges predictions of steps.
///
/// # Errors
/// Files that are missing or at fault; no run that can be judged.
pub fn run(args: &Steps, common: &Common) -> Result<Output, Failure> {
    let split = args.split().map_err(|message| Failure::conflict(&message))?;
    if args.refit.is_some() && split == StepSplit::All {
        let message = "--refit learns from rows that are not judged: add --split, or --judge-from X";
        return Err(Failure::missing(message));
    }
    args.plot.prepare()?;
    let all_problems = |errors: Vec<Error>| Failure::Input(errors.iter().map(Error::to_string).collect());
    let runs = read_runs(&args.files, args.cleaning(), &|run| args.labels.put_over(run)).map_err(all_problems)?;
    let options = CaseOptions { data_dir: common.data_dir.clone(), correction: args.correction.correction.clone() };
    let (cases, skipped) = step_cases(runs, &options);
    let bar =
        progress::bar(cases.iter().map(|case| case.rows.len() as u64).sum(), "steps [{bar:30}] {pos}/{len}, {elapsed}");
    let window = usize::try_from(args.window).unwrap_or(usize::MAX);
    let global = match args.refit {
        Some(RefitLevel::Model) => CorrectionChoice::Global.resolve("any model", EfficiencyMode::Tables)?,
        _ => None,
    };
    let refit = args.refit.map(|level| Refit::new(&cases, level, global.as_deref()));
    let fit = |fold: &Fold<'_>| match &refit {
        Some(refit) => refit.fit(fold),
        None => Ok(Correction::neutral()),
    };
    let fitter = refit.is_some().then_some(&fit as &Fitter<'_>);
    let judged = judge_steps(&cases, skipped, &JudgeOptions { split, window, fitter }, &|rows| bar.inc(rows));
    bar.finish_and_clear();
    let evaluation = judged?;
    let plotted = args.plot.write(|| plots::steps::figures(&evaluation))?;
    let mut output = match common.format {
        Format::Table => Output::of(steps_table::render(&evaluation)),
        Format::Json => Output::json(&evaluation)?,
    };
    output.missed = args.max_median_ape_pct.and_then(|limit_pct| missed(&evaluation, limit_pct));
    output.notes = remarks(&evaluation, &args.correction.correction);
    output.add_plots(plotted, common.format);
    Ok(output)
}

fn missed(evaluation: &StepEvaluation, limit_pct: f64) -> Option<String> {
    let median_pct = evaluation.summary.metrics.median_ape_pct;
    (median_pct > limit_pct)
        .then(|| format!("median absolute error of windows is {median_pct:.2} %, above the tolerance of {limit_pct} %"))
}

fn remarks(evaluation: &StepEvaluation, correction: &str) -> Vec<String> {
    let mut remarks = Vec::new();
    if correction == "auto" && evaluation.experiments.iter().any(|of| of.correction.is_none()) {
        remarks.push("no correction is shipped for some runs; calibrated roofline alone".to_owned());
    }
    let skipped = evaluation.skipped.len();
    if skipped > 0 {
        let all = skipped + evaluation.experiments.len();
        remarks.push(format!("{skipped} of {all} runs were not judged; the result lists why"));
    }
    remarks
}
