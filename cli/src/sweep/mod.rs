//! `ridgepoint sweep`: a grid of servers and loads replayed, its rows written whole, and the best of each model and GPU.

mod merge;
mod table;

use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use ridgepoint_lab::sweep::{Grid, Row, RowFile, Shard, SweepList, SweepSummary};
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
    /// Run one of n shards of the grid alone, i from 1 to n; every machine that runs one writes a file of its own
    #[arg(long, value_name = "i/n", help_heading = OUTPUT)]
    shard: Option<Shard>,
    /// Run nothing and put the files of all shards together: FILE is what a run in one go writes
    #[arg(long, value_name = "FILES", num_args = 1.., conflicts_with = "shard", help_heading = OUTPUT)]
    merge: Vec<PathBuf>,
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
pub struct SweepResult {
    /// The shard that was run or listed; `None` is the whole grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<ShardOfGrid>,
    #[serde(flatten)]
    content: SweepContent,
}

/// A shard and the grid that it is of.
#[derive(Serialize)]
struct ShardOfGrid {
    /// Its number, from 1.
    number: u32,
    /// The number of shards.
    of: u32,
    /// The number of configurations of the whole grid.
    grid_configurations: usize,
}

/// What a sweep prints.
#[derive(Serialize)]
#[serde(untagged)]
enum SweepContent {
    /// The rows in short.
    Summary(SweepSummary),
    /// What would be run.
    List(SweepList),
}

/// Runs a grid, or one shard of it, or puts shards together.
///
/// # Errors
/// Grids and files that cannot be read or are at fault; shards that have not all rows; files that cannot be written.
pub fn run(args: &Sweep, common: &Common) -> Result<Outcome<SweepResult>, Failure> {
    let target = args.out.as_deref().map(RowFile::new).transpose()?;
    let options = args.prediction.options(common)?;
    let grid = Grid::read_with(&args.grid, args.prediction.logged()?, &options.engine)?;
    let mut sweep = ridgepoint_lab::sweep::Sweep::new(grid, options)?;
    if let Some(shard) = args.shard {
        sweep = sweep.of_shard(shard);
    }
    let shard = sweep.shard().map(|shard| ShardOfGrid {
        number: shard.number(),
        of: shard.of(),
        grid_configurations: sweep.grid().num_configurations(),
    });
    let mut outputs = Outputs::new(common, args.force);
    outputs.reads(sweep.inputs());
    if args.merge.is_empty() {
        sweep.check_memory(args.threads.into(), args.memory.max_memory_gib)?;
    }
    let resumed = match &target {
        Some(target) if outputs.check(&target.path, Kind::SweepRows)? && !args.fresh => Some(target),
        _ => None,
    };
    let known = match &args.merge[..] {
        [] => resumed.map_or_else(|| Ok(Vec::new()), |target| sweep.known(target))?,
        files => merge::known(args, common, &sweep, files, resumed)?,
    };
    let Some(target) = target.filter(|_| !args.dry_run) else {
        let content = SweepContent::List(SweepList::new(&sweep, &known));
        return Ok(Outcome::of(SweepResult { shard, content }));
    };
    outputs.probe(&target.path, Kind::SweepRows)?;
    let reused = known.iter().flatten().count();
    let bar = progress::bar(
        (sweep.num_configurations() - reused) as u64,
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
    let summary = if shard.is_some() { summary.without_comparisons() } else { summary };
    let note = summary.ran_none().then(|| format!("no configuration could run; {} says why", summary.out));
    let result = SweepResult { shard, content: SweepContent::Summary(summary) };
    Ok(Outcome { notes: note.into_iter().collect(), ..Outcome::of(result) })
}

/// Replaces the file of results as a whole.
fn save(outputs: &mut Outputs, target: &RowFile, rows: &[Row]) -> ridgepoint::Result<()> {
    let mut file = outputs.create(&target.path, Kind::SweepRows)?;
    file.write(|out| target.write(BufWriter::new(out), rows))?;
    file.keep()
}
