//! The files that `simulate` writes beside its report. They are opened before the replay, so that a path that cannot be
//! written is known at once.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use ridgepoint::Result;
use ridgepoint::replay::export::{BenchRun, PerfettoTrace, TokenTimes, write_requests_csv, write_vllm_bench};
use ridgepoint::replay::{Metrics, Observer, Replay, StepEvent};

use crate::outcome::Failure;
use crate::whole_file::WholeFile;

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
}

impl OutputArgs {
    /// Refuses outputs that would share a file with one another or with one of the `inputs`.
    ///
    /// # Errors
    /// The first two flags that name the same file.
    pub fn check(&self, inputs: [(&'static str, &Option<PathBuf>); 3]) -> std::result::Result<(), Failure> {
        let outputs =
            [("--output-json", &self.output_json), ("--output-csv", &self.output_csv), ("--trace", &self.trace)];
        let mut known: Vec<(&str, PathBuf)> = Vec::new();
        for (flag, path) in inputs.into_iter().chain(outputs) {
            let Some(place) = path.as_deref().and_then(place) else { continue };
            if let Some((other, _)) = known.iter().find(|(_, known)| *known == place) {
                let message = format!("{other} and {flag} are the same file, {}: give another one", place.display());
                return Err(Failure::usage(message));
            }
            known.push((flag, place));
        }
        Ok(())
    }
}

/// The file that a path leads to; `None` for devices and pipes, which may be used more than once.
fn place(path: &Path) -> Option<PathBuf> {
    if let Ok(found) = path.canonicalize() {
        return found.is_file().then_some(found);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(parent.canonicalize().ok()?.join(path.file_name()?))
}

/// Opened files. As an observer of the replay they collect their content.
pub struct Files {
    json: Option<WholeFile>,
    csv: Option<WholeFile>,
    trace: Option<(PerfettoTrace<File>, WholeFile)>,
    tokens: Option<TokenTimes>,
}

impl Files {
    /// Opens the files that the arguments ask for.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub fn create(args: &OutputArgs) -> Result<Self> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(WholeFile::create).transpose();
        let trace = match open(&args.trace)? {
            Some(mut file) => Some((PerfettoTrace::new(file.write(|out| out.try_clone())?), file)),
            None => None,
        };
        Ok(Files {
            json: open(&args.output_json)?,
            csv: open(&args.output_csv)?,
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
        done.into_iter().try_for_each(WholeFile::keep)
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
