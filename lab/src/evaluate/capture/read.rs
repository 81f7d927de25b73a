//! One run out of the files of a capture: its requests, their tokens, its steps.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use crate::evaluate::steps::read::read_timed;
use crate::ingest::step_table::TableRun;
use crate::ingest::{Capture, Dropped, MetricsReply, RequestRow, RequestTokens, Run};
use ridgepoint::unstable::error::cut;
use ridgepoint::{Error, Location, Result};

/// The tables that `ingest` writes into a folder.
const TABLES: [&str; 3] = ["steps.csv", "requests.csv", "tokens.csv"];

/// A captured run.
#[derive(Debug, Clone, Default)]
pub struct CapturedRun {
    /// Its labels; of several files with the same name of the run, the first that says.
    pub run: Run,
    /// Its requests.
    pub requests: Vec<RequestRow>,
    /// The tokens of its requests, by id.
    pub tokens: BTreeMap<String, RequestTokens>,
    /// Its steps, if they were traced.
    pub steps: Option<TableRun>,
    /// What `/metrics` says before and after.
    pub metrics: Vec<MetricsReply>,
    /// Requests that could not be read, by reason.
    pub dropped: Dropped,
    /// Remarks of the readers.
    pub notes: Vec<String>,
}

/// Reads files of any format that `ingest` knows, and folders that it wrote. They must hold one run with requests; `experiment`
/// chooses it by name where they hold several.
///
/// # Errors
/// Every file that cannot be read; files without requests, or with several runs.
pub fn read_capture(paths: &[PathBuf], experiment: Option<&str>) -> std::result::Result<CapturedRun, Vec<Error>> {
    let (mut runs, mut errors) = (BTreeMap::<String, CapturedRun>::new(), Vec::new());
    let (mut dropped, mut notes, mut metrics) = (Dropped::default(), Vec::new(), Vec::new());
    for file in paths.iter().flat_map(|path| files(path)) {
        match read_timed(&file, None) {
            Ok((_, capture, timed)) => {
                dropped.merge(&capture.dropped_requests);
                metrics.extend(capture.metrics.clone());
                notes.extend(capture.notes.iter().map(|note| format!("{}: {note}", file.display())));
                errors.extend(add(&file, capture, timed, &mut runs).err());
            }
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    runs.retain(|_, run| !run.requests.is_empty());
    let names = cut(&runs.keys().cloned().collect::<Vec<String>>().join(", "));
    let all = runs.len();
    let chosen = match experiment {
        Some(name) => runs.remove(name),
        None if all == 1 => runs.into_values().next(),
        None => None,
    };
    let Some(mut run) = chosen else {
        let problem = match (all, experiment) {
            (0, _) => format!("nothing in it has requests with their times ({dropped})"),
            (_, Some(name)) => format!("has no run '{name}'; its runs are {names}"),
            (_, None) => format!("holds {all} runs, and one is judged at a time: name one of {names}"),
        };
        let origin = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(vec![Error::invalid(Location::of(origin).key("experiment"), vec![problem])]);
    };
    let known: HashSet<&str> = run.requests.iter().map(|row| &*row.request_id).collect();
    let strangers = run.tokens.keys().filter(|id| !known.contains(id.as_str())).count();
    if strangers > 0 {
        run.notes.push(format!("tokens of {strangers} requests are left out: the request table has no such requests"));
    }
    run.metrics = metrics;
    run.dropped = dropped;
    run.notes.extend(notes);
    Ok(run)
}

/// The file itself, or the tables in a folder.
fn files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let tables: Vec<PathBuf> = TABLES.iter().map(|name| path.join(name)).filter(|table| table.is_file()).collect();
    // A folder without tables is an error of its reader.
    if tables.is_empty() { vec![path.join(TABLES[1])] } else { tables }
}

/// Puts what a file holds into its runs, which are identified by name.
fn add(file: &Path, capture: Capture, steps: Vec<TableRun>, runs: &mut BTreeMap<String, CapturedRun>) -> Result<()> {
    let twice = |run: &Run, what: &str| {
        let problem = format!(
            "holds {what} of the run '{}', and so does another file or part of it: give one of them, or each a name of its own",
            run.experiment
        );
        Error::invalid(file, vec![problem])
    };
    for trace in capture.requests {
        let known = known(runs, &trace.run);
        if !known.requests.is_empty() {
            return Err(twice(&trace.run, "requests"));
        }
        known.requests = trace.requests;
    }
    for trace in capture.tokens {
        let known = known(runs, &trace.run);
        if !known.tokens.is_empty() {
            return Err(twice(&trace.run, "tokens"));
        }
        known.tokens = trace.requests.into_iter().map(|of| (of.request_id.clone(), of)).collect();
    }
    for run in steps {
        let known = known(runs, &run.trace.run);
        if known.steps.is_some() {
            return Err(twice(&run.trace.run, "steps"));
        }
        known.steps = Some(run);
    }
    Ok(())
}

/// The run of a name, which now has these labels too.
fn known<'a>(runs: &'a mut BTreeMap<String, CapturedRun>, run: &Run) -> &'a mut CapturedRun {
    let known = runs.entry(run.experiment.clone()).or_default();
    known.run = std::mem::take(&mut known.run).or(run);
    known
}
