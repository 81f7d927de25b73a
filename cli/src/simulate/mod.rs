//! `ridgepoint simulate`: replays a load on a server. `load` and `server` turn arguments into a replay, `cold` starts the server late.
//! `files` writes traces and results, `table` lays the report out with `sessions`, `offload`, `disk`, `speculation` and `kv_metrics`.

mod cold;
mod disk;
mod files;
mod kv_metrics;
mod load;
mod offload;
mod pools;
mod replicas;
mod sessions;
mod speculation;
mod table;

use std::path::PathBuf;
use std::thread::ScopedJoinHandle;

use clap::Args;
use ridgepoint::latency::FittedBlackBox;
use ridgepoint_lab::served::Served;
use ridgepoint_lab::simulate::{
    Details, FewerTiers, NOISE, Noise, OF_CORRECTION, RanksOfServer, Server, Simulation, StartReport,
};
use ridgepoint_replay::export::TokenMeta;
use ridgepoint_replay::workload::{RecordedContents, check_block_memory, check_memory};
use ridgepoint_replay::{KvWatch, Observer, Router, RouterKind};

use crate::common::{Common, MemoryArg, PREDICTION, PredictionArgs};
use crate::outcome::{Failure, Outcome};
use crate::output::Outputs;
use crate::progress::{self, AnsweredRequests, FinishedRequests};
use crate::server::ServerArgs;
use cold::ColdArgs;
use files::{Files, OutputArgs, Replayed};
use load::LoadArgs;
use pools::{OpenedPools, PoolArgs};
use replicas::ReplicaArgs;

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
    prediction: PredictionArgs,
    /// Multiply each step's time by a random factor of mean 1, so that equal requests spread as measured ones do. SIGMA is the standard
    /// deviation of its logarithm [default: the correction's scatter of steps]
    #[arg(long, value_name = "SIGMA", num_args = 0..=1, default_missing_value = OF_CORRECTION, value_parser = noise)]
    #[arg(allow_negative_numbers = true, help_heading = PREDICTION)]
    noise: Option<Noise>,
    /// Take the times of steps and the host's delays from a latency model of `ridgepoint fit --training-tables`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["correction", "efficiency"], help_heading = PREDICTION)]
    latency: Option<PathBuf>,
    /// Replay the load without speculative decoding, too, and compare
    #[arg(long)]
    compare_without: bool,
    #[command(flatten)]
    replicas: ReplicaArgs,
    #[command(flatten)]
    pools: PoolArgs,
    #[command(flatten)]
    cold: ColdArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn noise(text: &str) -> Result<Noise, String> {
    Noise::parse(text).ok_or_else(|| format!("must be {NOISE}"))
}

/// Replays a load.
///
/// # Errors
/// Input that cannot be read or is at fault; files that cannot be written.
pub fn run(args: &Simulate, common: &Common) -> Result<Outcome<Simulation>, Failure> {
    let wanted = args.load.read()?;
    let alone = [("--cold", args.cold.is_given()), ("--compare-without", args.compare_without)];
    let of_one_server = || alone.into_iter().chain(args.output.of_one_server());
    let replicas = args.replicas.read(wanted.seed, of_one_server())?;
    if args.pools.is_given() {
        let of_file = [("--latency", args.latency.is_some())];
        replicas::alone("--prefill-replicas", of_one_server().chain(of_file))?;
    }
    let mut outputs = Outputs::new(common, args.output.force);
    let options = args.prediction.options(common)?;
    let of_decode = args.pools.of_decode(&args.server)?;
    let (served, mut engine, mut warnings) = of_decode.open(&options, args.prediction.logged()?, &mut outputs)?;
    let prefill = args.pools.of_prefill(&args.server)?;
    let prefill = prefill.map(|of| of.open(&options, args.prediction.logged()?, &mut outputs)).transpose()?;
    let rule = |kind: Option<RouterKind>| Router { kind: kind.unwrap_or_default(), seed: wanted.seed };
    let pools = prefill.map(|of| args.pools.open(of, (&served, &mut engine), &mut warnings)).transpose()?;
    let title = pools.as_ref().map_or_else(|| served.title(), |pools| pools.title(&served.title()));
    let cold = args.cold.open(&served, &mut warnings)?;
    let Served { model, hardware, deployment, steps } = served;
    let compares = args.compare_without;
    if compares && engine.speculation.is_none() {
        return Err(Failure::usage(
            "--compare-without compares with a server that drafts no tokens: give --speculative-config, too",
        ));
    }
    let data_parallel_size = deployment.data_parallel_size;
    let ranks = RanksOfServer::of(data_parallel_size, steps.engine(), &model);
    let on_host = [("KV blocks on the host", engine.config.kv_offload.is_some())];
    let of_one_rank = of_one_server().chain(on_host);
    let replicas = replicas::with_ranks(replicas, (ranks, wanted.seed), of_one_rank, &mut warnings)?;
    // One rank, or all of them, get what clients send.
    let shares = if replicas.is_some_and(|of| of.ranks.is_some()) { 1 } else { data_parallel_size };
    let has_one = replicas.is_none() && pools.is_none();
    let compares_tiers = cold.is_none() && has_one;
    let num_compared = if compares_tiers { FewerTiers::number(&engine.config) } else { 0 } + usize::from(compares);
    let fits = |num_requests| check_memory(num_requests, 1 + num_compared, args.memory.max_memory_gib);
    let open = || wanted.load.open_if(wanted.seed, shares, &fits);
    let mut load = open()?;
    let num_engines = pools.as_ref().map(OpenedPools::num_engines).or(replicas.map(|of| of.num_engines())).unwrap_or(1);
    let of_engines = (&engine.config, num_engines);
    check_block_memory(&load.summary, of_engines, 1 + num_compared, args.memory.max_memory_gib)?;
    warnings.append(&mut load.notes);
    let latency = engine.latency(steps)?;
    if engine.config.kv_offload.is_some() && args.latency.is_some() {
        return Err(Failure::usage(
            "a latency model of --latency knows no times of KV transfers: leave out --kv-offloading-size",
        ));
    }
    if engine.speculation.is_some() && args.latency.is_some() {
        return Err(Failure::usage(
            "a latency model of --latency knows no drafts: leave out --speculative-config, or --latency",
        ));
    }
    let fitted = args.latency.as_deref().map(FittedBlackBox::load).transpose()?;
    let correction = latency.steps().correction().filter(|_| fitted.is_none());
    let spread = |noise: Noise| {
        noise.sigma(correction).ok_or_else(|| {
            Failure::usage(
                "--noise takes its spread from a correction, and this prediction has none: give it, as in --noise 0.05",
            )
        })
    };
    let noise_sigma = args.noise.map(spread).transpose()?;
    let server = Server {
        model: &model,
        hardware: &hardware,
        deployment: &deployment,
        engine: &engine,
        latency: &latency,
        fitted: fitted.as_ref(),
        noise_sigma,
        seed: wanted.seed,
        cold: cold.as_ref(),
        replicas,
        pools: pools.as_ref().map(|pools| pools.of((rule(args.pools.prefill_router()), rule(args.replicas.router())))),
    };
    let num_requests = load.summary.requests as u64 * (1 + num_compared as u64);
    let bar = progress::bar(num_requests, "replay [{bar:30}] {percent} % of {len} requests, {elapsed}");
    let (files, mut collected) = Files::create(&args.output, &mut outputs)?;
    let mut watch = args.output.kv_metrics.then(KvWatch::default);
    let mut answered = AnsweredRequests(bar.clone());
    let mut observers = collected.observers();
    if has_one {
        observers.push(&mut answered);
    }
    observers.extend(watch.as_mut().map(|watch| watch as &mut dyn Observer));
    let has_sessions = load.summary.sessions.is_some();
    let mut counted = FinishedRequests { workload: &mut *load.workload, bar: (!has_one).then(|| bar.clone()) };
    let mut sent = RecordedContents::of(&mut counted, args.output.needs_contents());
    let with_tier = |tier| server.with_tier(tier, &mut *open()?.workload, &mut [&mut AnsweredRequests(bar.clone())]);
    // A second thread replays the load with fewer tiers, for comparison.
    let (replayed, fewer_tiers) = std::thread::scope(|scope| {
        let compare = || {
            let answered = &mut AnsweredRequests(bar.clone());
            let without_speculation =
                compares.then(|| server.without_speculation(&mut *open()?.workload, &mut [answered])).transpose()?;
            let fewer_tiers = if compares_tiers { server.fewer_tiers(&with_tier)? } else { FewerTiers::default() };
            Ok::<_, Failure>((fewer_tiers, without_speculation))
        };
        let compared = (num_compared > 0).then(|| scope.spawn(compare));
        (server.replay(&mut sent, &mut observers), compared.map(ScopedJoinHandle::join))
    });
    bar.finish_and_clear();
    let mut replayed = replayed?;
    sent.leave_out(replayed.held.as_ref().map_or(0, |held| held.left_out));
    let start = cold
        .as_ref()
        .zip(replayed.held.take())
        .map(|(cold, held)| cold::report(cold, held, has_sessions))
        .transpose()?;
    let of = Replayed {
        bench: wanted.bench_run(&model.name, shares),
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
    let kv_metrics = watch.map(|watch| server.kv_metrics(&replayed, &sent.contents, &watch));
    files.write(collected, &of, (&replayed.replay, &replayed.metrics), kv_metrics.as_ref())?;
    let (fewer_tiers, without_speculation) = match fewer_tiers {
        None => Default::default(),
        Some(Ok(compared)) => compared?,
        Some(Err(panic)) => std::panic::resume_unwind(panic),
    };
    let mut simulation = server.report(&format!("{}: {}", load.name, load.summary), &replayed, warnings);
    simulation.warn(start.as_ref().map(StartReport::remark));
    simulation.warn(args.output.missing_prompts_note(&replayed.replay.records));
    (simulation.title, simulation.cold) = (title, start);
    simulation.kv_capacity = args.output.print_kv_capacity.then(|| engine.capacity.clone());
    simulation.add(&server, &replayed, Details { has_sessions, kv_metrics, fewer_tiers, without_speculation });
    Ok(Outcome::of(simulation))
}
