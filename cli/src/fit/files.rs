//! Finds the files of `ridgepoint fit --steps`, and puts labels where files are silent.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use ridgepoint::{Error, Model};
use ridgepoint_lab::evaluate::steps::read::{StepData, read_runs};
use ridgepoint_lab::ingest::Run;
use ridgepoint_lab::ingest::format::Format;

use super::args::Fit;
use crate::outcome::Failure;
use ridgepoint::input::files_in;

/// Reads all files of a fit, and returns their names without their folders too.
///
/// # Errors
/// Those of all files that can't be read; a folder without one; labels that contradict a file.
pub fn read(args: &Fit, data_dir: Option<&Path>, notes: &mut Vec<String>) -> Result<(StepData, Vec<String>), Failure> {
    read_labelled(&args.steps, &|run| fill(run, args, data_dir), notes)
}

/// Reads files with steps, and folders of such tables. Also returns the names of the files. `label` fills in missing labels of a run.
///
/// # Errors
/// Those of all files that can't be read; a folder without one; those of `label`.
pub fn read_labelled(
    paths: &[PathBuf],
    label: &dyn Fn(&mut Run) -> ridgepoint::Result<()>,
    notes: &mut Vec<String>,
) -> Result<(StepData, Vec<String>), Failure> {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        if path.is_dir() {
            in_folder(path, notes).map_or_else(|error| errors.push(error), |found| files.extend(found));
        } else {
            files.push(path.clone());
        }
    }
    let data = read_runs(&files, None, true, label).unwrap_or_else(|more| {
        errors.extend(more);
        StepData::default()
    });
    if !errors.is_empty() {
        return Err(errors.into());
    }
    let name = |file: &PathBuf| file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let names: Vec<String> = files.iter().map(name).collect();
    if data.runs.is_empty() {
        let names = names.join(", ");
        return Err(Failure::input(format!(
            "{names}: hold requests and no steps; a fit needs steps of an engine, or at least 20 requests with times of their tokens"
        )));
    }
    Ok((data, names))
}

/// The csv files of a folder that are tables of steps or requests, by name; a note says which are not.
fn in_folder(folder: &Path, notes: &mut Vec<String>) -> ridgepoint::Result<Vec<PathBuf>> {
    let (mut found, mut holds_steps) = (Vec::new(), false);
    for file in files_in(Some(folder), "", "csv")? {
        match Format::detect(&file) {
            Ok(format) => {
                // Token times of requests determine steps too.
                holds_steps |= format.holds_steps || format.name == "token-table";
                found.push(file);
            }
            Err(error) => notes.push(format!("{error}: left out")),
        }
    }
    let problem = "has no csv file with steps; `ridgepoint ingest` makes them, traces in JSON are named one by one";
    if holds_steps { Ok(found) } else { Err(Error::invalid(folder, vec![problem.to_owned()])) }
}

/// Puts labels where a run has none, or a name that is not known. A flag that contradicts a known label is a problem.
fn fill(run: &mut Run, args: &Fit, data_dir: Option<&Path>) -> ridgepoint::Result<()> {
    let mut problems = Vec::new();
    let model = |name: &String| Some(Model::find_in(data_dir, name).ok()?.name);
    let hardware = |name: &String| Some(ridgepoint_replay::find_hardware(data_dir, name).ok()?.name);
    put(&mut problems, "--model", &mut run.model, &args.model, model);
    put(&mut problems, "--hardware", &mut run.hardware, &args.hardware, hardware);
    // It stands where the runs do not say.
    run.engine_version = run.engine_version.take().or_else(|| args.engine_version.clone());
    for (flag, known, given) in [
        ("--tensor-parallel-size", &mut run.tensor_parallel_size, args.tensor_parallel_size),
        ("--max-num-seqs", &mut run.max_num_seqs, args.max_num_seqs),
        ("--max-num-batched-tokens", &mut run.max_num_batched_tokens, args.max_num_batched_tokens),
    ] {
        put(&mut problems, flag, known, &given, |number| Some(number.to_string()));
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::invalid(run.experiment.as_str(), problems)) }
}

/// Puts the value of a flag in the place of a label whose `name` is not known.
fn put<T: Clone + Display>(
    problems: &mut Vec<String>,
    flag: &str,
    known: &mut Option<T>,
    given: &Option<T>,
    name: impl Fn(&T) -> Option<String>,
) {
    let Some(given) = given else { return };
    match known.as_ref().map(|known| (known, name(known))) {
        Some((known, Some(found))) if name(given).as_ref() != Some(&found) => problems.push(format!(
            "says {flag} {known}, and the command {given}; leave the flag out, or let `ridgepoint ingest` put it in the place of \
             what the file says"
        )),
        Some((_, Some(_))) => {}
        _ => *known = Some(given.clone()),
    }
}
