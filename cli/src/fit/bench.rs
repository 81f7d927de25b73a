//! `ridgepoint fit --bench`: a correction of one's own server from results of a load generator.

use ridgepoint::correction::{Level, Source};
use ridgepoint::{Correction, CorrectionChoice};
use ridgepoint_lab::bench::{BenchFit, BenchFitReport, fit_bench};
use ridgepoint_replay::server_config::ServedEngine;
use serde_json::Map;

use super::{Fitted, Job};
use crate::common::Common;
use crate::evaluate::bench::{cases, rows};
use crate::outcome::{Failure, Outcome};
use crate::output::Outputs;
use crate::text::Page;

/// Fits on results of one server.
///
/// # Errors
/// Files that cannot be read or hold no result; a server that does not fit on its GPUs; results of another server.
pub fn fitted(job: &Job<'_>, outputs: &mut Outputs, common: &Common) -> Result<(Correction, Outcome<Fitted>), Failure> {
    let Job { args, bar, .. } = job;
    if args.serve_command.is_none() && args.config.is_none() && args.model.is_none() {
        return Err(Failure::usage(
            "--bench needs the server: --serve-command 'vllm serve ...' or --config FILE, and --hardware GPU",
        ));
    }
    let mut options = args.engine_options(job.data_dir)?;
    options.correction = CorrectionChoice::from(args.prior.as_deref().unwrap_or("auto"));
    let (served, engine, mut notes): (_, ServedEngine, _) = args.server().open(&options, Map::new(), outputs)?;
    let cases = cases(args.bench_load.read(&args.bench)?, &served, &engine, args.bench_load.lengths, common)?;
    let around = served.steps.correction().cloned().unwrap_or_else(Correction::neutral);
    bar.set_length(8 * 8 * cases.len() as u64);
    bar.set_message("replaying and fitting");
    let BenchFit { mut correction, mut report } = fit_bench(&cases, &around, &|| bar.inc(1))?;
    let file = |path: &std::path::PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = args.bench.iter().map(file).collect();
    correction.level = Level::Model { model: served.model.name.clone() };
    correction.source = Source {
        data: names.join(", "),
        models: vec![served.model.name.clone()],
        hardware: vec![served.hardware.name.clone()],
        engine_versions: vec![served.steps.engine().to_string()],
        split: "all".to_owned(),
        rows: cases.len() as u64,
        converged: report.solution.converged,
        ..around.source.clone()
    };
    job.describe(&mut correction.source);
    report.notes.append(&mut notes);
    let verdict = &report.verdict;
    let missed = (verdict.is_worse() && !args.allow_worse).then(|| {
        format!("{} Nothing is written; --allow-worse writes {} all the same", verdict.in_words(), args.out.display())
    });
    Ok((correction, Outcome { missed, ..Outcome::of(Fitted::Bench(report)) }))
}

/// The verdict, then each result by the fit.
pub fn lay_out(page: &mut Page, report: &BenchFitReport) {
    page.paragraph("", &report.verdict.in_words());
    page.blank();
    for result in &report.results {
        page.line(&result.name);
        rows(page, &result.rows);
        page.blank();
    }
}
