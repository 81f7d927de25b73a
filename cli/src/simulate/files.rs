//! The files that `simulate` writes beside its report. They are opened before the replay, so that a path that cannot be
//! written is known at once.

use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use ridgepoint::Result;
use ridgepoint::replay::export::{BenchRun, PerfettoTrace, TokenTimes, write_requests_csv, write_vllm_bench};
use ridgepoint::replay::{Metrics, Observer, Replay, StepEvent};

use crate::output::{Force, Kind, OutputFile, Outputs};

const OUTPUT: &str = "Output";

/// Output files, and the memory report.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print how GPU memory is divided: weights, activations, KV blocks
    #[arg(long, help_heading = OUTPUT)]
    pub print_kv_capacity: bool,
    /// Write the result as JSON with the field names of vLLM's benchmark
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    output_json: Option<PathBuf>,
    /// Add every request's lengths and times to --output-json
    #[arg(long, requires = "output_json", help_heading = OUTPUT)]
    save_detailed: bool,
    /// Write one csv row per request
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    output_csv: Option<PathBuf>,
    /// Write a trace of steps and requests for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    trace: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
}

/// Opened files. As an observer of the replay they collect their content.
pub struct Files {
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
    trace: Option<(PerfettoTrace<File>, OutputFile)>,
    tokens: Option<TokenTimes>,
}

impl Files {
    /// Opens the files that the arguments ask for.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub fn create(args: &OutputArgs, outputs: &mut Outputs) -> Result<Self> {
        let mut open =
            |path: &Option<PathBuf>, kind| path.as_deref().map(|path| outputs.create(path, kind)).transpose();
        let trace = match open(&args.trace, Kind::Trace)? {
            Some(mut file) => Some((PerfettoTrace::new(file.write(|out| out.try_clone())?), file)),
            None => None,
        };
        Ok(Files {
            json: open(&args.output_json, Kind::BenchResult)?,
            csv: open(&args.output_csv, Kind::RequestTimes)?,
            trace,
            tokens: args.save_detailed.then(TokenTimes::default),
        })
    }

    /// Writes all files, then gives them their names.
    ///
    /// # Errors
    /// The first that cannot be written.
    pub fn write(self, run: &BenchRun<'_>, replay: &Replay, metrics: &Metrics) -> Result<()> {
        let mut done = Vec::new();
        if let Some(mut file) = self.json {
            file.write(|out| write_vllm_bench(out, run, replay, metrics, self.tokens.as_ref()))?;
            done.push(file);
        }
        if let Some(mut file) = self.csv {
            file.write(|out| write_requests_csv(out, &replay.records))?;
            done.push(file);
        }
        if let Some((trace, mut file)) = self.trace {
            file.write(|_| trace.finish(&replay.records))?;
            done.push(file);
        }
        done.into_iter().try_for_each(OutputFile::keep)
    }
}

impl Observer for Files {
    fn step(&mut self, event: &StepEvent<'_>) {
        if let Some((trace, _)) = &mut self.trace {
            trace.step(event);
        }
    }

    fn token(&mut self, record: u32, token: u32, now_ns: u64) {
        if let Some(tokens) = &mut self.tokens {
            tokens.token(record, token, now_ns);
        }
        if let Some((trace, _)) = &mut self.trace {
            trace.token(record, token, now_ns);
        }
    }

    fn wants_every_token(&self) -> bool {
        self.tokens.is_some() || self.trace.is_some()
    }
}
