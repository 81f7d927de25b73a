//! `ridgepoint fit --steps`: fits a correction to sampled steps, and host overheads to the requests beside them.

use ridgepoint::internals::correction::{Correction, Level};
use ridgepoint_lab::evaluate::fold::Labels;
use ridgepoint_lab::evaluate::report::Skipped;
use ridgepoint_lab::evaluate::steps::case::{StepCase, step_cases};
use ridgepoint_lab::evaluate::steps::read::StepData;
use ridgepoint_lab::evaluate::steps::split::{StepSplit, folds};
use ridgepoint_lab::fit::{FitResult, StepFitReport, StepRun, StepRunReport, fit_with_scatter, host_from_traces};

use super::args::FitSplit;
use super::files::read;
use super::{Fitted, Job};
use crate::hint;
use crate::outcome::{Failure, Outcome};
use crate::output::Outputs;

/// Share of a run's time that `--split first60` fits.
const FIRST: f64 = 0.6;

/// Reads steps and fits a correction to them.
///
/// # Errors
/// Files that can't be read or are at fault; labels that contradict the files; no run that can be used; rows that nothing can be
/// fitted to.
pub fn fitted(job: &Job<'_>, outputs: &mut Outputs) -> Result<(Correction, Outcome<Fitted>), Failure> {
    let Job { args, bar, level, prior, .. } = job;
    let mut notes = Vec::new();
    let (StepData { runs, requests }, files) = read(args, job.data_dir, &mut notes)?;
    outputs.reads(runs.iter().flat_map(|of| [&of.run.trace.run.model, &of.run.trace.run.hardware]).flatten());
    let (cases, refused) = step_cases(runs, "none", job.data_dir);
    let skipped = hint::skipped(refused);
    check(&cases, &skipped, level)?;
    notes.extend(skipped.iter().map(|one| format!("{}: left out: {}", one.id, one.reason)));

    bar.set_length(cases.len() as u64);
    bar.set_message("runs");
    let (split, in_words) = match args.split {
        FitSplit::All => (StepSplit::All, "all"),
        FitSplit::First60 => (StepSplit::Temporal { judge_from: FIRST }, "first 60 % of each run"),
    };
    let mut step_runs = Vec::with_capacity(cases.len());
    for fold in folds(&cases, split)? {
        let end = fold.judged.case.rows.len();
        let cut = if args.split == FitSplit::All { end } else { fold.judged.rows.start };
        step_runs.push(StepRun::new(fold.judged.case, 0..cut, cut..end, prior));
        bar.inc(1);
    }
    let FitResult { mut correction, mut report } = fit_with_scatter(&files.join(", "), &mut step_runs, prior, level)?;
    let host = host_from_traces(&requests, &prior.means.host);
    correction.host = host.times;
    report.replace_host(host);
    for note in cases.iter().flat_map(|case| &case.notes) {
        if !report.notes.contains(note) {
            report.notes.push(note.clone());
        }
    }
    if !report.solution.converged {
        notes.push(format!("the fit has not converged: {}", report.solution.why_stopped));
    }
    job.describe(&mut correction.source, &files.join(", "), in_words);
    let runs = step_runs.iter().map(|run| StepRunReport::of(run, &correction)).collect();
    let result = Fitted::Steps(StepFitReport { fit: report, runs, source: correction.source.clone() });
    Ok((correction, Outcome { notes, ..Outcome::of(result) }))
}

fn check(cases: &[StepCase], skipped: &[Skipped], level: &Level) -> Result<(), Failure> {
    if cases.is_empty() {
        return Err(Failure::Input(skipped.iter().map(|one| format!("{}: {}", one.id, one.reason)).collect()));
    }
    let Level::Model { model } = level else { return Ok(()) };
    let others = cases.iter().map(|case| &case.labels).filter(|labels| labels.model != *model);
    let problem = |of: &Labels| {
        let Labels { name, model: other, .. } = of;
        format!("{name}: is of {other}, and --level model fits {model} alone; leave it out, or take --level global")
    };
    let problems: Vec<String> = others.map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Failure::Input(problems)) }
}
