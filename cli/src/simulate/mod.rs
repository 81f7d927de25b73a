//! `ridgepoint simulate`: replays a load on a server. `load` and `server` turn arguments into a replay, `cold` starts the server late,
//! `files` writes beside the report, `table` lays it out.

mod cold;
mod files;
mod load;
mod table;

use std::path::PathBuf;

use clap::Args;
use ridgepoint::internals::correction::{Correction, CorrectionInfo};
use ridgepoint::internals::replay::export::TokenMeta;
use ridgepoint::internals::replay::{Intervals, SpreadSampler};
use ridgepoint::internals::workload::KeptContents;
use ridgepoint::internals::workload::check_memory;
use ridgepoint::latency::{CalibratedRoofline, FittedBlackBox, LatencyModel};
use ridgepoint::replay::{
    ColdSteps, EngineConfig, EngineCounters, HeldRequests, Metrics, NoisySteps, Observer, Replay, StageMetrics, replay,
};
use ridgepoint::workload::Workload;
use ridgepoint::{Deployment, EfficiencyMode, Hardware, Model};
use serde::Serialize;

use crate::common::{Common, Format, MemoryArg, PREDICTION, PredictionArgs, at_least_zero};
use crate::deployment::Served;
use crate::outcome::{Failure, Outcome};
use crate::output::Outputs;
use crate::progress::{self, AnsweredRequests};
use crate::server::ServerArgs;
use cold::{Cold, ColdArgs, ColdReport};
use files::{Files, OutputArgs, Replayed};
use load::LoadArgs;

/// The arguments of `simulate`.
#[derive(Debug, Args)]
pub struct Simulate {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    memory: MemoryArg,
    #[command(flatten)]
    cold: ColdArgs,
    #[command(flatten)]
    prediction: PredictionArgs,
    /// Multiply each step's time by a random factor of mean 1, so that equal requests spread as measured ones do. SIGMA is the standard
    /// deviation of its logarithm [default: the correction's scatter of steps]
    #[arg(long, value_name = "SIGMA", num_args = 0..=1, default_missing_value = OF_CORRECTION, value_parser = noise)]
    #[arg(allow_negative_numbers = true, help_heading = PREDICTION)]
    noise: Option<Noise>,
    /// Take the times of steps and the host's delays from a latency model of `ridgepoint fit --training-tables`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["correction", "efficiency"], help_heading = PREDICTION)]
    latency: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// By how much steps scatter.
#[derive(Debug, Clone, Copy)]
enum Noise {
    /// As the correction says.
    OfCorrection,
    /// The standard deviation of a factor's logarithm.
    Sigma(f64),
}

/// The spread that is taken if none is given.
const OF_CORRECTION: &str = "correction";

fn noise(text: &str) -> Result<Noise, String> {
    if text == OF_CORRECTION {
        return Ok(Noise::OfCorrection);
    }
    let sigma = at_least_zero(text).ok().filter(|sigma| *sigma <= 1.0);
    sigma.map(Noise::Sigma).ok_or_else(|| format!("must be a number from 0 to 1, or {OF_CORRECTION}"))
}

impl Noise {
    fn sigma(self, correction: Option<&Correction>) -> Result<f64, Failure> {
        match (self, correction) {
            (Noise::Sigma(sigma), _) => Ok(sigma),
            (Noise::OfCorrection, Some(correction)) => Ok(correction.scatter.step),
            (Noise::OfCorrection, None) => Err(Failure::usage(
                "--noise takes its spread from a correction, and this prediction has none: give it, as in --noise 0.05",
            )),
        }
    }
}

/// A remark if a black box was fitted on another server than the one that is replayed: it knows neither model nor GPU.
fn of_another_server(
    fitted: &FittedBlackBox,
    model: &Model,
    gpu: &Hardware,
    deployment: &Deployment,
) -> Option<String> {
    let (known, here) = (
        (&fitted.model, &fitted.hardware, fitted.tensor_parallel_size),
        (&model.name, &gpu.name, deployment.tensor_parallel_size),
    );
    (known != here).then(|| {
        format!(
            "the latency model was fitted on {} on {} x {}, and this server has {} on {} x {}: a black box knows neither model nor GPU",
            known.0, known.2, known.1, here.0, here.2, here.1
        )
    })
}

/// A replayed load. Its JSON keys are stable: keys are added, never renamed or dropped.
#[derive(Debug, Serialize)]
pub struct Simulation {
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    memory: Option<String>,
    model: String,
    hardware: String,
    deployment: Deployment,
    engine: EngineConfig,
    kv_blocks_from: &'static str,
    load: String,
    latency_model: String,
    /// Noise of step times: standard deviation of the logarithm of each factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    noise_sigma: Option<f64>,
    correction: CorrectionInfo,
    /// `None` for a latency model of a file.
    intervals: Option<Intervals>,
    /// The whole run, then its stages.
    stages: Vec<StageMetrics>,
    counters: Counters,
    /// The start of the server, if it was not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    cold: Option<ColdReport>,
    notes: Vec<String>,
    warnings: Vec<String>,
}

/// The engine's counts with shares and means of its work; `None` where there is nothing to divide by.
#[derive(Debug, Serialize)]
struct Counters {
    #[serde(flatten)]
    counted: EngineCounters,
    /// Tokens per step.
    mean_step_tokens: Option<f64>,
    /// Share of the scheduled tokens that belong to prompts or are computed again.
    prefill_token_share: Option<f64>,
    /// Share of the prompt tokens that the prefix cache had; `None` with the cache off.
    cache_hit_share: Option<f64>,
    /// Share of the time until the last request ended in which the GPUs worked.
    gpu_busy_share: Option<f64>,
    /// Most KV blocks in use over those that requests can have.
    peak_kv_share: Option<f64>,
}

impl Counters {
    fn new(counted: EngineCounters, engine: &EngineConfig) -> Self {
        let of = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let looked_up = counted.cached_tokens.saturating_add(counted.prefill_tokens);
        Counters {
            mean_step_tokens: of(counted.scheduled_tokens, counted.steps),
            prefill_token_share: of(counted.prefill_tokens, counted.scheduled_tokens),
            cache_hit_share: of(counted.cached_tokens, looked_up).filter(|_| engine.enable_prefix_caching),
            gpu_busy_share: of(counted.busy_ns, counted.end_ns),
            peak_kv_share: of(u64::from(counted.max_blocks_in_use), u64::from(engine.usable_blocks())),
            counted,
        }
    }
}

/// Replays a load.
///
/// # Errors
/// Input that cannot be read or is at fault; files that cannot be written.
pub fn run(args: &Simulate, common: &Common) -> Result<Outcome<Simulation>, Failure> {
    let mut outputs = Outputs::new(common, args.output.force);
    let (served, engine, mut warnings) = args.server.open(&args.prediction.options(common), &mut outputs)?;
    let title = served.title();
    let cold = args.cold.open(&served, &mut warnings)?;
    let Served { model, hardware, deployment, steps } = served;
    let fits = |num_requests| check_memory(num_requests, 1, args.memory.max_memory_gib);
    let mut load = args.load.load().open_if(args.load.seed, deployment.data_parallel_size, &fits)?;
    warnings.append(&mut load.notes);
    let latency = CalibratedRoofline::new(steps);
    let fitted = args.latency.as_deref().map(FittedBlackBox::load).transpose()?;
    let steady: &dyn LatencyModel = fitted.as_ref().map_or(&latency, |fitted| &fitted.black_box);
    let correction = latency.steps().correction().filter(|_| fitted.is_none());
    let noise_sigma = args.noise.map(|noise| noise.sigma(correction)).transpose()?;
    let noisy = noise_sigma.map(|sigma| NoisySteps::new(steady, sigma, args.load.seed)).transpose()?;
    let sampled = noisy.as_ref().map_or(steady, |noisy| noisy);
    let sampler = SpreadSampler::new(latency.steps());
    let bar = progress::bar(load.summary.requests as u64, "replay [{bar:30}] {percent} % of {len} requests, {elapsed}");
    let mut observers = ((Files::create(&args.output, &mut outputs)?, sampler), AnsweredRequests(bar.clone()));
    let mut sent = KeptContents::of(&mut *load.workload, args.output.tells_contents());
    let replayed = run_replay(sampled, &engine.config, &mut sent, &mut observers, cold);
    bar.finish_and_clear();
    let (Run { replayed, cold, notes }, ((files, sampler), _)) = (replayed?, observers);
    warnings.extend(notes);
    let metrics = Metrics::of(&replayed);
    let of = Replayed {
        bench: args.load.bench_run(&model.name, deployment.data_parallel_size),
        meta: TokenMeta {
            model: &model.name,
            gpu: &hardware.name,
            tp: deployment.tensor_parallel_size,
            max_num_seqs: engine.config.max_num_seqs,
            block_size: engine.config.block_size,
            source: concat!("ridgepoint ", env!("CARGO_PKG_VERSION")),
        },
        engine: &engine.config,
        contents: &sent.contents,
    };
    files.write(&of, &replayed, &metrics)?;
    warnings.extend(args.output.untold(&replayed.records));
    warnings.extend(sampler.extrapolated().filter(|_| fitted.is_none()));

    let correction = CorrectionInfo::of(correction);
    let mut latency_model = match (latency.steps().efficiency(), &correction.name) {
        (EfficiencyMode::Ideal, _) => "ideal roofline, with the default host overheads".to_owned(),
        (_, None) => "calibrated roofline without a correction, with the default host overheads".to_owned(),
        _ => format!("calibrated roofline with the correction {correction}, host overheads included"),
    };
    if let Some(fitted) = &fitted {
        warnings.extend(of_another_server(fitted, &model, &hardware, &deployment));
        latency_model = format!("black box by {}, fitted on {} steps of {}", fitted.method, fitted.rows, fitted.data);
    }
    if let Some(sigma) = noise_sigma {
        latency_model += &format!(", each step times a random factor of mean 1 (noise {sigma})");
    }
    let memory = args.output.print_kv_capacity.then(|| match engine.blocks_are_given {
        true => format!("{}\nnot used: num_gpu_blocks = {} was given", engine.capacity, engine.config.num_gpu_blocks),
        false => engine.capacity.to_string(),
    });
    let in_json = memory.iter().filter(|_| common.format == Format::Json);
    let notes = in_json.map(|memory| memory.replace('\n', "; ")).collect();
    let simulation = Simulation {
        title,
        memory,
        model: model.name,
        hardware: hardware.name,
        deployment,
        kv_blocks_from: if engine.blocks_are_given { "given" } else { "the memory equation" },
        load: format!("{}: {}", load.name, load.summary),
        latency_model,
        noise_sigma,
        correction,
        intervals: fitted.is_none().then(|| Intervals::from(&sampler.spread())),
        stages: metrics.run_and_stages().cloned().collect(),
        counters: Counters::new(replayed.counters, &engine.config),
        cold,
        engine: engine.config,
        notes: Vec::new(),
        warnings,
    };
    Ok(Outcome { notes, ..Outcome::of(simulation) })
}

/// A replay that has run.
struct Run {
    replayed: Replay,
    cold: Option<ColdReport>,
    /// Remarks on overload and refused requests.
    notes: Vec<String>,
}

/// Runs the replay, of a server that is ready or that starts.
fn run_replay(
    latency: &dyn LatencyModel,
    engine: &EngineConfig,
    workload: &mut dyn Workload,
    observer: &mut dyn Observer,
    cold: Option<Cold>,
) -> Result<Run, Failure> {
    let Some(cold) = cold else {
        let replayed = replay(latency, engine, workload, observer)?;
        replayed.check_clock()?;
        return Ok(Run { notes: replayed.notes(engine), replayed, cold: None });
    };
    let mut held = HeldRequests::new(workload, cold.start_ns(), cold.ready_ns());
    let latency = ColdSteps::new(latency, cold.first_step_us());
    let mut replayed = replay(&latency, engine, &mut held, observer)?;
    replayed.check_clock()?;
    // Whether the server keeps up is asked of the time in which it is there.
    let mut notes = replayed.notes(engine);
    let cold = cold.report(held.restore(&mut replayed))?;
    notes.push(cold.remark());
    Ok(Run { replayed, cold: Some(cold), notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_from_the_counts() {
        let mut engine = EngineConfig::new(&Deployment::default(), 4096, 1001);
        let counters = EngineCounters {
            steps: 22,
            scheduled_tokens: 770,
            prefill_tokens: 750,
            cached_tokens: 250,
            max_blocks_in_use: 64,
            busy_ns: 310,
            end_ns: 1240,
            ..EngineCounters::default()
        };
        let shares = Counters::new(counters, &engine);
        assert_eq!((shares.mean_step_tokens, shares.prefill_token_share), (Some(35.0), Some(750.0 / 770.0)));
        // 250 of 1,000 prompt tokens; 64 of 1,000 usable blocks; 310 of 1,240 ns.
        assert_eq!(
            (shares.cache_hit_share, shares.peak_kv_share, shares.gpu_busy_share),
            (Some(0.25), Some(0.064), Some(0.25))
        );
        engine.enable_prefix_caching = false;
        assert_eq!(Counters::new(counters, &engine).cache_hit_share, None);
        let none = Counters::new(EngineCounters::default(), &engine);
        assert_eq!((none.mean_step_tokens, none.gpu_busy_share), (None, None));
    }
}
