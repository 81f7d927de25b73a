//! `ridgepoint sweep`: a grid of servers and loads replayed, its rows written whole, and the best of each model and GPU.

mod table;

use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use ridgepoint_lab::sweep::{Grid, Row, RowFile, SweepList, SweepSummary};
use serde::Serialize;

use crate::common::{Common, MemoryArg, PredictionArgs};
use crate::outcome::{Failure, Outcome};
use crate::output::{Force, Kind, Outputs};
use crate::progress;

const OUTPUT: &str = "Output";

/// Finished rows are saved this often, so that a sweep that is stopped loses little.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Saving takes at most one part of so many of a sweep's time.
const SAVE_SHARE: u32 = 20;

/// The arguments of `sweep`.
#[derive(Debug, Args)]
pub struct Sweep {
    /// Grid of servers and loads, TOML; docs/sweep.md has its keys
    #[arg(value_name = "GRID.toml")]
    grid: PathBuf,
    /// File of results, a row per configuration: .csv, .json or .jsonl
    #[arg(long, value_name = "FILE", required_unless_present = "dry_run", help_heading = OUTPUT)]
    out: Option<PathBuf>,
    /// Run everything anew; without it, rows of an earlier run of this grid in FILE are kept
    #[arg(long, help_heading = OUTPUT)]
    fresh: bool,
    #[command(flatten)]
    force: Force,
    /// List the configurations and run none
    #[arg(long, help_heading = OUTPUT)]
    dry_run: bool,
    /// Configurations that run at once; 0 is one per core
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, help_heading = OUTPUT)]
    #[arg(value_parser = clap::value_parser!(u16).range(..=1024))]
    threads: u16,
    #[command(flatten)]
    memory: MemoryArg,
    #[command(flatten)]
    prediction: PredictionArgs,
}

/// The result of `sweep`.
#[derive(Serialize)]
#[serde(untagged)]
pub enum SweepResult {
    /// The rows in short.
    Summary(SweepSummary),
    /// What would be run.
    List(SweepList),
}

/// Runs a grid.
///
/// # Errors
/// Grids and files that cannot be read or are at fault; files that cannot be written.
pub fn run(args: &Sweep, common: &Common) -> Result<Outcome<SweepResult>, Failure> {
    let target = args.out.as_deref().map(RowFile::new).transpose()?;
    let options = args.prediction.options(common)?;
    let grid = Grid::read_with(&args.grid, args.prediction.logged()?, &options.engine)?;
    let sweep = ridgepoint_lab::sweep::Sweep::new(grid, options)?;
    let mut outputs = Outputs::new(common, args.force);
    outputs.reads(sweep.inputs());
    sweep.check_memory(args.threads.into(), args.memory.max_memory_gib)?;
    let known = match &target {
        Some(target) if outputs.check(&target.path, Kind::SweepRows)? && !args.fresh => sweep.known(target)?,
        _ => Vec::new(),
    };
    let Some(target) = target.filter(|_| !args.dry_run) else {
        return Ok(Outcome::of(SweepResult::List(SweepList::new(&sweep, &known))));
    };
    outputs.probe(&target.path, Kind::SweepRows)?;
    let reused = known.iter().flatten().count();
    let bar = progress::bar(
        (sweep.grid().num_configurations() - reused) as u64,
        "sweep [{bar:30}] {pos}/{len} configurations, {elapsed}, {eta} left",
    );
    let finished: Vec<Row> = known.iter().flatten().cloned().collect();
    let finished = Mutex::new((finished, Instant::now() + SAVE_EVERY, outputs));
    let rows = sweep.run(usize::from(args.threads), &known, &|row| {
        bar.inc(1);
        let mut finished = finished.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, next_save, outputs) = &mut *finished;
        rows.push(row.clone());
        let now = Instant::now();
        if now >= *next_save {
            save(outputs, &target, rows)?;
            *next_save = now + SAVE_EVERY.max(SAVE_SHARE * now.elapsed());
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    let (.., mut outputs) = finished.into_inner().unwrap_or_else(PoisonError::into_inner);
    save(&mut outputs, &target, &rows)?;
    let summary = SweepSummary::new(&rows, reused, &target.path.display().to_string());
    let note = summary.ran_none().then(|| format!("no configuration could run; {} says why", summary.out));
    Ok(Outcome { notes: note.into_iter().collect(), ..Outcome::of(SweepResult::Summary(summary)) })
}

/// Replaces the file of results as a whole.
fn save(outputs: &mut Outputs, target: &RowFile, rows: &[Row]) -> ridgepoint::Result<()> {
    let mut file = outputs.create(&target.path, Kind::SweepRows)?;
    file.write(|out| target.write(BufWriter::new(out), rows))?;
    file.keep()
}
