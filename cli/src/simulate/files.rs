//! The files that `simulate` writes beside its report, opened before the replay so that a path that can't be written is known at
//! once. Uses `whole_file` and the library's exports.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use ridgepoint::Result;
use ridgepoint::replay::export::{
    BenchRun, PerfettoTrace, TokenTimes, TraceOptions, write_requests_csv, write_vllm_bench,
};
use ridgepoint::replay::{Metrics, Observer, Replay, StepEvent};

use super::args::Simulate;
use crate::output::Failure;
use crate::whole_file::WholeFile;

/// Refuses outputs that would end in one file, or in a file that is read.
///
/// # Errors
/// [`Failure::Usage`] for the first two flags with one file, and for `-`.
pub fn check(args: &Simulate) -> std::result::Result<(), Failure> {
    let usage = |message: String| Err(Failure::usage(ErrorKind::ArgumentConflict, "simulate", &message));
    let inputs = [("--profile", &args.profile), ("--requests", &args.requests), ("--config", &args.config)];
    let outputs = [("--output-json", &args.output_json), ("--output-csv", &args.output_csv), ("--trace", &args.trace)];
    let mut known: Vec<(&str, PathBuf)> =
        inputs.iter().filter_map(|(flag, path)| Some((*flag, place(path.as_deref()?)?))).collect();
    for (flag, path) in outputs.iter().filter_map(|(flag, path)| Some((*flag, path.as_deref()?))) {
        if path == Path::new("-") {
            return usage(format!("{flag} - is no file: give a path; --format json prints the result on stdout"));
        }
        let Some(place) = place(path) else { continue };
        if let Some((other, _)) = known.iter().find(|(_, known)| *known == place) {
            return usage(format!("{other} and {flag} are the same file, {}: give another one", path.display()));
        }
        known.push((flag, place));
    }
    Ok(())
}

/// Where a path ends, however it is written; `None` for devices and pipes, which may be used more than once.
fn place(path: &Path) -> Option<PathBuf> {
    if let Ok(found) = path.canonicalize() {
        return found.is_file().then_some(found);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(parent.canonicalize().ok()?.join(path.file_name()?))
}

/// Opened files, and what has to watch the replay for them.
pub struct Files {
    json: Option<(WholeFile, File)>,
    csv: Option<(WholeFile, File)>,
    trace: Option<(WholeFile, PerfettoTrace<File>)>,
    tokens: Option<TokenTimes>,
}

impl Files {
    /// Opens what the arguments ask for.
    ///
    /// # Errors
    /// [`ridgepoint::Error::Io`] for the first that can't be.
    pub fn create(args: &Simulate) -> Result<Self> {
        let open = |path: &Option<std::path::PathBuf>| path.as_deref().map(WholeFile::create).transpose();
        let trace = open(&args.trace)?.map(|(file, out)| (file, PerfettoTrace::new(out, TraceOptions::default())));
        Ok(Files {
            json: open(&args.output_json)?,
            csv: open(&args.output_csv)?,
            trace,
            tokens: args.save_detailed.then(TokenTimes::new),
        })
    }

    /// Writes them and, once all are written, gives them their names; returns what deserves saying of them.
    ///
    /// # Errors
    /// [`ridgepoint::Error::Io`] for the first that could not be written.
    pub fn write(self, run: &BenchRun<'_>, replay: &Replay, metrics: &Metrics) -> Result<Vec<String>> {
        let (mut done, mut notes) = (Vec::new(), Vec::new());
        if let Some((file, out)) = self.json {
            file.written(write_vllm_bench(out, run, replay, metrics, self.tokens.as_ref()))?;
            done.push(file);
        }
        if let Some((file, out)) = self.csv {
            file.written(write_requests_csv(out, &replay.records))?;
            done.push(file);
        }
        if let Some((file, trace)) = self.trace {
            notes = file.written(trace.finish(&replay.records))?.notes;
            done.push(file);
        }
        done.into_iter().try_for_each(WholeFile::keep)?;
        Ok(notes)
    }
}

impl Observer for Files {
    fn step(&mut self, event: &StepEvent<'_>) {
        if let Some((_, trace)) = &mut self.trace {
            trace.step(event);
        }
    }

    fn token(&mut self, record: u32, token: u32, now_ns: u64) {
        if let Some(tokens) = &mut self.tokens {
            tokens.token(record, token, now_ns);
        }
        if let Some((_, trace)) = &mut self.trace {
            trace.token(record, token, now_ns);
        }
    }

    fn wants_every_token(&self) -> bool {
        self.tokens.is_some() || self.trace.is_some()
    }
}
