//! The files that `simulate` writes beside its report, opened before the replay so that a path that can't be written is known at
//! once. Uses `whole_file` and the library's exports.

use std::fs::File;

use ridgepoint::Result;
use ridgepoint::replay::export::{
    BenchRun, PerfettoTrace, TokenTimes, TraceOptions, write_requests_csv, write_vllm_bench,
};
use ridgepoint::replay::{Metrics, Observer, Replay, StepEvent};

use super::args::Simulate;
use crate::cli::whole_file::WholeFile;

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

    /// Writes them and gives them their names; returns what deserves saying of them.
    ///
    /// # Errors
    /// [`ridgepoint::Error::Io`] for the first that could not be written.
    pub fn write(self, run: &BenchRun<'_>, replay: &Replay, metrics: &Metrics) -> Result<Vec<String>> {
        if let Some((file, out)) = self.json {
            file.keep(write_vllm_bench(out, run, replay, metrics, self.tokens.as_ref()))?;
        }
        if let Some((file, out)) = self.csv {
            file.keep(write_requests_csv(out, &replay.records))?;
        }
        match self.trace {
            Some((file, trace)) => Ok(file.keep(trace.finish(&replay.records))?.notes),
            None => Ok(Vec::new()),
        }
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
}
