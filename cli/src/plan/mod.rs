//! `ridgepoint plan`: the cheapest deployment that holds a load within its limits, and how it starts. `manifests` writes it for Kubernetes,
//! `table` lays the answer out.

mod manifests;
mod table;

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::Args;
use ridgepoint::arguments::Argument;
use ridgepoint::input::{FileKind, parse_toml, read_text};
use ridgepoint_lab::sweep::plan::{Plan, PlanReport};
use ridgepoint_replay::workload::load_arguments;
use serde_json::{Map, Value};

use crate::common::{Common, MemoryArg, PredictionArgs};
use crate::flags::{FlagRows, Flags};
use crate::outcome::{Failure, Outcome};
use crate::output::{Force, Outputs};
use crate::progress;

const PLAN: &str = "Plan";
const OUTPUT: &str = "Output";

/// The arguments of a load, which need not be complete: a file may have the rest, and a plan judges by loads of its own length.
#[derive(Debug, Clone)]
pub struct OfPlannedLoad;

static LOAD: LazyLock<Vec<Argument>> =
    LazyLock::new(|| load_arguments().iter().map(|row| Argument { needs: &[], ..*row }).collect());

impl FlagRows for OfPlannedLoad {
    fn rows() -> Vec<&'static Argument> {
        LOAD.iter().collect()
    }
}

/// The arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// What is asked, TOML: a grid's [server], [replicas], [load] and [slo], with [plan]; docs/plan.md has the keys. Flags go over it
    #[arg(value_name = "PLAN.toml")]
    file: Option<PathBuf>,
    /// Models to choose from, built-in names, Hugging Face ids or paths, separated by commas
    #[arg(long, value_name = "NAMES", help_heading = PLAN)]
    model: Option<String>,
    /// GPUs to choose from, separated by commas
    #[arg(long, value_name = "NAMES", help_heading = PLAN)]
    hardware: Option<String>,
    /// Any other key of [server] with the values to choose from, as in tensor_parallel_size=2,4 or engine=vllm,sglang
    #[arg(long, value_name = "KEY=VALUES", help_heading = PLAN)]
    server: Vec<String>,
    /// GPUs available, as in 4, or h200=4,h100=8 [default: 1024]
    #[arg(long, value_name = "N", help_heading = PLAN)]
    gpus: Option<String>,
    /// Price of a GPU for an hour, as in 3.5, or h200=3.5,h100=2; without it fewer GPUs are better
    #[arg(long, value_name = "PRICE", help_heading = PLAN, allow_negative_numbers = true)]
    price_per_gpu_hour: Option<String>,
    /// Headroom: the deployment also holds a load that is larger by this share, as in 0.3
    #[arg(long, value_name = "SHARE", help_heading = PLAN, allow_negative_numbers = true)]
    growth: Option<String>,
    /// A limit, as in ttft_p99_ms=500: any of ttft, tpot, itl, e2e with mean, p50, p90, p95, p99; or confidence=0.9
    #[arg(long, value_name = "KEY=MS", help_heading = PLAN)]
    limit: Vec<String>,
    /// Numbers of replicas to choose from, as in 2 or 1,2,4 [default: any]
    #[arg(long, value_name = "N", help_heading = PLAN)]
    replicas: Option<String>,
    /// Routers to choose from, as in least-requests,dynamo [default: round-robin]
    #[arg(long, value_name = "RULES", help_heading = PLAN)]
    router: Option<String>,
    /// Whether replicas compute their own prompts (together) or pools of them prefill and decode apart: together, apart, or together,apart
    /// [default: together]
    #[arg(long, value_name = "KINDS", help_heading = PLAN)]
    pools: Option<String>,
    /// Deployments to list [default: 3]
    #[arg(long, value_name = "N", help_heading = PLAN)]
    top: Option<String>,
    /// Write the best deployment into this folder: deployment.yaml for Kubernetes, serve.sh, and under vLLM llm-d-values.yaml for llm-d's chart
    #[arg(long, value_name = "FOLDER", help_heading = OUTPUT)]
    write: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Deployments and seeds at once; 0 is one per core
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, help_heading = OUTPUT)]
    #[arg(value_parser = clap::value_parser!(u16).range(..=1024))]
    threads: u16,
    #[command(flatten)]
    load: Flags<OfPlannedLoad>,
    #[command(flatten)]
    memory: MemoryArg,
    #[command(flatten)]
    prediction: PredictionArgs,
}

impl PlanArgs {
    /// What is asked, with the flags over the file.
    fn keys(&self) -> Result<(String, Value), Failure> {
        let (origin, mut asked) = match &self.file {
            None => ("the command line".to_owned(), Map::new()),
            Some(path) => {
                let origin = path.display().to_string();
                let value = parse_toml(&origin, &read_text(FileKind::Grid, path)?)?;
                (origin, value.as_object().cloned().unwrap_or_default())
            }
        };
        let mut put = |section: &str, key: &str, value: Value| {
            let entry = asked.entry(section).or_insert_with(|| Value::Object(Map::new()));
            if let Some(section) = entry.as_object_mut() {
                section.insert(key.to_owned(), value);
            }
        };
        for (key, text) in [("model", &self.model), ("hardware", &self.hardware)] {
            text.iter().for_each(|text| put("server", key, listed(text)));
        }
        for pair in &self.server {
            let (key, text) = pair_of("--server", pair)?;
            put("server", key, listed(text));
        }
        for pair in &self.limit {
            let (key, text) = pair_of("--limit", pair)?;
            put("slo", key, scalar(text));
        }
        for (key, text) in [("count", &self.replicas), ("router", &self.router)] {
            text.iter().for_each(|text| put("replicas", key, listed(text)));
        }
        for (key, text) in [("gpus", &self.gpus), ("price_per_gpu_hour", &self.price_per_gpu_hour)] {
            if let Some(text) = text {
                put("plan", key, per_gpu(&format!("--{}", key.replace('_', "-")), text)?);
            }
        }
        for (key, text) in [("growth", &self.growth), ("top", &self.top), ("pools", &self.pools)] {
            text.iter().for_each(|text| put("plan", key, listed(text)));
        }
        for (key, value) in &self.load.given {
            let value = value.as_str().map_or_else(|| value.clone(), scalar);
            put("load", key, value);
        }
        Ok((origin, Value::Object(asked)))
    }
}

/// Answers a plan.
///
/// # Errors
/// Plans and files that cannot be read or are at fault; files that cannot be written.
pub fn run(args: &PlanArgs, common: &Common) -> Result<Outcome<PlanReport>, Failure> {
    let (origin, asked) = args.keys()?;
    let plan =
        Plan::from_keys(&origin, &asked, args.prediction.options(common)?)?.within_memory(args.memory.max_memory_gib);
    if args.write.is_some() && plan.has_pools() {
        return Err(Failure::usage(
            "--write knows no files of pools that prefill and decode apart: leave it out, or give --pools together",
        ));
    }
    let mut outputs = Outputs::new(common, args.force);
    let bar = progress::bar(plan.num_servers() as u64, "plan [{bar:30}] {pos}/{len} servers screened, {msg}{elapsed}");
    let report = plan.run(usize::from(args.threads), &|screened, judged| {
        bar.set_position(bar.position().max(screened as u64));
        if judged > 0 {
            bar.set_message(format!("{judged} deployments judged, "));
        }
    })?;
    bar.finish_and_clear();
    if let (Some(folder), Some(best)) = (&args.write, report.deployments.first()) {
        outputs.write_all(manifests::files(best, folder))?;
    }
    let failed = report.deployments.is_empty().then(|| "no deployment holds".to_owned());
    Ok(Outcome { notes: failed.into_iter().collect(), ..Outcome::of(report) })
}

fn pair_of<'a>(flag: &str, pair: &'a str) -> Result<(&'a str, &'a str), Failure> {
    let found = pair.split_once('=').filter(|(key, value)| !key.trim().is_empty() && !value.trim().is_empty());
    found.ok_or_else(|| Failure::usage(format!("{flag} {pair} must be a key and its value, as in {flag} KEY=VALUE")))
}

/// A number, true, false or a text.
fn scalar(text: &str) -> Value {
    let text = text.trim();
    serde_json::from_str(text)
        .ok()
        .filter(|value: &Value| value.is_number() || value.is_boolean())
        .unwrap_or_else(|| text.into())
}

/// One value, or the values of a list.
fn listed(text: &str) -> Value {
    match text.contains(',') {
        true => text.split(',').map(scalar).collect(),
        false => scalar(text),
    }
}

/// One number, or one for each GPU.
fn per_gpu(flag: &str, text: &str) -> Result<Value, Failure> {
    if !text.contains('=') {
        return Ok(scalar(text));
    }
    let pairs =
        text.split(',').map(|pair| pair_of(flag, pair).map(|(gpu, value)| (gpu.trim().to_owned(), scalar(value))));
    Ok(Value::Object(pairs.collect::<Result<_, _>>()?))
}
