//! The files of `ridgepoint fit --steps`: folders gone through, labels put where files are silent, steps and requests apart. Uses the
//! library's `ingest` and `evaluate::steps::read`.

use std::cell::RefCell;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use ridgepoint::{Error, Hardware, Model};
use ridgepoint_lab::evaluate::steps::read::{ReadRun, read_runs};
use ridgepoint_lab::ingest::format::Format;
use ridgepoint_lab::ingest::{RequestTrace, Run};

use super::args::Fit;
use crate::outcome::Failure;
use ridgepoint::internals::input::files_in;

/// What the files hold.
pub struct StepData {
    /// Runs of steps.
    pub runs: Vec<ReadRun>,
    /// Requests of files without steps.
    pub requests: Vec<RequestTrace>,
    /// What to know of the files.
    pub notes: Vec<String>,
    /// Names of the files, without their folders.
    pub files: Vec<String>,
}

/// Reads all files of a fit.
///
/// # Errors
/// Those of all files that can't be read; a folder without one; labels that contradict a file.
pub fn read(args: &Fit, data_dir: Option<&Path>) -> Result<StepData, Failure> {
    let mut notes = Vec::new();
    let (mut of_steps, mut of_requests, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for path in &args.steps {
        let found = if path.is_dir() {
            in_folder(path, &mut notes)
        } else {
            Format::detect(path).map(|kind| vec![(path.clone(), kind)]).map_err(|error| error.to_string())
        };
        match found {
            Ok(found) => {
                for (file, kind) in found {
                    if kind.holds_steps { of_steps.push(file) } else { of_requests.push((file, kind)) }
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() && of_steps.is_empty() {
        let names: Vec<String> = of_requests.iter().map(|(file, _)| file.display().to_string()).collect();
        problems.push(format!("{}: hold requests and no steps; --steps needs steps of an engine", names.join(", ")));
    }
    let contradictions = RefCell::new(Vec::new());
    let label = |run: &mut Run| contradictions.borrow_mut().extend(fill(run, args, data_dir));
    let runs = read_runs(&of_steps, None, &label).unwrap_or_else(|errors| {
        problems.extend(errors.iter().map(Error::to_string));
        Vec::new()
    });
    problems.extend(contradictions.into_inner());
    let mut requests = Vec::new();
    for (file, kind) in &of_requests {
        match kind.read(file) {
            Ok(found) => requests.extend(found.requests),
            Err(error) => problems.push(error.to_string()),
        }
    }
    if !problems.is_empty() {
        problems.dedup();
        return Err(Failure::Input(problems));
    }
    let name = |file: &PathBuf| file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let files = of_steps.iter().chain(of_requests.iter().map(|(file, _)| file)).map(name).collect();
    Ok(StepData { runs, requests, notes, files })
}

/// The csv files of a folder that are tables of steps or requests, by name; a note says which are not.
fn in_folder(folder: &Path, notes: &mut Vec<String>) -> Result<Vec<(PathBuf, Format)>, String> {
    let mut found = Vec::new();
    for file in files_in(Some(folder), "", "csv").map_err(|error| error.to_string())? {
        match Format::detect(&file) {
            Ok(kind) => found.push((file, kind)),
            Err(error) => notes.push(format!("{error}: left out")),
        }
    }
    if found.iter().any(|(_, kind)| kind.holds_steps) {
        return Ok(found);
    }
    Err(format!(
        "{}: has no csv file with steps; `ridgepoint ingest` makes them, traces in JSON are named one by one",
        folder.display()
    ))
}

/// Puts labels where a run has none, or a name that is not known; what contradicts a known one is a problem.
fn fill(run: &mut Run, args: &Fit, data_dir: Option<&Path>) -> Vec<String> {
    let mut problems = Vec::new();
    let name = run.experiment.clone();
    let mut contradicts = |flag: &str, given: &dyn Display, known: &dyn Display| {
        problems.push(format!(
            "{name}: says {flag} {known}, and the command {given}; leave the flag out, \
             or let `ridgepoint ingest` put it in the place of what the file says"
        ));
    };
    let model = |name: &str| Model::find_in(data_dir, name).ok().map(|model| model.name.to_owned());
    let hardware = |name: &str| Hardware::find_in(data_dir, name).ok().map(|hardware| hardware.name.to_owned());
    let model: &dyn Fn(&str) -> Option<String> = &model;
    for (flag, given, known, short_name) in
        [("--model", &args.model, &mut run.model, model), ("--hardware", &args.hardware, &mut run.hardware, &hardware)]
    {
        let Some(given) = given else { continue };
        match known.as_deref().map(|known| (known, short_name(known))) {
            Some((known, Some(found))) => {
                if short_name(given) != Some(found) {
                    contradicts(flag, given, &known);
                }
            }
            _ => *known = Some(given.clone()),
        }
    }
    for (flag, given, known) in [
        ("--tensor-parallel-size", args.tensor_parallel_size, &mut run.tensor_parallel_size),
        ("--max-num-seqs", args.max_num_seqs, &mut run.max_num_seqs),
        ("--max-num-batched-tokens", args.max_num_batched_tokens, &mut run.max_num_batched_tokens),
    ] {
        match (given, *known) {
            (Some(given), Some(known)) if given != known => contradicts(flag, &given, &known),
            (given, _) => *known = given.or(*known),
        }
    }
    problems
}
