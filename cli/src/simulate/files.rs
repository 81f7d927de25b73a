//! The files that `simulate` writes in addition to its report. They are opened before the replay, so that a path that cannot be
//! written is known at once.

use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use ridgepoint::Result;
use ridgepoint_replay::export::{
    BenchRun, OtlpTrace, PerfettoTrace, TokenMeta, TokenSteps, TokenTimes, write_requests_csv, write_vllm_bench,
};
use ridgepoint_replay::workload::Content;
use ridgepoint_replay::{EngineConfig, KvMetrics, Metrics, Observer, Replay, RequestRecord};

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
    /// What is written or reported of one server alone, and whether it is asked for.
    pub fn of_one_server(&self) -> [(&'static str, bool); 5] {
        [
            ("--save-detailed", self.save_detailed),
            ("--output-tokens", self.output_tokens.is_some()),
            ("--output-otlp", self.output_otlp.is_some()),
            ("--trace", self.trace.is_some()),
            ("--kv-metrics", self.kv_metrics),
        ]
    }

    /// Whether an output file or the report needs the shared prefixes of prompts.
    pub fn needs_contents(&self) -> bool {
        self.output_tokens.is_some() || self.kv_metrics
    }

    /// A remark if spans are written of requests that found cached tokens: spans do not report which requests share them.
    pub fn missing_prompts_note(&self, records: &[RequestRecord]) -> Option<String> {
        let has_hits = records.iter().any(|record| record.num_cached_tokens > 0);
        (self.output_otlp.is_some() && has_hits).then(|| {
            "--output-otlp: OTLP spans omit prompts, so shared KV blocks are counted once per request when this trace is judged; \
             --output-tokens records which requests share them"
                .to_owned()
        })
    }
}

/// Opened files.
pub struct Files {
    json: Option<OutputFile>,
    csv: Option<OutputFile>,
    trace: Option<OutputFile>,
    tokens: Option<OutputFile>,
    otlp: Option<OutputFile>,
}

/// Observers of the replay that collect what files contain.
pub struct Collected {
    /// For the JSON of each request.
    token_times: Option<TokenTimes>,
    token_lines: Option<TokenSteps>,
    spans: Option<OtlpTrace>,
    trace: Option<PerfettoTrace<File>>,
}

impl Collected {
    /// Those that a file needs.
    pub fn observers(&mut self) -> Vec<&mut dyn Observer> {
        fn given<O: Observer>(observer: &mut Option<O>) -> Option<&mut dyn Observer> {
            observer.as_mut().map(|observer| observer as &mut dyn Observer)
        }
        let Collected { token_times, token_lines, spans, trace } = self;
        [given(token_times), given(token_lines), given(spans), given(trace)].into_iter().flatten().collect()
    }
}

/// The server and the load of a replay, for the files that name them.
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
    /// Opens the files that the arguments ask for, and makes the observers that they need.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub fn create(args: &OutputArgs, outputs: &mut Outputs) -> Result<(Self, Collected)> {
        let mut open =
            |path: &Option<PathBuf>, kind| path.as_deref().map(|path| outputs.create(path, kind)).transpose();
        let mut files = Files {
            trace: open(&args.trace, Kind::Trace)?,
            json: open(&args.output_json, Kind::BenchResult)?,
            csv: open(&args.output_csv, Kind::RequestTimes)?,
            tokens: open(&args.output_tokens, Kind::TokenLines)?,
            otlp: open(&args.output_otlp, Kind::Otlp)?,
        };
        let trace = files.trace.as_mut().map(|file| file.write(|out| out.try_clone())).transpose()?;
        let collected = Collected {
            token_times: args.save_detailed.then(TokenTimes::default),
            token_lines: files.tokens.is_some().then(TokenSteps::default),
            spans: files.otlp.is_some().then(OtlpTrace::default),
            trace: trace.map(PerfettoTrace::new),
        };
        Ok((files, collected))
    }

    /// Writes all files, then gives them their names.
    ///
    /// # Errors
    /// The first that cannot be written.
    pub fn write(
        self,
        collected: Collected,
        of: &Replayed<'_>,
        (replay, metrics): (&Replay, &Metrics),
        kv_metrics: Option<&KvMetrics>,
    ) -> Result<()> {
        let Collected { token_times, token_lines, spans, trace } = collected;
        let mut done = Vec::new();
        if let Some(mut file) = self.json {
            file.write(|out| write_vllm_bench(out, &of.bench, replay, metrics, token_times.as_ref()))?;
            done.push(file);
        }
        if let Some(mut file) = self.csv {
            file.write(|out| write_requests_csv(out, &replay.records))?;
            done.push(file);
        }
        if let Some((mut file, trace)) = self.trace.zip(trace) {
            file.write(|_| trace.finish(&replay.records, kv_metrics))?;
            done.push(file);
        }
        if let Some((mut file, tokens)) = self.tokens.zip(token_lines) {
            file.write(|out| tokens.write(out, &of.meta, &replay.records, of.contents))?;
            done.push(file);
        }
        if let Some((mut file, spans)) = self.otlp.zip(spans) {
            file.write(|out| spans.write(out, of.meta.model, of.engine, &replay.records))?;
            done.push(file);
        }
        done.into_iter().try_for_each(OutputFile::keep)
    }
}
