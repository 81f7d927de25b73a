//! From the text of a file to a checked [`ServerConfig`]; all problems are reported at once. Uses `keys`, `precision`, `yaml`.

use crate::error::ErrorKind;
use serde_json::{Map, Value};

use super::keys::Fields;
use super::precision::Precision;
use super::{SchedulerOptions, ServerConfig};
use crate::deployment::{Deployment, GenerationConfig};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::input;
use crate::replay::SchedulingPolicy;

pub(super) fn parse(origin: &str, text: &str, model: Option<&str>, hardware: Option<&str>) -> Result<ServerConfig> {
    let fault = |message: String| Error::parse(origin, message);
    let value = input::parse_yaml(origin, text)?;
    let map = match &value {
        Value::Object(map) => map,
        Value::Null => return Err(fault("is empty: a server has at least `model` and `hardware`".to_owned())),
        _ => return Err(fault("must be keys with values, as in `model: llama-3.1-8b`".to_owned())),
    };
    from_map(origin, map, model, hardware)
}

pub(super) fn from_map(
    origin: &str,
    map: &Map<String, Value>,
    model: Option<&str>,
    hardware: Option<&str>,
) -> Result<ServerConfig> {
    let mut fields = Fields::new(map);
    let model = name(&mut fields, "model", model);
    let hardware = name(&mut fields, "hardware", hardware);
    let mut notes = Vec::new();
    let deployment = deployment(&mut fields);
    let scheduler = scheduler(&mut fields);
    check_dtype(&mut fields);
    let precision = fields.read("precision", Precision::EXPECTED, |value| Precision::parse(value.as_str()?));
    let num_gpu_blocks_override = fields.count("num_gpu_blocks_override", 1);
    let cpu_offload_gb = cpu_offload(&mut fields, &mut notes);
    match deployment.validate() {
        // What the values by themselves have wrong is said already; this adds their relations.
        Err(error) if error.kind() == ErrorKind::Invalid => fields.problems.extend_from_slice(error.problems()),
        other => other?,
    }
    match (model, hardware) {
        (Some(model), Some(hardware)) if fields.problems.is_empty() => Ok(ServerConfig {
            origin: origin.to_owned(),
            model,
            hardware,
            deployment,
            precision,
            scheduler,
            num_gpu_blocks_override,
            cpu_offload_gb,
            notes,
        }),
        _ => Err(Error::invalid(origin, fields.into_problems())),
    }
}

fn name(fields: &mut Fields, key: &str, instead: Option<&str>) -> Option<String> {
    let in_file = fields.text(key);
    if let Some(instead) = instead {
        return Some(instead.to_owned());
    }
    if !fields.has(key) {
        fields.problems.push(format!("{key} is missing"));
    }
    in_file
}

fn deployment(fields: &mut Fields) -> Deployment {
    let defaults = Deployment::default();
    Deployment {
        tensor_parallel_size: fields.count("tensor_parallel_size", 1).unwrap_or(defaults.tensor_parallel_size),
        pipeline_parallel_size: fields.count("pipeline_parallel_size", 1).unwrap_or(defaults.pipeline_parallel_size),
        data_parallel_size: fields.count("data_parallel_size", 1).unwrap_or(defaults.data_parallel_size),
        enable_expert_parallel: fields.switch("enable_expert_parallel").unwrap_or(defaults.enable_expert_parallel),
        max_num_seqs: fields.count("max_num_seqs", 1).unwrap_or(defaults.max_num_seqs),
        max_num_batched_tokens: fields.count("max_num_batched_tokens", 1).unwrap_or(defaults.max_num_batched_tokens),
        max_model_len: fields.count("max_model_len", 1),
        gpu_memory_utilization: fields
            .read("gpu_memory_utilization", "a share of the memory, above 0 and at most 1", |value| {
                value.as_f64().filter(|share| *share > 0.0 && *share <= 1.0)
            })
            .unwrap_or(defaults.gpu_memory_utilization),
        kv_cache_dtype: fields
            .read("kv_cache_dtype", "auto, fp8, fp8_e4m3, fp8_e5m2, bfloat16 or float16", |value| {
                match value.as_str()? {
                    "auto" => Some(None),
                    "fp8" | "fp8_e4m3" | "fp8_e5m2" => Some(Some(DType::Fp8)),
                    "bfloat16" => Some(Some(DType::Bfloat16)),
                    "float16" => Some(Some(DType::Float16)),
                    _ => None,
                }
            })
            .flatten(),
        block_size: fields.count("block_size", 1).unwrap_or(defaults.block_size),
        enforce_eager: fields.switch("enforce_eager").unwrap_or(defaults.enforce_eager),
        generation_config: fields
            .read("generation_config", "auto or vllm: the file of another folder is not read", |value| {
                match value.as_str()? {
                    "auto" => Some(GenerationConfig::Auto),
                    "vllm" => Some(GenerationConfig::Vllm),
                    _ => None,
                }
            })
            .unwrap_or(defaults.generation_config),
    }
}

fn scheduler(fields: &mut Fields) -> SchedulerOptions {
    SchedulerOptions {
        enable_prefix_caching: fields.switch("enable_prefix_caching"),
        enable_chunked_prefill: fields.switch("enable_chunked_prefill"),
        async_scheduling: fields.switch("async_scheduling"),
        long_prefill_token_threshold: fields.count("long_prefill_token_threshold", 0),
        scheduling_policy: fields.read("scheduling_policy", "fcfs or priority", |value| match value.as_str()? {
            "fcfs" => Some(SchedulingPolicy::Fcfs),
            "priority" => Some(SchedulingPolicy::Priority),
            _ => None,
        }),
    }
}

/// Activations are as the model's configuration has them, and one 16-bit format is as fast as the other.
fn check_dtype(fields: &mut Fields) {
    fields.read("dtype", "auto, half, float16 or bfloat16: others are not predicted", |value| {
        matches!(value.as_str()?, "auto" | "half" | "float16" | "bfloat16").then_some(())
    });
}

/// `cpu_offload` is a switch in published experiments, without a size, and a size in GiB elsewhere.
fn cpu_offload(fields: &mut Fields, notes: &mut Vec<String>) -> f64 {
    let size = |value: &Value| value.as_f64().filter(|gb| gb.is_finite() && *gb >= 0.0);
    let sized = fields.read("cpu_offload_gb", "a number of GiB, at least 0", size);
    let switched = fields.read("cpu_offload", "true, false or a number of GiB", |value| match value {
        Value::Bool(on) => Some((*on, None)),
        other => size(other).map(|gb| (gb > 0.0, Some(gb))),
    });
    match (switched, sized) {
        (Some((false, _)), Some(gb)) if gb > 0.0 => {
            fields.problems.push(format!("cpu_offload says none and cpu_offload_gb = {gb}: give one of them"));
        }
        (Some((_, Some(one))), Some(other)) if one.total_cmp(&other).is_ne() => {
            fields.problems.push(format!("cpu_offload = {one} and cpu_offload_gb = {other}: give one of them"));
        }
        (Some((true, None)), None) => notes.push(
            "cpu_offload = true says no size: all weights and KV blocks are taken to be on the GPU; give cpu_offload_gb for weights on the host"
                .to_owned(),
        ),
        _ => {}
    }
    sized.or(switched.and_then(|(_, gb)| gb)).unwrap_or(0.0)
}
