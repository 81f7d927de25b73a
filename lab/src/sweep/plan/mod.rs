//! A plan: the cheapest deployment of the servers of a grid that holds a load within its limits. `wanted` reads what is asked,
//! `screening` guesses what each server can do, `choosing` judges deployments from the cheapest on, `launch` writes how they start, and
//! `report` is the answer. It prints nothing.

mod choosing;
mod launch;
mod report;
mod screening;
mod wanted;

use std::collections::BTreeSet;

use ridgepoint::input::{Keys, Log, shown};
use ridgepoint::{Engine, Error, Hardware, Options, Result};
use ridgepoint_replay::RouterKind;
use ridgepoint_replay::workload::MAX_RATE_PER_S;
use serde_json::{Map, Value, json};

use super::grid::{Grid, GridLimits};
use super::load::Source;
use super::sweeping::{Sweep, thread_pool};

pub use report::{FrontPoint, NearestMiss, NotPlanned, PlanReport, PlannedDeployment};
pub use wanted::MOST_GPUS;

use wanted::Wanted;

/// Sizes of tensor parallelism that are tried where a plan names none.
const TENSOR_PARALLEL_SIZES: [u64; 4] = [1, 2, 4, 8];
/// Most tokens of a step that are tried where a plan names none: fewer keep gaps between tokens short, more make prompts cheap.
const MAX_NUM_BATCHED_TOKENS: [u64; 3] = [512, 2_048, 8_192];
/// Requests of a load that names no number; longer ones judge.
const NUM_REQUESTS: u64 = 1_000;

/// Servers, a load, limits, and the GPUs that there are.
///
/// ```
/// use ridgepoint::Options;
/// use ridgepoint_lab::sweep::plan::Plan;
///
/// let asked = serde_json::json!({
///     "server": { "model": "llama-3.1-8b", "hardware": "h100", "tensor_parallel_size": 1 },
///     "load": { "request_rate": 30, "input_len": 512, "output_len": 64 },
///     "slo": { "ttft_p95_ms": 500 },
///     "plan": { "gpus": 4, "price_per_gpu_hour": 2.5 },
/// });
/// let report = Plan::from_keys("the example", &asked, Options::default())?.run(2, &|_, _| {})?;
/// let best = &report.deployments[0];
/// assert_eq!((best.num_gpus, best.cost_per_hour), (best.replicas.into(), Some(2.5 * best.num_gpus as f64)));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
pub struct Plan {
    sweep: Sweep,
    wanted: Wanted,
    /// Requests (sessions) per second, or users, without growth.
    amount: f64,
    /// The numbers of replicas to choose from; `None` for any.
    counts: Option<BTreeSet<u32>>,
    routers: Vec<RouterKind>,
    max_memory_gib: f64,
}

impl Plan {
    /// Reads a plan: the keys of a grid, a rate (`load.request_rate`), users (`load.concurrency`) or a file of requests, and `[plan]`. A plan
    /// that names no size of tensor parallelism tries 1, 2, 4 and 8, and one of vLLM or SGLang alone
    /// without a limit of tokens per step 512, 2,048 and 8,192.
    ///
    /// # Errors
    /// Those of [`Grid::from_keys`] and [`Sweep::new`]; a plan without limits or with several loads; GPUs and prices out of range, or of GPUs that
    /// no server has.
    pub fn from_keys(origin: &str, value: &Value, options: Options) -> Result<Self> {
        let mut keys = value.as_object().cloned().unwrap_or_default();
        let log = Log::default();
        let own = keys.remove("plan").unwrap_or(Value::Null);
        let plan = Keys::new("plan", &own, &log);
        let mut wanted = wanted::read(&plan);
        plan.finish();
        let counts = keys.get("replicas").and_then(|replicas| replicas.get("count")).is_some();
        let users = take_amount(&mut keys, &log);
        if keys.get("slo").is_none() {
            log.problem("[slo] is missing: a plan needs a limit, as in ttft_p99_ms = 500 and itl_p99_ms = 50");
        }
        complete(&mut keys, &options.engine);
        log.finish(origin, Some(()))?;
        let limits = GridLimits { engine: options.engine.clone(), ..GridLimits::default() };
        let mut grid = Grid::from_keys(origin, &Value::Object(keys), limits)?;
        let amount = match (users, &grid.source) {
            (Some((_, amount)), _) => amount,
            (None, Source::Requests(file)) => file.list().mean_rate_per_s().ok_or_else(|| {
                Error::invalid(
                    origin,
                    vec!["load.requests sends everything at once: give request_rate, too".to_owned()],
                )
            })?,
            (None, _) => {
                let problem = "[load] has no rate: give request_rate, concurrency (users), or requests, a file of them";
                return Err(Error::invalid(origin, vec![problem.to_owned()]));
            }
        };
        if grid.loads.len() != 1 {
            let problem = format!("[load] makes {} loads: a plan is for one", grid.loads.len());
            return Err(Error::invalid(origin, vec![problem]));
        }
        if let Some((true, users)) = users {
            for load in &mut grid.loads {
                load.value = load.value.of_users(users);
            }
        }
        let counts = counts.then(|| grid.replicas.iter().map(|of| of.value.count).collect());
        let mut routers: Vec<RouterKind> = Vec::new();
        for of in &grid.replicas {
            if !routers.contains(&of.value.router) {
                routers.push(of.value.router);
            }
        }
        let data_dir = options.data_dir.clone();
        let sweep = Sweep::new(grid, options)?;
        let known: BTreeSet<String> = sweep.hardware.values().map(|gpu| gpu.name.clone()).collect();
        let mut problems = Vec::new();
        let mut name_of = |name: &str| {
            let found = Hardware::find_in(data_dir.as_deref(), name).map(|gpu| gpu.name);
            match found {
                Ok(gpu) if known.contains(&gpu) => Some(gpu),
                Ok(gpu) => {
                    problems.push(format!(
                        "[plan] names {gpu}, which server.hardware does not have: add it there, or leave it out"
                    ));
                    None
                }
                Err(error) => {
                    problems.push(format!("[plan] {error}"));
                    None
                }
            }
        };
        wanted.gpus = wanted.gpus.named(&mut name_of);
        wanted.price_per_gpu_hour = wanted.price_per_gpu_hour.map(|of| of.named(&mut name_of));
        let lacks_price = |gpu: &&String| wanted.price_per_gpu_hour.as_ref().is_some_and(|of| of.of(gpu).is_none());
        if let (Some(gpu), true) = (known.iter().find(lacks_price), problems.is_empty()) {
            problems.push(format!("plan.price_per_gpu_hour has no price of {gpu}: add one, or leave all out"));
        }
        ridgepoint::input::check(origin, problems)?;
        Ok(Plan { sweep, wanted, amount, counts, routers, max_memory_gib: f64::INFINITY })
    }

    /// The same plan, which leaves out deployments whose replays may take more memory at once.
    #[must_use]
    pub fn within_memory(self, max_memory_gib: f64) -> Self {
        Plan { max_memory_gib, ..self }
    }

    /// Whether pools that prefill and decode apart are among the answers.
    pub fn has_pools(&self) -> bool {
        self.wanted.apart
    }

    /// The load that must hold, growth included.
    fn target(&self) -> f64 {
        self.amount * (1.0 + self.wanted.growth)
    }

    /// The number of servers that are screened.
    pub fn num_servers(&self) -> usize {
        self.sweep.grid.servers.len()
    }

    /// Answers the plan. `threads` of 0 is one per core. `progress` gets the servers that were screened and the deployments that were
    /// judged so far.
    ///
    /// # Errors
    /// Threads that cannot be started.
    pub fn run(&self, threads: usize, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<PlanReport> {
        let pool = thread_pool(threads, "threads of the plan")?;
        Ok(pool.install(|| choosing::answer(self, progress)))
    }
}

/// Takes the rate or the users out of the load, whose limits a grid would search a rate for: whether they are users, and how many.
fn take_amount(keys: &mut Map<String, Value>, log: &Log) -> Option<(bool, f64)> {
    let load = keys.get_mut("load")?.as_object_mut()?;
    let mut found = None;
    for (key, is_users) in [("request_rate", false), ("request_rate_per_s", false), ("concurrency", true)] {
        let Some(value) = load.remove(key) else { continue };
        let amount = value.as_f64().filter(|amount| *amount > 0.0 && *amount <= MAX_RATE_PER_S);
        match amount {
            None => log.problem(format!(
                "load.{key} = {} must be one number above 0 and at most {MAX_RATE_PER_S}",
                shown(&value)
            )),
            Some(_) if found.is_some() => log.problem("[load] has several of request_rate and concurrency: give one"),
            Some(amount) => found = Some((is_users, amount)),
        }
    }
    found
}

/// Puts in what a plan need not say.
fn complete(keys: &mut Map<String, Value>, engine: &Engine) {
    if let Some(server) = keys.get_mut("server").and_then(Value::as_object_mut) {
        let rows = ridgepoint_replay::server_config::server_arguments();
        let named = match server.get("engine") {
            None => vec![engine.name().to_owned()],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            Some(one) => one.as_str().map(str::to_owned).into_iter().collect(),
        };
        let all_are = |engine: &str| named.iter().all(|name| name.starts_with(engine));
        // Engines call the limit otherwise; TensorRT-LLM refuses longer prompts.
        let tokens = match (all_are("vllm"), all_are("sglang")) {
            (true, _) => Some("max_num_batched_tokens"),
            (_, true) => Some("chunked_prefill_size"),
            _ => None,
        };
        let defaults =
            [(Some("tensor_parallel_size"), json!(TENSOR_PARALLEL_SIZES)), (tokens, json!(MAX_NUM_BATCHED_TOKENS))];
        let defaults = defaults.into_iter().filter_map(|(field, values)| Some((field?, values)));
        for (field, values) in defaults {
            let sets = |key: &String| {
                let name = rows.name_of(key);
                key == field || rows.iter().any(|row| Some(row.name) == name && row.sets == field)
            };
            if !server.keys().any(sets) {
                server.insert(field.to_owned(), values);
            }
        }
    }
    if let Some(load) = keys.get_mut("load").and_then(Value::as_object_mut) {
        let has_number =
            ["requests", "profile", "num_requests", "num_sessions"].iter().any(|key| load.contains_key(*key));
        if !has_number {
            let key = if load.contains_key("turns") { "num_sessions" } else { "num_requests" };
            load.insert(key.to_owned(), NUM_REQUESTS.into());
        }
    }
}
