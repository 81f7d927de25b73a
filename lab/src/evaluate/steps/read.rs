//! Reads files of any supported format into runs with the times of their steps.
#![expect(clippy::indexing_slicing, reason = "every run that was read has the file that it came from")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::between::Journey;
use super::from_tokens;
use crate::ingest::format::Format;
use crate::ingest::step_table::{self, TableRun};
use crate::ingest::{Capture, Cleaning, Dropped, RequestTrace, Run, TokenTrace, own_sampling, periods};
use ridgepoint::model::OwnSampling;
use ridgepoint::{Error, Result};

/// What some files hold.
#[derive(Debug, Default)]
pub struct StepData {
    /// Runs of steps.
    pub runs: Vec<ReadRun>,
    /// Requests of these and of other runs.
    pub requests: Vec<RequestTrace>,
}

/// A run, and remarks on its file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadRun {
    /// The run, its steps and their times.
    pub run: TableRun,
    /// Rows that the file's reader left out, if the file holds this run alone.
    pub dropped: Dropped,
    /// The reader's remarks.
    pub notes: Vec<String>,
    /// The different sampling parameters of the run's requests; empty if the files have none.
    pub own_sampling: Vec<OwnSampling>,
    /// Steps are those of token times, whose time is that of the step itself.
    pub is_of_tokens: bool,
    /// The journeys of its requests, where some of its steps were not sampled.
    pub journeys: Vec<Journey>,
}

/// Reads files of any format that [`Format::detect`] knows. `label` adds what a file does not say of a run. Times of a step
/// table are taken as they are unless `cleaning` says how to find them anew; other files are cleaned as usual. A run whose requests have
/// times of tokens and that has no steps gets those that follow from them, where requests are taken.
///
/// # Errors
/// Every file that cannot be read or holds no steps, where `takes_requests` does not allow requests alone; those of `label`;
/// every run with the same labels as another.
pub fn read_runs(
    files: &[PathBuf],
    cleaning: Option<Cleaning>,
    takes_requests: bool,
    label: &dyn Fn(&mut Run) -> Result<()>,
) -> std::result::Result<StepData, Vec<Error>> {
    let (mut data, mut tokens, mut errors) = (StepData::default(), Vec::new(), Vec::new());
    let mut files_of_runs: Vec<&Path> = Vec::new();
    for file in files {
        let first = data.runs.len();
        match read_file(file, cleaning, &mut data, &mut tokens) {
            Ok(format) if data.runs.len() == first && (format.holds_steps || !takes_requests) => {
                errors.push(Error::parse(file.as_path(), "holds no steps; a trace of an engine's steps is needed"));
            }
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
        for at in first..data.runs.len() {
            let (known, read) = data.runs.split_at_mut(at);
            let labels = &mut read[0].run.trace.run;
            errors.extend(label(labels).err());
            if let Some(twin) = known.iter().position(|known| known.run.trace.run == *labels) {
                let name = &labels.experiment;
                let problem = format!(
                    "both hold a run '{name}' with the same labels, whose steps would mix; judge them one at a time"
                );
                let both = format!("{} and {}", files_of_runs[twin].display(), file.display());
                errors.push(Error::invalid(both, vec![problem]));
            }
            files_of_runs.push(file);
        }
    }
    if takes_requests {
        errors.extend(data.add_steps_of_tokens(&tokens, label));
    }
    data.count_resumed();
    data.find_own_sampling();
    data.find_journeys();
    if errors.is_empty() { Ok(data) } else { Err(errors) }
}

impl StepData {
    /// Makes steps of token times for runs that have no others. Returns the errors of `label`.
    fn add_steps_of_tokens(&mut self, tokens: &[TokenTrace], label: &dyn Fn(&mut Run) -> Result<()>) -> Vec<Error> {
        let mut errors = Vec::new();
        let has_steps: Vec<String> = self.runs.iter().map(|of| of.run.trace.run.experiment.clone()).collect();
        for tokens in tokens {
            let name = &tokens.run.experiment;
            let of_run = self.requests.iter_mut().find(|of| of.run.experiment == *name);
            if let Some(requests) = of_run.filter(|_| !has_steps.contains(name)) {
                errors.extend(label(&mut requests.run).err());
                let own_sampling = own_sampling(&requests.requests);
                let runs = from_tokens::runs(requests, tokens).into_iter();
                self.runs.extend(runs.map(|run| ReadRun { own_sampling: own_sampling.clone(), ..run }));
            }
        }
        errors
    }

    /// Finds the sampling parameters of the requests of each run.
    fn find_own_sampling(&mut self) {
        for run in self.runs.iter_mut().filter(|run| !run.is_of_tokens) {
            let of_run = self.requests.iter().filter(|of| of.run.experiment == run.run.trace.run.experiment);
            run.own_sampling = own_sampling(of_run.flat_map(|of| &of.requests));
        }
    }

    /// Finds the journeys through the steps of each run that were not sampled.
    fn find_journeys(&mut self) {
        for run in &mut self.runs {
            let TableRun { trace, periods } = &run.run;
            if periods.intervals().any(|row| row.steps > 1) {
                let of_run = self.requests.iter().filter(|of| of.run.experiment == trace.run.experiment);
                run.journeys = of_run.flat_map(|of| &of.requests).filter_map(Journey::of).collect();
            }
        }
    }

    /// Counts the requests that each step schedules again, in runs whose requests were preempted.
    fn count_resumed(&mut self) {
        for run in &mut self.runs {
            let TableRun { trace, .. } = &mut run.run;
            let of_run = self.requests.iter().filter(|of| of.run.experiment == trace.run.experiment);
            let mut counts: HashMap<u64, u32> = HashMap::new();
            for step in of_run.flat_map(|of| &of.requests).flat_map(|request| request.resumed_steps.iter()) {
                *counts.entry(*step).or_default() += 1;
            }
            if !counts.is_empty() {
                trace
                    .steps
                    .iter_mut()
                    .for_each(|step| step.num_resumed = Some(*counts.get(&step.step_id).unwrap_or(&0)));
            }
        }
    }
}

/// Reads a file of any format, and its runs of steps with their times; the capture that is left has no steps. Times of a step
/// table are taken as they are unless `cleaning` says how to find them anew; other files are cleaned as usual.
///
/// # Errors
/// A file that cannot be read.
pub fn read_timed(file: &Path, cleaning: Option<Cleaning>) -> Result<(Format, Capture, Vec<TableRun>)> {
    let format = Format::detect(file)?;
    if format.name == step_table::FORMAT.name && cleaning.is_none() {
        return Ok((format, Capture::default(), step_table::read_runs(file)?));
    }
    let mut capture = format.read(file)?;
    let cleaning = cleaning.unwrap_or_default();
    let timed = |trace| TableRun { periods: periods(&trace, &cleaning), trace };
    let runs = std::mem::take(&mut capture.steps).into_iter().map(timed).collect();
    Ok((format, capture, runs))
}

fn read_file(
    file: &Path,
    cleaning: Option<Cleaning>,
    data: &mut StepData,
    tokens: &mut Vec<TokenTrace>,
) -> Result<Format> {
    let (format, found, runs) = read_timed(file, cleaning)?;
    let (mut notes, mut dropped) = (found.notes, found.dropped_steps);
    if runs.len() > 1 && dropped.total() > 0 {
        notes.push(format!("{}: left out while reading: {dropped}", file.display()));
        dropped = Dropped::default();
    }
    let remarked = |run| ReadRun { run, dropped: dropped.clone(), notes: notes.clone(), ..ReadRun::default() };
    data.runs.extend(runs.into_iter().map(remarked));
    data.requests.extend(found.requests);
    tokens.extend(found.tokens);
    Ok(format)
}
