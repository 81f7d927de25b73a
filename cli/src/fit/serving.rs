//! `ridgepoint fit --serving`: coefficients by replaying and fitting in turns, host times by search, the scatter by leaving
//! models out. Uses the library's `fit` and `evaluate`.

use ridgepoint::correction::Level;
use ridgepoint::{Correction, ErrorKind};
use ridgepoint_lab::evaluate::case::Case;
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::fold::GroupBy;
use ridgepoint_lab::fit::{
    FitResult, FittedRows, HOST_REPLAYS, MAX_ROUNDS, fit_serving, host_from_replays, leave_out, scatter,
};

use super::{Fitted, Job};
use crate::outcome::{Failure, Outcome};
use crate::output::Outputs;

/// Fits on serving runs.
///
/// # Errors
/// Experiments that are missing or at fault; none of the model that is asked for; a split that serving runs have not.
pub fn fitted(job: &Job<'_>, outputs: &mut Outputs) -> Result<(Correction, Outcome<Fitted>), Failure> {
    let Job { args, bar, level, prior, .. } = job;
    if args.split == FittedRows::First60 {
        return Err(Failure::input(
            "--split first60: serving runs are known by their means alone and can't be cut in time; leave it out, and judge with \
             `ridgepoint evaluate serving --leave-one-out`",
        ));
    }
    let experiments = Experiment::find(&args.serving)?;
    outputs.reads(experiments.iter().flat_map(|of| [&of.server.model, &of.server.hardware]));
    let (cases, skipped) = serving_cases(&experiments, job.data_dir);
    let mut notes: Vec<String> =
        skipped.iter().map(|skipped| format!("{} is left out: {}", skipped.id, skipped.reason)).collect();
    let (by, of) = match level {
        Level::Global => (GroupBy::Model, "that can be run".to_owned()),
        Level::Model { model } => (GroupBy::Experiment, format!("of {model}")),
    };
    let is_meant = |case: &&Case| !matches!(level, Level::Model { model } if case.labels.model != *model);
    let cases: Vec<&Case> = cases.iter().filter(is_meant).collect();
    if cases.is_empty() {
        return Err(Failure::Input([vec![format!("--serving: no experiment {of}")], notes].concat()));
    }

    let replays = (MAX_ROUNDS * cases.len()) as u64;
    bar.set_length(2 * replays + HOST_REPLAYS);
    bar.set_message("replaying and fitting");
    let (fitted, is_still) = fit_serving("serving runs", &cases, prior, &prior.means, args.seed, &|| bar.inc(1))?;
    let FitResult { mut correction, mut report } = fitted;
    if !is_still {
        notes.push(format!("coefficients still moved after {MAX_ROUNDS} turns of replaying and fitting"));
    }
    bar.set_message("searching host overheads");
    let host = host_from_replays(&cases, &correction, args.seed, &|| bar.inc(1))?;
    correction.host = host.times;
    bar.set_message("leaving runs out");
    match leave_out(&cases, by, prior, &correction, args.seed, &|| bar.inc(1)) {
        Ok(left_out) => correction.scatter = prior.shrunk(scatter(&left_out), left_out.len()),
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {
            correction.scatter = prior.means.scatter;
            notes.push("one group of runs: the scatter is that of the prior, not measured".to_owned());
        }
        Err(error) => return Err(error.into()),
    }

    report.replace_host(host);
    report.notes.push(format!(
        "scatter of left-out runs: {:.1} % of step times and their sums, {:.1} % of TTFT",
        100.0 * correction.scatter.step,
        100.0 * correction.scatter.ttft
    ));
    report.notes.extend(notes);
    correction.level = level.clone();
    let names: Vec<&str> = cases.iter().map(|case| case.labels.name.as_str()).collect();
    correction.source.data = names.join(", ");
    "all".clone_into(&mut correction.source.split);
    job.describe(&mut correction.source);
    correction.source.converged &= is_still;
    Ok((correction, Outcome::of(Fitted::Serving(report))))
}
