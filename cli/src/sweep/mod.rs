//! `ridgepoint sweep`: a grid of servers and loads replayed, its rows written whole, and the best of each model and GPU. `args`
//! says what is run, `file` writes the rows.

mod args;
mod file;
mod json;
mod table;

use std::time::Duration;

use indicatif::ProgressBar;
use ridgepoint_lab::sweep::{Grid, Journal, Options, Row};

pub use args::Sweep;
use file::Target;
use json::{Listed, SweepJson};

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
    let Some(target) = target.filter(|_| !args.dry_run) else {
        return dry_run(args, &sweep, common.format);
    };
    target.check()?;
    let (journal, known) = Journal::open(&target.journal(), args.fresh)?;
    let all = sweep.keys().len();
    let reused = sweep.keys().iter().filter(|key| known.contains_key(*key)).count();
    let bar = progress_bar((all - reused) as u64);
    let rows = sweep.run(usize::from(args.threads), &known, &|key, row| {
        journal.append(key, row)?;
        bar.inc(1);
        Ok(())
    })?;
    bar.finish_and_clear();
    target.write(&rows)?;
    report(&rows, reused, &target, common.format)
}

fn progress_bar(configurations: u64) -> ProgressBar {
    let bar = progress::bar(configurations, "sweep [{bar:30}] {pos}/{len} configurations, {elapsed}, {eta} left");
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn report(rows: &[Row], reused: usize, target: &Target, format: Format) -> Result<Output, Failure> {
    let (out, journal) = (target.shown(), target.journal().display().to_string());
    let json = SweepJson::new(rows, reused, &out, &journal);
    let mut output = match format {
        Format::Table => Output::of(table::render(&json)),
        Format::Json => Output::json(&json)?,
    };
    if json.ran_none() {
        output.notes.push(format!("no configuration could run; {out} says why of each"));
    }
    Ok(output)
}

/// What would be run.
fn dry_run(args: &Sweep, sweep: &ridgepoint_lab::sweep::Sweep, format: Format) -> Result<Output, Failure> {
    let known = match args.out.as_deref().map(Target::of).transpose()?.map(|target| target.journal()) {
        Some(path) if path.exists() && !args.fresh => Journal::read(&path)?,
        _ => Default::default(),
    };
    let configurations = sweep.grid().configurations().iter().zip(sweep.keys()).enumerate();
    let listed: Vec<Listed> = configurations
        .map(|(index, (of, key))| Listed {
            configuration: index,
            model: of.server.model.clone(),
            hardware: of.server.hardware.clone(),
            varied: of.varied.clone(),
            is_known: known.contains_key(key),
        })
        .collect();
    match format {
        Format::Table => Ok(Output::of(table::listed(&listed))),
        Format::Json => Output::json(&serde_json::json!({ "number": listed.len(), "configurations": listed })),
    }
}
