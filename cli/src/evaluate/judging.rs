//! Judging of replays behind a progress bar, and corrections that were fitted without the judged group.

use std::collections::BTreeMap;
use std::sync::Arc;

use ridgepoint::Correction;
use ridgepoint_lab::evaluate::case::{Case, correct_with};
use ridgepoint_lab::evaluate::fold::GroupBy;
use ridgepoint_lab::evaluate::judge::{judge, replays};
use ridgepoint_lab::evaluate::report::{Baseline, EvaluationReport, Skipped};
use ridgepoint_lab::fit::{LeftOut, Prior, fit_serving, leave_out};

use crate::outcome::Failure;
use crate::progress;

/// Corrects each case with a correction that was fitted without it.
pub(super) fn leave_one_out(cases: &mut [Case], by: GroupBy, seed: u64) -> Result<(), Failure> {
    let bar = progress::bar(0, "{spinner} fitting without each group: {pos} replays, {elapsed}");
    let left_out = {
        let cases: Vec<&Case> = cases.iter().collect();
        let prior = Prior::of_serving_runs();
        let (all, _) = fit_serving("all", &cases, &prior, &prior.means, seed, &|| bar.inc(1))?;
        leave_out(&cases, by, &prior, &all.correction, seed, &|| bar.inc(1))?
    };
    bar.finish_and_clear();
    let unseen = |of: LeftOut| {
        let name = format!("all but {}", of.group);
        (of.group, Arc::new(Correction { name, ..of.correction }))
    };
    let unseen: BTreeMap<String, Arc<Correction>> = left_out.into_iter().map(unseen).collect();
    Ok(correct_with(cases, |case| Ok(unseen.get(&*case.labels.group(by)).cloned()))?)
}

/// Judges cases behind a progress bar.
pub(super) fn judge_cases(
    cases: &[Case],
    skipped: Vec<Skipped>,
    seed: u64,
    replaced: &[Baseline],
) -> Result<EvaluationReport, Failure> {
    let bar = progress::bar(replays(cases, replaced), "replays [{bar:30}] {pos}/{len}, {elapsed}");
    let report = judge(cases, skipped, seed, replaced, &|| bar.inc(1))?;
    bar.finish_and_clear();
    Ok(report)
}
