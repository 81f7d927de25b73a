//! The files of `ridgepoint fit --steps`: folders gone through, labels put where files are silent, steps and requests apart. Uses the
//! library's `ingest` and `evaluate::steps::read`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use ridgepoint::{Error, Hardware, Model};
use ridgepoint_lab::evaluate::steps::read::{ReadRun, read_runs};
use ridgepoint_lab::ingest::format::Format;
use ridgepoint_lab::ingest::{RequestTrace, Run};

use super::job::{FitJob, RunLabels};
use crate::outcome::Failure;

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

/// Reads all files of a job.
///
/// # Errors
/// Those of all files that can't be read; a folder without one; labels that contradict a file.
pub fn read(job: &FitJob<'_>) -> Result<StepData, Failure> {
    let mut notes = Vec::new();
    let (mut of_steps, mut of_requests, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for path in job.steps {
        let found = if path.is_dir() { in_folder(path, &mut notes) } else { one(path).map(|file| vec![file]) };
        match found {
            Ok(found) => {
                for (file, kind) in found {
                    let of = if has_steps(kind) { &mut of_steps } else { &mut of_requests };
                    of.push(file);
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() && of_steps.is_empty() {
        let names: Vec<String> = of_requests.iter().map(|file: &PathBuf| file.display().to_string()).collect();
        problems.push(format!("{}: hold requests and no steps; --steps needs steps of an engine", names.join(", ")));
    }
    let contradictions = RefCell::new(Vec::new());
    let label = |run: &mut Run| {
        contradictions.borrow_mut().extend(fill(run, &job.labels, job.data_dir));
    };
    let runs = read_runs(&of_steps, None, &label).unwrap_or_else(|errors| {
        problems.extend(errors.iter().map(Error::to_string));
        Vec::new()
    });
    problems.extend(contradictions.into_inner());
    let mut requests = Vec::new();
    for file in &of_requests {
        match Format::detect(file).and_then(|kind| kind.read(file)) {
            Ok(found) => requests.extend(found.requests),
            Err(error) => problems.push(error.to_string()),
        }
    }
    if !problems.is_empty() {
        problems.dedup();
        return Err(Failure::Input(problems));
    }
    let name = |file: &PathBuf| {
        file.file_name().map_or_else(|| file.display().to_string(), |name| name.to_string_lossy().into_owned())
    };
    let files = of_steps.iter().chain(&of_requests).map(name).collect();
    Ok(StepData { runs, requests, notes, files })
}

fn has_steps(kind: Format) -> bool {
    kind.holds_steps
}

fn one(file: &Path) -> Result<(PathBuf, Format), String> {
    Format::detect(file).map(|kind| (file.to_owned(), kind)).map_err(|error| error.to_string())
}

/// The csv files of a folder that are tables of steps or requests, by name; a note says which are not.
fn in_folder(folder: &Path, notes: &mut Vec<String>) -> Result<Vec<(PathBuf, Format)>, String> {
    let failed = |error| Error::io(folder, error).to_string();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "csv") {
            files.push(path);
        }
    }
    files.sort();
    let mut found = Vec::new();
    for file in &files {
        match Format::detect(file) {
            Ok(kind) => found.push((file.clone(), kind)),
            Err(error) => notes.push(format!("{error}: left out")),
        }
    }
    if found.iter().any(|(_, kind)| has_steps(*kind)) {
        return Ok(found);
    }
    let held = if files.is_empty() { "no csv file".to_owned() } else { format!("{} csv files", files.len()) };
    Err(format!(
        "{}: has {held} and none with steps; `ridgepoint ingest` makes them, traces in JSON are named one by one",
        folder.display()
    ))
}

/// Puts labels where a run has none, or a name that is not known; what contradicts a known one is a problem.
fn fill(run: &mut Run, labels: &RunLabels<'_>, data_dir: Option<&Path>) -> Vec<String> {
    let mut problems = Vec::new();
    let name = run.experiment.clone();
    let mut contradicts = |flag: &str, given: &str, said: &str| {
        problems.push(format!(
            "{name}: says {flag} {said}, and the command {given}; leave the flag out, \
             or let `ridgepoint ingest` put it in the place of what the file says"
        ));
    };
    let model = |name: &str| Model::find_in(data_dir, name).ok().map(|model| model.name().to_owned());
    let hardware = |name: &str| Hardware::find_in(data_dir, name).ok().map(|hardware| hardware.name().to_owned());
    let mut text =
        |flag: &str, given: Option<&str>, known: &mut Option<String>, short: &dyn Fn(&str) -> Option<String>| {
            let Some(given) = given else { return };
            match known.as_deref().map(|said| (said, short(said))) {
                Some((said, Some(found))) if short(given).is_none_or(|given| given != found) => {
                    contradicts(flag, given, said)
                }
                Some((_, Some(_))) => {}
                Some((_, None)) | None => *known = Some(given.to_owned()),
            }
        };
    text("--model", labels.model, &mut run.model, &model);
    text("--hardware", labels.hardware, &mut run.hardware, &hardware);
    let mut number = |flag: &str, given: Option<u32>, known: &mut Option<u32>| match (given, *known) {
        (Some(given), Some(said)) if given != said => contradicts(flag, &given.to_string(), &said.to_string()),
        (Some(given), _) => *known = Some(given),
        (None, _) => {}
    };
    number("--tensor-parallel-size", labels.tensor_parallel_size, &mut run.tensor_parallel_size);
    number("--max-num-seqs", labels.max_num_seqs, &mut run.max_num_seqs);
    number("--max-num-batched-tokens", labels.max_num_batched_tokens, &mut run.max_num_batched_tokens);
    problems
}
