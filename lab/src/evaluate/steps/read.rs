//! Files into runs with their times. Uses `ingest`.

use std::path::{Path, PathBuf};

use crate::ingest::format::Format;
use crate::ingest::step_table;
use crate::ingest::step_table::TableRun;
use crate::ingest::{Cleaning, Dropped, RequestTrace, Run, periods};
use ridgepoint::{Error, Result};

/// A run, and what to know of the file that it is from.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRun {
    /// The run, its steps and their times.
    pub run: TableRun,
    /// Requests of the run, where the file has them.
    pub requests: Option<RequestTrace>,
    /// Path of the file.
    pub file: String,
    /// Rows that the file's reader left out, where the file holds this run alone.
    pub dropped: Dropped,
    /// The reader's remarks.
    pub notes: Vec<String>,
}

/// Reads files of any format that [`Format::detect`] knows. `label` puts in place what a file does not say of a run. Times of a
/// step table are taken from it as they are, unless `cleaning` says how to find them anew; other files are cleaned as usual.
///
/// # Errors
/// Those of all files that can't be read, hold no steps, or hold a run of the same labels as another.
pub fn read_runs(
    files: &[PathBuf],
    cleaning: Option<Cleaning>,
    label: &dyn Fn(&mut Run),
) -> std::result::Result<Vec<ReadRun>, Vec<Error>> {
    let mut runs: Vec<ReadRun> = Vec::new();
    let mut errors = Vec::new();
    for file in files {
        let origin = file.display().to_string();
        let found = match read_file(file, cleaning) {
            Ok(found) => found,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        if found.is_empty() {
            let message = "holds no steps; `ridgepoint evaluate steps` needs a trace of an engine's steps".to_owned();
            errors.push(Error::parse(origin.clone(), message));
        }
        for mut read in found {
            label(&mut read.run.trace.run);
            match runs.iter().find(|known| known.run.trace.run == read.run.trace.run) {
                Some(known) => errors.push(Error::invalid(
                    format!("{} and {origin}", known.file),
                    vec![format!(
                        "both hold a run '{}' with the same labels, whose steps would mix; judge them one at a time",
                        read.run.trace.run.experiment
                    )],
                )),
                None => runs.push(read),
            }
        }
    }
    if errors.is_empty() { Ok(runs) } else { Err(errors) }
}

fn read_file(file: &Path, cleaning: Option<Cleaning>) -> Result<Vec<ReadRun>> {
    let name = file.display().to_string();
    let kind = Format::detect(file)?;
    if kind == step_table::FORMAT && cleaning.is_none() {
        let as_read =
            |run| ReadRun { run, requests: None, file: name.clone(), dropped: Dropped::default(), notes: Vec::new() };
        return Ok(step_table::read_runs(file)?.into_iter().map(as_read).collect());
    }
    let found = kind.read(file)?;
    let is_alone = found.steps.len() == 1;
    let mut notes = found.notes;
    if !is_alone && found.dropped_steps.total() > 0 {
        let reasons: Vec<String> =
            found.dropped_steps.iter().map(|(reason, count)| format!("{count} {}", reason.name())).collect();
        notes.push(format!("{name}: left out while reading: {}", reasons.join(", ")));
    }
    let cleaning = cleaning.unwrap_or_default();
    let mut requests = found.requests;
    let with_times = |trace: crate::ingest::StepTrace| ReadRun {
        requests: requests
            .iter()
            .position(|of| of.run.experiment == trace.run.experiment)
            .map(|at| requests.swap_remove(at)),
        run: TableRun { periods: periods(&trace, &cleaning), trace },
        file: name.clone(),
        dropped: if is_alone { found.dropped_steps.clone() } else { Dropped::default() },
        notes: notes.clone(),
    };
    Ok(found.steps.into_iter().map(with_times).collect())
}
