//! `ridgepoint fit --steps`: fits a correction to sampled steps, and host overheads to the requests of the same runs.

use ridgepoint::correction::Level;
use ridgepoint::{Correction, Error};
use ridgepoint_lab::evaluate::fold::Labels;
use ridgepoint_lab::evaluate::report::Skipped;
use ridgepoint_lab::evaluate::steps::case::{StepCase, step_cases};
use ridgepoint_lab::evaluate::steps::read::StepData;
use ridgepoint_lab::fit::{Captured, DelaysOfRuns, fit_cases};
use ridgepoint_lab::training::Training;

use super::clients::{check_server, clients, named_server};
use super::files::read;
use super::{Fitted, FittedSteps, Job};
use crate::hint;
use crate::outcome::{Failure, Outcome};
use crate::output::Outputs;

/// Reads steps and fits a correction to them.
///
/// # Errors
/// Files that can't be read or are at fault; labels that contradict the files; no run that can be used; rows that nothing can be
/// fitted to.
pub fn fitted(job: &Job<'_>, outputs: &mut Outputs) -> Result<(Correction, Outcome<Fitted>), Failure> {
    let Job { args, bar, level, prior, .. } = job;
    let mut notes = Vec::new();
    let (data, files) = read(args, job.data_dir, &mut notes)?;
    let options = args.engine_options(job.data_dir)?;
    let (served, engine) = match named_server(args, &options, outputs)? {
        Some((served, engine, remarks)) => {
            notes.extend(remarks);
            (Some(served), Some(engine))
        }
        None => (None, None),
    };
    let (delays, StepData { runs, requests }) = (DelaysOfRuns::of(&data), data);
    outputs.reads(runs.iter().flat_map(|of| [&of.run.trace.run.model, &of.run.trace.run.hardware]).flatten());
    let is_single = runs.len() == 1 || requests.len() == 1 && runs.iter().all(|run| run.is_of_tokens);
    let single = runs.first().filter(|_| is_single).map(|run| run.run.trace.run.clone());
    let (cases, refused) = match &served {
        Some(served) => {
            check_server(&runs, served, job.data_dir)?;
            let server = (&served.model, &served.hardware, &served.deployment);
            let case = |run| StepCase::on(run, server, job.data_dir);
            (runs.into_iter().map(case).collect::<Result<Vec<StepCase>, Error>>()?, Vec::new())
        }
        None => step_cases(runs, "none", job.data_dir),
    };
    let skipped = hint::skipped(refused);
    check(&cases, &skipped, level)?;
    notes.extend(skipped.iter().map(|one| format!("{}: left out: {}", one.id, one.reason)));
    let clients = clients((&cases, &requests), single, engine.as_ref(), &options, (outputs, &mut notes));

    bar.set_length(cases.len() as u64);
    bar.set_message("runs");
    let captured = Captured { cases: &cases, delays: &delays, clients: clients.as_ref() };
    let (mut correction, mut report) =
        fit_cases(&files.join(", "), captured, prior, level, args.split, &|| bar.inc(1))?;
    job.describe(&mut correction.source);
    report.source = correction.source.clone();
    if !report.fit.solution.converged {
        notes.push(format!("the fit has not converged: {}", report.fit.solution.why_stopped));
    }
    let alignments = report.runs.iter().map(|run| run.alignment).collect::<Vec<_>>();
    let training = args.training_tables.as_ref().map(|_| Training::of(&cases, &alignments, &requests));
    let verdict = &report.verdict;
    let missed = (verdict.is_worse() && !args.allow_worse).then(|| {
        format!("{} Nothing is written; --allow-worse writes {} all the same", verdict.in_words(), args.out.display())
    });
    Ok((
        correction,
        Outcome { notes, missed, ..Outcome::of(Fitted::Steps(Box::new(FittedSteps { report, training }))) },
    ))
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
