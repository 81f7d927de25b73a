//! Reads the text of a server's file into a checked [`ServerConfig`]; one error lists all problems.

use std::collections::BTreeMap;

use ridgepoint::dtype::MatmulFormat;
use ridgepoint::input::{Keys, Log, contradiction, shown};
use ridgepoint::{Deployment, Error, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{KvOffloading, KvTransfersSource, SchedulerOptions, ServerConfig};
use crate::SchedulingPolicy;
use crate::input::parse_yaml;

/// Other names of arguments in published experiments, as pairs of alias and argument.
const ALIASES: &[(&str, &str)] = &[
    ("tensor_parallelism", "tensor_parallel_size"),
    ("pipeline_parallelism", "pipeline_parallel_size"),
    ("data_parallelism", "data_parallel_size"),
    ("total_kv_blocks", "num_gpu_blocks_override"),
];

/// Arguments without influence on a replay.
const IGNORED: [&str; 14] = [
    "served_model_name",
    "host",
    "port",
    "api_key",
    "seed",
    "tokenizer",
    "tokenizer_mode",
    "revision",
    "trust_remote_code",
    "download_dir",
    "load_format",
    "disable_log_stats",
    "disable_log_requests",
    "enable_log_requests",
];

/// Arguments of vLLM that users try, and why they cannot be given.
pub const NOT_MODELLED: [(&str, &str); 14] = [
    ("decode_context_parallel_size", CONTEXT_PARALLEL),
    ("prefill_context_parallel_size", CONTEXT_PARALLEL),
    ("enable_dbo", "is not modelled: batches are not halved to overlap"),
    ("enable_eplb", "is not modelled: experts stay on their ranks"),
    ("enable_lora", LORA),
    ("lora_modules", LORA),
    ("max_loras", LORA),
    ("max_lora_rank", LORA),
    ("nnodes", "is not asked for: GPUs beyond those of a link are reached over the network of the hardware file"),
    ("num_speculative_tokens", SPECULATION),
    ("quantization", "is read from the checkpoint: name a quantised one, or give precision"),
    (
        "replicas",
        "is not modelled: there is no router over servers; data_parallel_size replays one of several replicas",
    ),
    ("speculative_config", SPECULATION),
    ("speculative_model", SPECULATION),
];
const CONTEXT_PARALLEL: &str = "is not modelled: ranks do not share a context";
const LORA: &str = "is not modelled: there are no LoRA adapters";
const SPECULATION: &str = "is not modelled: there is no speculative decoding";

/// Names of the number formats of `precision`, for messages.
const PRECISIONS: &str = "bf16 (bfloat16, fp16, float16, half), fp8 (fp8_block), int8 (w8a8), int8_wo (w8a16), \
                          int4 (int4_wo, w4a16, awq, gptq), fp4 (nvfp4) or mxfp4";

/// Arguments with a `no_` form.
const SWITCHES: [&str; 7] = [
    "enable_expert_parallel",
    "enforce_eager",
    "disable_custom_all_reduce",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "async_scheduling",
    "scheduler_reserve_full_isl",
];

/// Keys of vLLM's `compilation_config` that are arguments of their own here.
const OF_COMPILATION: [&str; 3] = ["cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"];

pub(super) fn parse(origin: &str, text: &str, over: &Map<String, Value>) -> Result<ServerConfig> {
    match parse_yaml(origin, text)? {
        Value::Object(map) => from_map(origin, &map, over),
        Value::Null => Err(Error::parse(origin, "is empty: a server has at least `model` and `hardware`")),
        _ => Err(Error::parse(origin, "must be keys with values, as in `model: llama-3.1-8b`")),
    }
}

/// Reads the arguments of `map`, with those of `over` instead of the same ones.
pub(super) fn from_map(origin: &str, map: &Map<String, Value>, over: &Map<String, Value>) -> Result<ServerConfig> {
    let log = Log::default();
    let (mut map, over) = (with_plain_names(map, &log), with_plain_names(over, &log));
    let names = ALIASES.iter().chain(&[("cpu_offload", "cpu_offload_gb"), ("precision", "model")]);
    for (name, _) in names.filter(|(_, argument)| over.contains_key(*argument)) {
        map.remove(*name);
    }
    map.extend(over);
    let keys = Keys::of_map("", &map, &log).with_aliases(ALIASES);
    let server = read(origin, &keys);
    keys.finish();
    let (mut server, notes) = log.finish(origin, server)?;
    server.notes = notes;
    Ok(server)
}

/// Spells keys as vLLM's arguments: `--max-num-seqs` becomes `max_num_seqs`, and `no_enforce_eager: true` becomes
/// `enforce_eager: false`. Arguments without influence are left out.
fn with_plain_names(map: &Map<String, Value>, log: &Log) -> Map<String, Value> {
    let mut plain: Map<String, Value> = Map::new();
    let mut spelled: BTreeMap<String, (&str, &Value)> = BTreeMap::new();
    let is_compilation =
        |(key, value): &(&String, &Value)| value.is_object() && plain_name(key) == "compilation_config";
    let (nested, others): (Vec<_>, Vec<_>) = map.iter().partition(is_compilation);
    let nested = nested.into_iter().filter_map(|(_, value)| value.as_object()).flatten();
    let (arguments, others_nested): (Vec<_>, Vec<_>) =
        nested.partition(|(key, _)| OF_COMPILATION.contains(&key.as_str()));
    for (key, _) in others_nested {
        log.note(format!("compilation_config.{key} has no influence here"));
    }
    for (key, original) in others.into_iter().chain(arguments).filter(|(_, value)| !value.is_null()) {
        let name = plain_name(key);
        let switch = name.strip_prefix("no_").filter(|name| SWITCHES.contains(name));
        let (name, value) = match (switch, original) {
            (Some(switch), Value::Bool(on)) => (switch.to_owned(), Value::Bool(!on)),
            (Some(_), _) => {
                log.problem(format!("{key} = {} must be true or false", shown(original)));
                continue;
            }
            (None, _) if IGNORED.contains(&name.as_str()) => continue,
            (None, _) => (name, original.clone()),
        };
        let (first, given) = *spelled.entry(name.clone()).or_insert((key, original));
        if plain.insert(name, value.clone()).is_some_and(|other| other != value) {
            log.problem(contradiction((first, given), (key, original)));
        }
    }
    plain
}

/// The key as vLLM spells the argument.
fn plain_name(key: &str) -> String {
    key.trim().trim_start_matches("--").replace('-', "_").to_lowercase()
}

/// Reads all keys; `None` only after a problem.
fn read(origin: &str, keys: &Keys<'_>) -> Option<ServerConfig> {
    keys.require(&["model", "hardware"]);
    let (model, hardware) = (keys.text("model"), keys.text("hardware"));
    // Those that are not given are not suggested for other keys.
    for (key, reason) in NOT_MODELLED.iter().filter(|(key, _)| keys.entries().any(|(given, _)| given == key)) {
        keys.refuse(key, reason);
    }
    let mut deployment = Deployment::read(keys);
    let scheduler = SchedulerOptions {
        enable_prefix_caching: keys.flag("enable_prefix_caching"),
        enable_chunked_prefill: keys.flag("enable_chunked_prefill"),
        async_scheduling: keys.flag("async_scheduling"),
        long_prefill_token_threshold: keys.whole("long_prefill_token_threshold", 0..=u32::MAX),
        scheduler_reserve_full_isl: keys.flag("scheduler_reserve_full_isl"),
        scheduling_policy: keys
            .read("scheduling_policy", "fcfs or priority", |value| SchedulingPolicy::deserialize(value).ok()),
    };
    // The model's configuration decides about activations, and both 16-bit formats are equally fast.
    keys.read("dtype", "auto, half, float16 or bfloat16: others are not predicted", |value| {
        matches!(value.as_str()?, "auto" | "half" | "float16" | "bfloat16").then_some(())
    });
    let precision = keys.read("precision", PRECISIONS, |value| MatmulFormat::parse(value.as_str()?));
    let is_auto = keys.get("num_gpu_blocks_override").and_then(Value::as_str) == Some("auto");
    let num_gpu_blocks_override = if is_auto { None } else { keys.whole("num_gpu_blocks_override", 1..=u32::MAX) };
    deployment.cpu_offload_gb = cpu_offload_gb(keys, deployment.cpu_offload_gb);
    let (kv_offloading, kv_transfers) = (KvOffloading::read(keys), KvTransfersSource::read(keys));
    let server = ServerConfig::new(origin, model?, hardware?);
    Some(ServerConfig {
        deployment,
        precision,
        scheduler,
        num_gpu_blocks_override,
        kv_offloading,
        kv_transfers,
        ..server
    })
}

/// Reads the size of the offloaded weights. `cpu_offload` is a switch without a size in published experiments, and a size
/// in GiB elsewhere.
fn cpu_offload_gb(keys: &Keys<'_>, given_gb: f64) -> f64 {
    let size = |value: &Value| value.as_f64().filter(|gb| *gb >= 0.0);
    let sized = keys.has("cpu_offload_gb").then_some(given_gb);
    // A switch that is on has no size.
    let switched = keys.read("cpu_offload", "true, false or a number of GiB", |value| match value {
        Value::Bool(true) => Some(None),
        Value::Bool(false) => Some(Some(0.0)),
        other => size(other).map(Some),
    });
    match (switched, sized) {
        (Some(Some(one)), Some(other)) if one.total_cmp(&other).is_ne() => {
            keys.problem("cpu_offload", "contradicts cpu_offload_gb: keep one");
        }
        (Some(None), None) => keys.log.note(
            "cpu_offload = true has no size: all weights and KV blocks are assumed on the GPU; give cpu_offload_gb for weights on the host, kv_offloading_size for KV blocks",
        ),
        _ => {}
    }
    sized.or(switched.flatten()).unwrap_or(0.0)
}
