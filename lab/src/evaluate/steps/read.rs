//! Reads files of any supported format into runs with the times of their steps.

use std::path::{Path, PathBuf};

use crate::ingest::format::Format;
use crate::ingest::step_table;
use crate::ingest::step_table::TableRun;
use crate::ingest::{Cleaning, Dropped, RequestTrace, Run, StepTrace, periods};
use ridgepoint::{Error, Result};

/// A run, and remarks on its file.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRun {
    /// The run, its steps and their times.
    pub run: TableRun,
    /// Requests of the run, if the file has them.
    pub requests: Option<RequestTrace>,
    /// Path of the file.
    pub file: String,
    /// Rows that the file's reader left out, if the file holds this run alone.
    pub dropped: Dropped,
    /// The reader's remarks.
    pub notes: Vec<String>,
}

/// Reads files of any format that [`Format::detect`] knows. `label` adds what a file does not say of a run. Times of a step
/// table are taken as they are unless `cleaning` says how to find them anew; other files are cleaned as usual.
///
/// # Errors
/// Every file that cannot be read, holds no steps, or holds a run with the same labels as another.
pub fn read_runs(
    files: &[PathBuf],
    cleaning: Option<Cleaning>,
    label: &dyn Fn(&mut Run),
) -> std::result::Result<Vec<ReadRun>, Vec<Error>> {
    let mut runs: Vec<ReadRun> = Vec::new();
    let mut errors = Vec::new();
    for file in files {
        let found = match read_file(file, cleaning) {
            Ok(found) => found,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        if found.is_empty() {
            errors.push(Error::parse(file.as_path(), "holds no steps; a trace of an engine's steps is needed"));
        }
        for mut read in found {
            let labels = &mut read.run.trace.run;
            label(labels);
            match runs.iter().find(|known| known.run.trace.run == *labels) {
                None => runs.push(read),
                Some(known) => {
                    let name = &labels.experiment;
                    let problem = format!(
                        "both hold a run '{name}' with the same labels, whose steps would mix; judge them one at a time"
                    );
                    errors.push(Error::invalid(format!("{} and {}", known.file, file.display()), vec![problem]));
                }
            }
        }
    }
    if errors.is_empty() { Ok(runs) } else { Err(errors) }
}

fn read_file(file: &Path, cleaning: Option<Cleaning>) -> Result<Vec<ReadRun>> {
    let name = file.display().to_string();
    let read = |run, requests, dropped: &Dropped, notes: &[String]| ReadRun {
        run,
        requests,
        file: name.clone(),
        dropped: dropped.clone(),
        notes: notes.to_vec(),
    };
    let kind = Format::detect(file)?;
    if kind == step_table::FORMAT && cleaning.is_none() {
        let runs = step_table::read_runs(file)?;
        return Ok(runs.into_iter().map(|run| read(run, None, &Dropped::default(), &[])).collect());
    }
    let found = kind.read(file)?;
    let (mut notes, mut dropped) = (found.notes, found.dropped_steps);
    if found.steps.len() > 1 && dropped.total() > 0 {
        notes.push(format!("{name}: left out while reading: {dropped}"));
        dropped = Dropped::default();
    }
    let cleaning = cleaning.unwrap_or_default();
    let mut requests = found.requests;
    let with_times = |trace: StepTrace| {
        let at = requests.iter().position(|of| of.run.experiment == trace.run.experiment);
        let requests = at.map(|at| requests.swap_remove(at));
        read(TableRun { periods: periods(&trace, &cleaning), trace }, requests, &dropped, &notes)
    };
    Ok(found.steps.into_iter().map(with_times).collect())
}
