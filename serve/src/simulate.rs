//! `POST /v1/simulate`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use hyper::{Request, StatusCode};
use ridgepoint::arguments::{Argument, ArgumentRows, Engines, Kind, Section};
use ridgepoint::input::{Keys, Log};
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::{Deployment, Error, Hardware, Model};
use ridgepoint_replay::server_config::ServedEngine;
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::requests::{Format, RequestFile};
use ridgepoint_replay::workload::{
    GeneratedLoad, Load, OpenedLoad, RecordedContents, Stoppable, check_block_memory, check_memory, load_arguments,
};
use ridgepoint_replay::{KvWatch, Observer};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::{App, RequestLimits};
use crate::body::ORIGIN;
use crate::jobs::Stop;
use crate::problem::Problem;
use crate::series::{Series, Timeline};
use crate::server_keys::{ServerKeys, text_bytes};
use crate::{answer, body};
use ridgepoint_lab::served::{Served, served};
use ridgepoint_lab::simulate::{Details, FewerTiers, NOISE, Noise, Server, Simulation};

/// How a load is replayed, beyond what the command's flags of a load say.
static REPLAY_ARGUMENTS: &[Argument] = &[
    Argument::new(
        "noise",
        Section::Prediction,
        "Standard deviation of the logarithm of a random factor on each step's time, or that of the correction",
        Kind::Own(noise),
    )
    .must_be(NOISE)
    .engines(Engines::ALL),
    Argument::new("series", Section::Load, "Add quantiles of latencies and the queue over time", Kind::Switch)
        .engines(Engines::ALL),
    Argument::new(
        "kv_metrics",
        Section::Load,
        "Add KV metrics: lives of blocks, hits by tier and prefix group, and the price of hashing and looking up",
        Kind::Switch,
    )
    .engines(Engines::ALL),
];

/// The arguments of the route beyond those of the server. No file is read here, so that a list of requests has one format.
pub fn arguments() -> ArgumentRows {
    load_arguments().without_rows(&["requests_format"]).with(REPLAY_ARGUMENTS)
}

fn noise(value: &Value) -> Option<Value> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Noise::parse(&text).map(|_| text.into())
}

/// Bytes of a step model with its lookup tables, which end at sizes of their own: 2 to 4 MiB were seen.
const TABLES_BYTES: usize = 4 << 20;

/// A server whose loads can be replayed at once.
pub struct Replayable {
    model: Model,
    hardware: Hardware,
    deployment: Deployment,
    engine: ServedEngine,
    latency: CalibratedRoofline,
    notes: Vec<String>,
}

/// A simulation, with series where requested.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SimulationAnswer {
    #[serde(flatten)]
    simulation: Simulation,
    /// Quantiles of latencies, and the queue over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series>,
}

/// Replays a load.
pub async fn simulate(
    State(app): State<Arc<App>>,
    limits: RequestLimits,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let body::Json { mut map, reservation, .. } = body::json(&app, limits, request).await?;
    let own = arguments().taken(&mut map);
    let server = Arc::new(ServerKeys::new(map));
    let build = || {
        let (server, data_dir) = (Arc::clone(&server), app.data_dir.clone());
        app.run(limits, move |_| replayable(&server, data_dir.as_deref()))
    };
    let replayable = app.replayables.get_or_build(&server.canonical(), build).await?;
    drop(server);
    // A load on a host's tier is replayed with fewer tiers too, and its records are kept until all are compared.
    let replays = 1 + FewerTiers::number(&replayable.engine.config);
    let (max_memory_gib, at_once) = (app.max_memory_gib, replays * app.jobs.num_threads());
    let memory = (at_once, max_memory_gib);
    let work = move |stop: &Stop| {
        let answer = replayed(&replayable, &own, memory, stop);
        drop(reservation);
        answer
    };
    app.run(limits, work).await
}

fn replayable(keys: &ServerKeys, data_dir: Option<&Path>) -> Result<(Replayable, usize), Problem> {
    let found = keys.find(data_dir, &arguments().modelled_names())?;
    let mut notes = found.notes;
    let (Served { model, hardware, deployment, steps }, engine) =
        served(found.server, found.model, found.hardware, &found.options, &mut notes)?;
    let latency = engine.latency(steps)?;
    let bytes = TABLES_BYTES + text_bytes(&notes);
    Ok((Replayable { model, hardware, deployment, engine, latency, notes }, bytes))
}

fn replayed(
    of: &Replayable,
    own: &Map<String, Value>,
    (at_once, max_memory_gib): (usize, f64),
    stop: &Stop,
) -> Result<Response, Problem> {
    let fits = |num_requests| check_memory(num_requests, at_once, max_memory_gib);
    let wanted = SimulateRequest::read(own)?;
    let mut load = wanted.open(of.deployment.data_parallel_size, &fits)?;
    check_block_memory(&load.summary, (&of.engine.config, 1), at_once, max_memory_gib)?;
    let mut warnings = of.notes.clone();
    warnings.append(&mut load.notes);
    let correction = of.latency.steps().correction();
    let spread = |noise: Noise| {
        let problem =
            "noise = correction takes its spread from a correction, and this prediction has none: give a number";
        noise.sigma(correction).ok_or_else(|| Error::invalid(ORIGIN, vec![problem.to_owned()]))
    };
    let server = Server {
        model: &of.model,
        hardware: &of.hardware,
        deployment: &of.deployment,
        engine: &of.engine,
        latency: &of.latency,
        fitted: None,
        noise_sigma: wanted.noise.map(spread).transpose()?,
        seed: wanted.seed,
        cold: None,
        replicas: None,
        pools: None,
    };
    let mut timeline = wanted.series.then(|| Timeline::new(of.engine.config.usable_blocks()));
    let mut watch = wanted.kv_metrics.then(KvWatch::default);
    let mut observers: Vec<&mut dyn Observer> = Vec::new();
    observers.extend(timeline.as_mut().map(|timeline| timeline as &mut dyn Observer));
    observers.extend(watch.as_mut().map(|watch| watch as &mut dyn Observer));
    let has_sessions = load.summary.sessions.is_some();
    let mut stoppable = Stoppable::new(&mut *load.workload, stop);
    let mut sent = RecordedContents::of(&mut stoppable, wanted.kv_metrics);
    let replayed = unless_stopped(stop, server.replay(&mut sent, &mut observers))?;
    let fewer_tiers = server.fewer_tiers(|tier| {
        let mut load = wanted.open(of.deployment.data_parallel_size, &fits)?;
        unless_stopped(stop, server.with_tier(tier, &mut Stoppable::new(&mut *load.workload, stop), &mut []))
    })?;
    let series = timeline.map(|timeline| Series::new(&replayed.replay, timeline));
    let mut simulation = server.report(&format!("{}: {}", load.name, load.summary), &replayed, warnings);
    let kv_metrics = watch.map(|watch| server.kv_metrics(&replayed, &sent.contents, &watch));
    simulation.add(&server, &replayed, Details { has_sessions, kv_metrics, fewer_tiers, without_speculation: None });
    Ok(answer::json(StatusCode::OK, &SimulationAnswer { simulation, series }))
}

/// The result of a replay that ran to its end.
fn unless_stopped<T>(stop: &Stop, replayed: ridgepoint::Result<T>) -> Result<T, Problem> {
    if stop.load(Ordering::Relaxed) {
        return Err(Problem::busy("the replay was stopped"));
    }
    Ok(replayed?)
}

/// The load of a body, and how it is replayed.
struct SimulateRequest {
    load: RequestedLoad,
    seed: u64,
    noise: Option<Noise>,
    series: bool,
    kv_metrics: bool,
}

enum RequestedLoad {
    Generated(Load),
    Requests(Vec<u8>, GeneratedLoad),
    Profile(String),
}

impl SimulateRequest {
    fn read(own: &Map<String, Value>) -> Result<Self, Problem> {
        let log = Log::default();
        let given = arguments().read("", own, &log);
        let keys = given.keys(&log);
        let sources: Vec<&str> =
            ["request_rate", "concurrency", "requests", "profile"].into_iter().filter(|key| keys.has(key)).collect();
        let generated = GeneratedLoad::from_given(&given);
        let load = match sources.as_slice() {
            ["request_rate"] | ["concurrency"] => Some(RequestedLoad::Generated(Load::Generated(generated))),
            [file] | ["request_rate" | "concurrency", file @ "requests"] => described(&keys, file, generated),
            _ => {
                let found = if sources.is_empty() { "no load".to_owned() } else { sources.join(" and ") };
                log.problem(format!("{found}: give one of request_rate, concurrency, requests and profile"));
                None
            }
        };
        drop(keys);
        let (load, _) = log.finish(ORIGIN, load)?;
        Ok(SimulateRequest {
            load,
            seed: given.get("seed").unwrap_or(0),
            noise: given.get::<String>("noise").and_then(|text| Noise::parse(&text)),
            series: given.get("series").unwrap_or(false),
            kv_metrics: given.get("kv_metrics").unwrap_or(false),
        })
    }

    fn open(&self, replicas: u32, fits: &dyn Fn(u64) -> ridgepoint::Result<()>) -> ridgepoint::Result<OpenedLoad> {
        match &self.load {
            RequestedLoad::Generated(load) => load.open_if(self.seed, replicas, fits),
            RequestedLoad::Requests(lines, sent) => {
                let file = RequestFile::parse("requests", lines, Some(Format::Jsonl))?;
                OpenedLoad::of_requests(file, sent, self.seed, replicas, fits)
            }
            RequestedLoad::Profile(text) => {
                OpenedLoad::of_profile(Profile::parse("profile", text)?, self.seed, replicas, fits)
            }
        }
    }
}

/// The text of a file that a body holds as JSON.
fn described(keys: &Keys<'_>, key: &str, sent: GeneratedLoad) -> Option<RequestedLoad> {
    if key == "profile" {
        let text = |value: &Value| value.is_object().then(|| value.to_string());
        return keys.read(key, "an object as in a profile of inference-perf", text).map(RequestedLoad::Profile);
    }
    let shape = r#"a list of requests, as in [{"arrival_ms": 0, "input_len": 800, "output_len": 250}]"#;
    let list = keys.read(key, shape, |value| value.as_array().filter(|list| list.iter().all(Value::is_object)))?;
    let lines: Vec<String> = list.iter().map(Value::to_string).collect();
    Some(RequestedLoad::Requests(lines.join("\n").into_bytes(), sent))
}
