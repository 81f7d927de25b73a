//! The files that `simulate` writes beside its report. They are opened before the replay, so that a path that cannot be
//! written is known at once.

use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use ridgepoint::Result;
use ridgepoint::internals::replay::export::{
    BenchRun, OtlpTrace, PerfettoTrace, TokenMeta, TokenSteps, TokenTimes, write_requests_csv, write_vllm_bench,
};
use ridgepoint::internals::replay::{KvEvent, KvMetrics};
use ridgepoint::replay::{EngineConfig, Metrics, Observer, Replay, RequestRecord, StepEvent};

use ridgepoint::internals::workload::Content;

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
    /// Write each request with the gaps between its tokens, as per-token JSONL that `ingest` reads
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    output_tokens: Option<PathBuf>,
    /// Write steps and requests as OpenTelemetry spans that `ingest` reads
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    output_otlp: Option<PathBuf>,
    /// Report what the KV cache itself costs and brings: lives of blocks, hits by prefix, the host's time for hashing
    #[arg(long, help_heading = OUTPUT)]
    pub kv_metrics: bool,
    /// Write a trace of steps and requests for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    trace: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
}

impl OutputArgs {
    /// Whether an output file or the report needs the shared prefixes of prompts.
    pub fn tells_contents(&self) -> bool {
        self.output_tokens.is_some() || self.kv_metrics
    }

    /// A remark if spans are written of requests that found cached tokens: spans do not tell with whom they shared them.
    pub fn untold(&self, records: &[RequestRecord]) -> Option<String> {
        let has_hits = records.iter().any(|record| record.num_cached_tokens > 0);
        (self.output_otlp.is_some() && has_hits).then(|| {
            "--output-otlp: spans carry no prompts, so that blocks which requests share count once for each of them when this trace is \
             judged; --output-tokens tells who shares them"
                .to_owned()
        })
    }
}

/// Opened files. As an observer of the replay they collect their content.
pub struct Files {
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
    trace: Option<(PerfettoTrace<File>, OutputFile)>,
    tokens: Option<TokenTimes>,
    token_lines: Option<(TokenSteps, OutputFile)>,
    otlp: Option<(OtlpTrace, OutputFile)>,
}

/// What was replayed, for the files that say so.
pub struct Replayed<'a> {
    /// The arguments of a benchmark.
    pub bench: BenchRun<'a>,
    /// The server.
    pub meta: TokenMeta<'a>,
    /// The server's scheduler and cache.
    pub engine: &'a EngineConfig,
    /// The beginnings of prompts that others share, by record.
    pub contents: &'a [Option<Content>],
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
            token_lines: open(&args.output_tokens, Kind::TokenLines)?.map(|file| (TokenSteps::default(), file)),
            otlp: open(&args.output_otlp, Kind::Otlp)?.map(|file| (OtlpTrace::default(), file)),
        })
    }

    /// Writes all files, then gives them their names.
    ///
    /// # Errors
    /// The first that cannot be written.
    pub fn write(
        self,
        of: &Replayed<'_>,
        replay: &Replay,
        metrics: &Metrics,
        kv_metrics: Option<&KvMetrics>,
    ) -> Result<()> {
        let mut done = Vec::new();
        if let Some(mut file) = self.json {
            file.write(|out| write_vllm_bench(out, &of.bench, replay, metrics, self.tokens.as_ref()))?;
            done.push(file);
        }
        if let Some(mut file) = self.csv {
            file.write(|out| write_requests_csv(out, &replay.records))?;
            done.push(file);
        }
        if let Some((trace, mut file)) = self.trace {
            file.write(|_| trace.finish(&replay.records, kv_metrics))?;
            done.push(file);
        }
        if let Some((tokens, mut file)) = self.token_lines {
            file.write(|out| tokens.write(out, &of.meta, &replay.records, of.contents))?;
            done.push(file);
        }
        if let Some((trace, mut file)) = self.otlp {
            file.write(|out| trace.write(out, of.meta.model, of.engine, &replay.records))?;
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
        if let Some((tokens, _)) = &mut self.token_lines {
            tokens.step(event);
        }
        if let Some((trace, _)) = &mut self.otlp {
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
        if let Some((tokens, _)) = &mut self.token_lines {
            tokens.token(record, token, now_ns);
        }
    }

    fn kv(&mut self, event: &KvEvent) {
        if let Some((trace, _)) = &mut self.trace {
            trace.kv(event);
        }
        if let Some((trace, _)) = &mut self.otlp {
            trace.kv(event);
        }
    }

    fn wants_kv_events(&self) -> bool {
        self.trace.is_some() || self.otlp.is_some()
    }

    fn wants_every_token(&self) -> bool {
        self.tokens.is_some() || self.trace.is_some() || self.token_lines.is_some()
    }
}
