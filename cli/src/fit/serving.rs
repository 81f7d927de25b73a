//! `ridgepoint fit --serving`: coefficients by replaying and fitting in turns, host times by search, the scatter by leaving
//! models out. Uses the library's `fit` and `evaluate`.

use ridgepoint::internals::correction::{Correction, Level, Scatter};
use ridgepoint::{Error, ErrorKind};
use ridgepoint_lab::evaluate::case::Case;
use ridgepoint_lab::evaluate::experiment::{Experiment, serving_cases};
use ridgepoint_lab::evaluate::fold::GroupBy;
use ridgepoint_lab::fit::{
    FitResult, HOST_REPLAYS, MAX_ROUNDS, Prior, fit_serving, host_from_replays, leave_out, scatter, shrunk,
};

use super::args::FitSplit;
use super::{Fitted, Job};
use crate::outcome::{Failure, Outcome};

/// Fits on serving runs.
///
/// # Errors
/// Experiments that are missing or at fault; none of the model that is asked for; a split that serving runs have not.
pub fn fitted(job: &Job<'_>) -> Result<(Correction, Outcome<Fitted>), Failure> {
    let Job { args, bar, level, .. } = job;
    if args.split != FitSplit::All {
        return Err(Failure::input(
            "--split first60: serving runs are known by their means alone and can't be cut in time; leave it out, and judge with \
             `ridgepoint evaluate serving --leave-one-out`",
        ));
    }
    let all_problems = |errors: Vec<Error>| Failure::Input(errors.iter().map(Error::to_string).collect());
    let experiments = Experiment::find(&args.serving).map_err(all_problems)?;
    let (cases, skipped) = serving_cases(&experiments, job.data_dir);
    let mut notes: Vec<String> =
        skipped.iter().map(|skipped| format!("{} is left out: {}", skipped.id, skipped.reason)).collect();
    let is_meant = |case: &&Case| match level {
        Level::Global => true,
        Level::Model { model } => case.labels.model == *model,
    };
    let cases: Vec<&Case> = cases.iter().filter(is_meant).collect();
    if cases.is_empty() {
        let of = match level {
            Level::Global => "that can be run".to_owned(),
            Level::Model { model } => format!("of {model}"),
        };
        return Err(Failure::Input([vec![format!("--serving: no experiment {of}")], notes].concat()));
    }
    let by = if *level == Level::Global { GroupBy::Model } else { GroupBy::Experiment };
    let prior = job.prior.as_ref().map_or_else(Prior::of_any_model, Prior::around);

    let replays = (MAX_ROUNDS * cases.len()) as u64;
    bar.set_length(2 * replays + HOST_REPLAYS);
    bar.set_message("replaying and fitting");
    let (fitted, is_still) = fit_serving("serving runs", &cases, &prior, prior.means(), args.seed, &|| bar.inc(1))?;
    let FitResult { mut correction, mut report } = fitted;
    if !is_still {
        notes.push(format!("coefficients still moved after {MAX_ROUNDS} turns of replaying and fitting"));
    }
    bar.set_message("searching host overheads");
    let host = host_from_replays(&cases, &correction, args.seed, &|| bar.inc(1))?;
    correction.host = host.times;
    bar.set_message("leaving runs out");
    match leave_out(&cases, by, &prior, &correction, args.seed, &|| bar.inc(1)) {
        Ok(folds) => {
            let own = scatter(&folds);
            correction.scatter = job.prior.as_ref().map_or(own, |prior| shrunk(own, folds.len(), prior.scatter));
        }
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {
            correction.scatter = job.prior.as_ref().map_or_else(Scatter::default, |prior| prior.scatter);
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
    let source = &mut correction.source;
    source.data = args.data.clone().unwrap_or_else(|| names.join(", "));
    "all".clone_into(&mut source.split);
    source.engine_versions = cases.iter().filter_map(|case| case.labels.backend_version.clone()).collect();
    source.engine_versions.extend(args.engine_version.clone());
    source.engine_versions.sort();
    source.engine_versions.dedup();
    source.converged &= is_still;
    Ok((correction, Outcome::of(Fitted::Serving(report))))
}
