//! `ridgepoint ingest`: engines' traces and load generators' reports become one step table and one request table. Everything is
//! read and checked before anything is written. Uses `whole_file`, `report` and the library's `ingest`.

mod args;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::ProgressBar;
use ridgepoint::{Error, Hardware, Model};
use ridgepoint_lab::ingest::format::Format as Kind;
use ridgepoint_lab::ingest::step_table::TableRun;
use ridgepoint_lab::ingest::{
    FileReport, Ingested, Ingestion, JoinReport, Periods, Records, RequestTrace, Run, RunReport, StepTrace, join,
    periods, request_table, step_table,
};

use crate::common::{Common, Format};
pub use args::{Ingest, Labels};

use crate::outcome::{Failure, Output};
use crate::progress;
use crate::whole_file::WholeFile;

/// Reads files and writes tables.
///
/// # Errors
/// Files that can't be read or are at fault, each with its problem; models and GPUs of unknown names; runs that can't be told
/// apart; nothing that can be used; tables that can't be written.
pub fn run(args: &Ingest, common: &Common) -> Result<Output, Failure> {
    let mut work = Work::default();
    let bar = Bar::new(&args.files);
    let mut problems = Vec::new();
    for file in &args.files {
        bar.starts(file);
        let kind = args.asked_format().map_or_else(|| Kind::detect(file), Ok);
        match kind.and_then(|kind| Ok((kind, kind.read(file)?))) {
            Ok((kind, found)) => work.take(file, kind, found, args),
            Err(error) => problems.push(error.to_string()),
        }
        bar.ends(file);
    }
    bar.clear();
    if !problems.is_empty() {
        return Err(Failure::Input(problems));
    }
    work.check(args, common.data_dir())?;
    work.write(&args.out)?;
    let mut output = match common.format {
        Format::Table => Output::of(table::render(&work.report)),
        Format::Json => Output::json(&work.report)?,
    };
    output.notes = work.notes;
    Ok(output)
}

#[derive(Default)]
struct Work {
    steps: Vec<StepTrace>,
    /// Of each of `steps`.
    periods: Vec<Periods>,
    /// File of each of `steps`.
    step_files: Vec<String>,
    requests: Vec<RequestTrace>,
    /// File of each of `requests`.
    request_files: Vec<String>,
    report: Ingestion,
    notes: Vec<String>,
}

impl Work {
    fn take(&mut self, file: &Path, kind: Kind, found: Ingested, args: &Ingest) {
        let name = file.display().to_string();
        let mut report = FileReport {
            file: name.clone(),
            format: kind.name,
            steps: Records { read: found.steps_read, kept: 0, dropped: found.dropped_steps },
            requests: Records { read: found.requests_read, kept: 0, dropped: found.dropped_requests },
            notes: found.notes,
        };
        for mut trace in found.steps.into_iter().filter(|trace| !trace.steps.is_empty()) {
            args.labels.put_over(&mut trace.run);
            let periods = periods(&trace, &args.cleaning());
            report.steps.kept += periods.intervals.len() as u64;
            report.steps.dropped.merge(&periods.dropped());
            self.steps.push(trace);
            self.periods.push(periods);
            self.step_files.push(name.clone());
        }
        for mut trace in found.requests.into_iter().filter(|trace| !trace.requests.is_empty()) {
            args.labels.put_over(&mut trace.run);
            report.requests.kept += trace.requests.len() as u64;
            self.requests.push(trace);
            self.request_files.push(name.clone());
        }
        self.notes.extend(report.notes.iter().map(|note| format!("{name}: {note}")));
        self.report.files.push(report);
    }

    fn check(&mut self, args: &Ingest, data_dir: Option<&Path>) -> Result<(), Failure> {
        let is_timed = self.periods.iter().any(|of| !of.intervals.is_empty());
        if !is_timed && self.requests.is_empty() {
            let reasons = self.report.files.iter().map(|file| {
                let steps = table::reasons(&file.steps.dropped);
                let requests = table::reasons(&file.requests.dropped);
                let all: Vec<String> = [("steps", file.steps.read, steps), ("requests", file.requests.read, requests)]
                    .into_iter()
                    .filter(|(_, read, _)| *read > 0)
                    .map(|(what, read, reasons)| format!("{read} {what}, left out: {reasons}"))
                    .collect();
                let all = if all.is_empty() { "no steps and no requests".to_owned() } else { all.join("; ") };
                format!("{}: nothing in it can be used: {all}", file.file)
            });
            return Err(Failure::Input(reasons.collect()));
        }
        if !is_timed && !self.steps.is_empty() {
            self.notes.push("no step has a time that can be used: only the request table is written".to_owned());
            self.steps.clear();
        }
        let mut problems = same_name(self.steps.iter().map(|trace| &trace.run).zip(&self.step_files), args);
        problems.extend(same_name(self.requests.iter().map(|trace| &trace.run).zip(&self.request_files), args));
        problems.extend(self.unknown_names(data_dir));
        if !problems.is_empty() {
            problems.dedup();
            return Err(Failure::Input(problems));
        }
        self.say_what_is_missing();
        self.list_runs();
        self.report.joins = join(&self.steps, &self.requests).iter().filter_map(JoinReport::of).collect();
        Ok(())
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.steps.iter().map(|trace| &trace.run).chain(self.requests.iter().map(|trace| &trace.run))
    }

    fn unknown_names(&self, data_dir: Option<&Path>) -> Vec<String> {
        let mut judged: BTreeMap<(&str, &str), Option<String>> = BTreeMap::new();
        for run in self.runs() {
            for (flag, name) in [("--model", &run.model), ("--hardware", &run.hardware)] {
                let Some(name) = name.as_deref() else { continue };
                judged.entry((flag, name)).or_insert_with(|| {
                    let found = match flag {
                        "--model" => Model::find_in(data_dir, name).map(drop),
                        _ => Hardware::find_in(data_dir, name).map(drop),
                    };
                    let error = found.err()?;
                    Some(format!("{error} (run '{}'; {flag} puts another name in its place)", run.experiment))
                });
            }
        }
        judged.into_values().flatten().collect()
    }

    fn say_what_is_missing(&mut self) {
        let mut missing: Vec<String> = Vec::new();
        for (flag, is_missing) in [
            ("--model", (|run: &Run| run.model.is_none()) as fn(&Run) -> bool),
            ("--hardware", |run| run.hardware.is_none()),
            ("--tensor-parallel-size", |run| run.tensor_parallel_size.is_none()),
        ] {
            if self.runs().any(is_missing) {
                missing.push(flag.to_owned());
            }
        }
        if !missing.is_empty() {
            let flags = missing.join(", ");
            self.notes.push(format!("some runs lack metadata needed for prediction; pass {flags}"));
        }
    }

    fn list_runs(&mut self) {
        let mut runs: Vec<(Run, RunReport)> = Vec::new();
        for (trace, periods) in self.steps.iter().zip(&self.periods) {
            let report = report_of(&mut runs, &trace.run);
            report.steps = periods.intervals.len() as u64;
            report.median_time_us = periods.median_period_us();
            let is_gpu_time = trace.steps.iter().any(|step| step.gpu_time_us.is_some());
            report.timed = Some(if is_gpu_time { "forward_pass" } else { "period" });
        }
        for trace in &self.requests {
            report_of(&mut runs, &trace.run).requests = trace.requests.len() as u64;
        }
        self.report.runs = runs.into_iter().map(|(_, report)| report).collect();
    }

    fn write(&mut self, out: &Path) -> Result<(), Failure> {
        std::fs::create_dir_all(out).map_err(|error| Error::io(out, error))?;
        let (steps_path, requests_path) = (out.join("steps.csv"), out.join("requests.csv"));
        let traces = std::mem::take(&mut self.steps).into_iter().zip(std::mem::take(&mut self.periods));
        let steps: Vec<TableRun> = traces.map(|(trace, periods)| TableRun { trace, periods }).collect();
        let mut done = Vec::new();
        if !steps.is_empty() {
            let (file, to) = WholeFile::create(&steps_path)?;
            file.written(step_table::write(std::io::BufWriter::new(to), &steps))?;
            done.push((file, &steps_path));
        }
        if !self.requests.is_empty() {
            let (file, to) = WholeFile::create(&requests_path)?;
            file.written(request_table::write(std::io::BufWriter::new(to), &self.requests))?;
            done.push((file, &requests_path));
        }
        for path in [&steps_path, &requests_path] {
            if path.exists() && !done.iter().any(|(_, written)| *written == path) {
                self.notes.push(format!("{}: was there before and is not of these files", path.display()));
            }
        }
        for (file, path) in done {
            file.keep()?;
            self.report.written.push(path.display().to_string());
        }
        Ok(())
    }
}

fn report_of<'a>(runs: &'a mut Vec<(Run, RunReport)>, run: &Run) -> &'a mut RunReport {
    let index = runs.iter().position(|(known, _)| known == run).unwrap_or(runs.len());
    if index == runs.len() {
        let report = RunReport {
            experiment: run.experiment.clone(),
            model: run.model.clone(),
            hardware: run.hardware.clone(),
            tensor_parallel_size: run.tensor_parallel_size,
            ..RunReport::default()
        };
        runs.push((run.clone(), report));
    }
    &mut runs[index].1
}

/// Two runs with the same labels would be one in the table, their steps mixed.
fn same_name<'a>(runs: impl Iterator<Item = (&'a Run, &'a String)>, args: &Ingest) -> Vec<String> {
    let mut known: Vec<(&Run, &String)> = Vec::new();
    let mut problems = Vec::new();
    for (run, file) in runs {
        match known.iter().find(|(other, _)| *other == run) {
            None => known.push((run, file)),
            Some((_, other)) => {
                let way_out = if args.labels.experiment.is_some() {
                    "--experiment names one run: leave it out, or read the files one at a time"
                } else {
                    "read them one at a time, each with its own --experiment"
                };
                let name = &run.experiment;
                problems.push(format!("{other} and {file}: both hold a run '{name}' with the same labels; {way_out}"));
            }
        }
    }
    problems
}

/// Drawn to stderr where that is a terminal, for files that take a while.
struct Bar(Option<ProgressBar>);

impl Bar {
    const MIN_BYTES: u64 = 20_000_000;

    fn new(files: &[PathBuf]) -> Self {
        let bytes = files.iter().map(|file| size(file)).sum();
        if bytes < Bar::MIN_BYTES {
            return Bar(None);
        }
        let bar = progress::bar(bytes, "{spinner} {msg} [{bar:30}] {bytes}/{total_bytes}, {elapsed}");
        bar.enable_steady_tick(Duration::from_millis(200));
        Bar(Some(bar))
    }

    fn starts(&self, file: &Path) {
        if let Some(bar) = &self.0 {
            bar.set_message(file.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }

    fn ends(&self, file: &Path) {
        if let Some(bar) = &self.0 {
            bar.inc(size(file));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |of| of.len())
}
