//! `ridgepoint sweep`: a grid of servers and loads replayed, its rows written whole, and the best of each model and GPU. `args`
//! says what is run, `file` writes the rows.

mod args;
mod file;
mod table;

use std::time::Duration;

use indicatif::ProgressBar;
use ridgepoint_lab::sweep::{Grid, Listed, Options, PartialRows, Row, SweepSummary};

pub use args::Sweep;
use file::Target;

use crate::common::{Common, Format};
use crate::outcome::{Failure, Output};
use crate::progress;

/// Runs a grid.
///
/// # Errors
/// Grids and files that can't be read or can't be, files that can't be written.
pub fn run(args: &Sweep, common: &Common) -> Result<Output, Failure> {
    let target = args.out.as_deref().map(Target::of).transpose()?;
    let grid = Grid::read(&args.grid)?;
    let options = Options {
        efficiency: args.prediction.efficiency,
        correction: args.prediction.correction.correction.clone(),
        data_dir: common.data_dir().map(std::path::Path::to_owned),
    };
    let sweep = ridgepoint_lab::sweep::Sweep::new(grid, options)?;
    let known = match &target {
        Some(target) if !args.fresh => sweep.known(target.path())?,
        _ => Vec::new(),
    };
    let Some(target) = target.filter(|_| !args.dry_run) else {
        return dry_run(&sweep, &known, common.format);
    };
    target.check()?;
    let partial = PartialRows::create(target.path(), &known)?;
    let reused = known.iter().flatten().count();
    let bar = progress_bar((sweep.grid().len() - reused) as u64);
    let rows = sweep.run(usize::from(args.threads), &known, &|row| {
        partial.append(row)?;
        bar.inc(1);
        Ok(())
    })?;
    bar.finish_and_clear();
    target.write(&rows)?;
    partial.remove()?;
    report(&SweepSummary::new(&rows, reused, &target.shown()), common.format)
}

fn progress_bar(configurations: u64) -> ProgressBar {
    let bar = progress::bar(configurations, "sweep [{bar:30}] {pos}/{len} configurations, {elapsed}, {eta} left");
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn report(summary: &SweepSummary<'_>, format: Format) -> Result<Output, Failure> {
    let mut output = match format {
        Format::Table => Output::of(table::render(summary)),
        Format::Json => Output::json(summary)?,
    };
    if summary.ran_none() {
        output.notes.push(format!("no configuration could run; {} says why", summary.out));
    }
    Ok(output)
}

/// Lists what would be run.
fn dry_run(sweep: &ridgepoint_lab::sweep::Sweep, known: &[Option<Row>], format: Format) -> Result<Output, Failure> {
    let listed = Listed::all(sweep, known);
    match format {
        Format::Table => Ok(Output::of(table::listed(&listed))),
        Format::Json => Output::json(&serde_json::json!({ "number": listed.len(), "configurations": listed })),
    }
}
