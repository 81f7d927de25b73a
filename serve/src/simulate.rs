//! `POST /v1/simulate`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use hyper::{Request, StatusCode};
use ridgepoint::input::{Keys, Log, NumberRange};
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint::{Deployment, Error, Hardware, Model};
use ridgepoint_replay::server_config::ServedEngine;
use ridgepoint_replay::workload::profile::Profile;
use ridgepoint_replay::workload::requests::{Format, RequestFile};
use ridgepoint_replay::workload::{
    KeptContents, Load, MAX_DURATION_S, MAX_RATE_PER_S, MAX_REQUESTS, MAX_TOKENS, OpenedLoad, Stoppable,
    check_block_memory, check_memory,
};
use ridgepoint_replay::{KvWatch, Observer};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::{App, RequestLimits};
use crate::body::{ORIGIN, taken};
use crate::jobs::Stop;
use crate::problem::Problem;
use crate::series::{Series, Timeline};
use crate::server_keys::{ServerKeys, text_bytes};
use crate::{answer, body};
use ridgepoint_lab::served::{Served, served};
use ridgepoint_lab::simulate::{Details, FewerTiers, GeneratedLoad, NOISE, Noise, ROUNDS, Server, Simulation};

/// Keys of the route beside those of the server. The other names are those that the command's flags have.
pub const KEYS: [&str; 21] = [
    "request_rate",
    "concurrency",
    "requests",
    "profile",
    "num_requests",
    "input_len",
    "output_len",
    "burstiness",
    "turns",
    "num_sessions",
    "prefix_len",
    "think_time_s",
    "seed",
    "noise",
    "series",
    "kv_metrics",
    "max_concurrency",
    "random_input_len",
    "random_output_len",
    "random_prefix_len",
    "num_prompts",
];

/// Keys that only a load without a list or profile has.
const GENERATED: [&str; 8] =
    ["num_requests", "input_len", "output_len", "burstiness", "turns", "num_sessions", "prefix_len", "think_time_s"];

const ALIASES: &[(&str, &str)] = &[
    ("max_concurrency", "concurrency"),
    ("random_input_len", "input_len"),
    ("random_output_len", "output_len"),
    ("random_prefix_len", "prefix_len"),
    ("num_prompts", "num_requests"),
];

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

/// A simulation, with series where they were asked for.
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
    let own = taken(&mut map, &KEYS);
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
    let found = keys.find(data_dir, &KEYS)?;
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
    check_block_memory(&load.summary, &of.engine.config, at_once, max_memory_gib)?;
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
    };
    let mut timeline = wanted.series.then(|| Timeline::new(of.engine.config.usable_blocks()));
    let mut watch = wanted.kv_metrics.then(KvWatch::default);
    let mut observers: Vec<&mut dyn Observer> = Vec::new();
    observers.extend(timeline.as_mut().map(|timeline| timeline as &mut dyn Observer));
    observers.extend(watch.as_mut().map(|watch| watch as &mut dyn Observer));
    let has_sessions = load.summary.sessions.is_some();
    let mut stoppable = Stoppable::new(&mut *load.workload, stop);
    let mut sent = KeptContents::of(&mut stoppable, wanted.kv_metrics);
    let replayed = unless_stopped(stop, server.replay(&mut sent, &mut observers))?;
    let fewer_tiers = server.fewer_tiers(|tier| {
        let mut load = wanted.open(of.deployment.data_parallel_size, &fits)?;
        unless_stopped(stop, server.with_tier(tier, &mut Stoppable::new(&mut *load.workload, stop), &mut []))
    })?;
    let series = timeline.map(|timeline| Series::new(&replayed.replay, timeline));
    let mut simulation = server.report(&format!("{}: {}", load.name, load.summary), &replayed, warnings);
    let kv_metrics = watch.map(|watch| server.kv_metrics(&replayed, &sent.contents, &watch));
    simulation.add(&server, &replayed, Details { has_sessions, kv_metrics, fewer_tiers });
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
    Requests(Vec<u8>),
    Profile(String),
}

impl SimulateRequest {
    fn read(own: &Map<String, Value>) -> Result<Self, Problem> {
        let log = Log::default();
        let keys = Keys::of_map("", own, &log).with_aliases(ALIASES);
        let given: Vec<&str> =
            ["request_rate", "concurrency", "requests", "profile"].into_iter().filter(|key| keys.has(key)).collect();
        let load = match given.as_slice() {
            ["request_rate"] | ["concurrency"] => generated(&keys).map(RequestedLoad::Generated),
            [file] => {
                for key in GENERATED {
                    keys.refuse(key, format_args!("has no place beside {file}, which has its own"));
                }
                described(&keys, file)
            }
            _ => {
                let found = if given.is_empty() { "no load".to_owned() } else { given.join(" and ") };
                log.problem(format!("{found}: give one of request_rate, concurrency, requests and profile"));
                keys.ignore(&GENERATED);
                None
            }
        };
        let seed = keys.whole("seed", 0..=u64::MAX).unwrap_or(0);
        let noise = keys.read("noise", NOISE, |value| match value {
            Value::String(text) => Noise::parse(text),
            number => number.as_f64().and_then(|_| Noise::parse(&number.to_string())),
        });
        let [series, kv_metrics] = ["series", "kv_metrics"].map(|key| keys.flag(key).unwrap_or(false));
        keys.finish();
        let (load, _) = log.finish(ORIGIN, load)?;
        Ok(SimulateRequest { load, seed, noise, series, kv_metrics })
    }

    fn open(&self, replicas: u32, fits: &dyn Fn(u64) -> ridgepoint::Result<()>) -> ridgepoint::Result<OpenedLoad> {
        match &self.load {
            RequestedLoad::Generated(load) => load.open_if(self.seed, replicas, fits),
            RequestedLoad::Requests(lines) => {
                OpenedLoad::of_requests(RequestFile::parse("requests", lines, Some(Format::Jsonl))?, replicas, fits)
            }
            RequestedLoad::Profile(text) => {
                OpenedLoad::of_profile(Profile::parse("profile", text)?, self.seed, replicas, fits)
            }
        }
    }
}

/// Requests of equal lengths or sessions of equal turns, at random times or as others finish.
fn generated(keys: &Keys<'_>) -> Option<Load> {
    let request_rate = keys.number("request_rate", NumberRange::above_zero(MAX_RATE_PER_S, "requests per second"));
    let most = |requests: u64| u32::try_from(requests).unwrap_or(u32::MAX);
    let concurrency = keys.whole("concurrency", 1..=most(MAX_REQUESTS / ROUNDS));
    let number = |key| keys.whole(key, 1..=most(MAX_REQUESTS));
    let [num_requests, num_sessions] = ["num_requests", "num_sessions"].map(number);
    let burstiness = keys.number("burstiness", NumberRange::above_zero(1000.0, "1 is Poisson"));
    let turns = keys.whole("turns", 1..=u32::MAX);
    let prefix_len = keys.whole("prefix_len", 0..=MAX_TOKENS);
    let think_time_s = keys.number("think_time_s", NumberRange::from_zero(MAX_DURATION_S, "s"));
    keys.require(&["input_len", "output_len"]);
    let [input_len, output_len] = ["input_len", "output_len"].map(|key| keys.whole(key, 1..=MAX_TOKENS));
    if keys.has("concurrency") {
        keys.refuse("burstiness", "has no place beside concurrency, which sends a request when another one finishes");
    }
    match keys.has("turns") {
        true => keys.refuse("num_requests", "has no place beside turns: give num_sessions"),
        false => {
            for key in ["num_sessions", "think_time_s"] {
                keys.refuse(key, "is of sessions: give turns");
            }
        }
    }
    if keys.has("request_rate") {
        keys.require(if keys.has("turns") { &["num_sessions"] } else { &["num_requests"] });
    }
    let (input_len, output_len) = (Some(input_len?), Some(output_len?));
    let lengths = GeneratedLoad { input_len, output_len, prefix_len, turns, think_time_s, ..Default::default() };
    Some(GeneratedLoad { request_rate, concurrency, num_requests, burstiness, num_sessions, ..lengths }.load())
}

/// The text of a file that a body holds as JSON.
fn described(keys: &Keys<'_>, key: &str) -> Option<RequestedLoad> {
    if key == "profile" {
        let text = |value: &Value| value.is_object().then(|| value.to_string());
        return keys.read(key, "an object as in a profile of inference-perf", text).map(RequestedLoad::Profile);
    }
    let shape = r#"a list of requests, as in [{"arrival_ms": 0, "input_len": 800, "output_len": 250}]"#;
    let list = keys.read(key, shape, |value| value.as_array().filter(|list| list.iter().all(Value::is_object)))?;
    let lines: Vec<String> = list.iter().map(Value::to_string).collect();
    Some(RequestedLoad::Requests(lines.join("\n").into_bytes()))
}
