//! What is said where a deployment does not fit: what is missing, and which changes of one argument would do.

use super::{KvCapacity, MemoryOptions};
use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::hardware::Hardware;
use crate::model::Model;
use crate::units::GIB;

/// Tensor-parallel sizes are tried up to this.
const LARGEST_TENSOR_PARALLEL: u32 = 64;
/// Numbers of pipeline stages that are tried where no tensor-parallel size does.
const STAGES: [u32; 4] = [2, 4, 8, 16];
/// Beyond this share of the memory engines run out of it for what they do not count, CUDA graphs above all.
const LARGEST_UTILIZATION_PCT: u32 = 95;

/// Steps of fewer tokens than this are never proposed.
const SMALLEST_STEP_TOKENS: u32 = 512;

/// Refuses what has no room for one request of `max_model_len` beside the block that the engine keeps for itself.
pub(super) fn check(
    capacity: &KvCapacity,
    model: &Model,
    hardware: &Hardware,
    deployment: &Deployment,
    options: MemoryOptions,
) -> Result<()> {
    if has_room(capacity) {
        return Ok(());
    }
    let mut problems = vec![what_is_missing(capacity)];
    problems.extend(shorter_context(capacity));
    problems.extend(more_memory(capacity, model, hardware, deployment, options));
    problems.extend(smaller_steps(capacity, model, hardware, deployment, options));
    problems.extend(smaller_blocks(model, hardware, deployment, options));
    problems.push(more_gpus(model, hardware, deployment, options));
    Err(Error::invalid(format!("{} on {}", model.name(), hardware.name()), problems))
}

fn has_room(capacity: &KvCapacity) -> bool {
    needed_blocks(capacity) <= u64::from(capacity.num_gpu_blocks)
}

/// Blocks of one request of `max_model_len`, and the engine's own.
fn needed_blocks(capacity: &KvCapacity) -> u64 {
    capacity.max_model_len.div_ceil(u64::from(capacity.block_size.max(1))).saturating_add(1)
}

fn what_is_missing(capacity: &KvCapacity) -> String {
    let usable = capacity.device_memory_bytes * capacity.gpu_memory_utilization;
    let of = format!(
        "gpu_memory_utilization = {:?} of {:.1} GiB",
        capacity.gpu_memory_utilization,
        capacity.device_memory_bytes / GIB
    );
    let weights = capacity.weight_bytes;
    if weights > usable {
        return format!(
            "the weights do not fit: they take {} of each GPU, {} more than {of} leaves",
            gib(weights),
            gib(weights - usable)
        );
    }
    if capacity.kv_cache_bytes <= 0.0 {
        return format!(
            "no room for a KV cache: weights ({}), position tables ({}), activations ({}) and kernels ({}) take {} more than {of} leaves",
            gib(weights),
            gib(capacity.position_table_bytes),
            gib(capacity.activation_bytes),
            gib(capacity.overhead_bytes),
            gib(-capacity.kv_cache_bytes)
        );
    }
    let needed = needed_blocks(capacity) as f64 * capacity.block_bytes();
    format!(
        "the KV cache has room for {} tokens ({}), less than one request of max_model_len = {} ({}): {} short",
        capacity.usable_tokens(),
        gib(capacity.kv_cache_bytes),
        capacity.max_model_len,
        gib(needed),
        gib(needed - capacity.kv_cache_bytes)
    )
}

fn gib(bytes: f64) -> String {
    let gib = bytes / GIB;
    if gib < 0.1 { format!("{gib:.3} GiB") } else { format!("{gib:.1} GiB") }
}

fn shorter_context(capacity: &KvCapacity) -> Option<String> {
    let tokens = capacity.usable_tokens();
    (tokens > 0).then(|| format!("max_model_len can be at most {tokens}"))
}

fn fits(model: &Model, hardware: &Hardware, deployment: &Deployment, options: MemoryOptions) -> bool {
    KvCapacity::estimate(model, hardware, deployment, options).is_ok_and(|capacity| has_room(&capacity))
}

fn more_memory(
    capacity: &KvCapacity,
    model: &Model,
    hardware: &Hardware,
    deployment: &Deployment,
    options: MemoryOptions,
) -> Option<String> {
    let first = (capacity.gpu_memory_utilization * 100.0).floor() as u32 + 1;
    let enough = (first..=LARGEST_UTILIZATION_PCT).map(|pct| f64::from(pct) / 100.0).find(|utilization| {
        let larger = Deployment { gpu_memory_utilization: *utilization, ..deployment.clone() };
        fits(model, hardware, &larger, options)
    })?;
    Some(format!("gpu_memory_utilization = {enough} would do"))
}

/// Fewer tokens or requests in a step, where the profiling run takes more than it leaves.
fn smaller_steps(
    capacity: &KvCapacity,
    model: &Model,
    hardware: &Hardware,
    deployment: &Deployment,
    options: MemoryOptions,
) -> Option<String> {
    if capacity.activation_bytes <= capacity.kv_cache_bytes {
        return None;
    }
    let powers_below = |now: u32| (0..u32::BITS).rev().map(|power| 1 << power).filter(move |size| *size < now);
    let tokens = powers_below(deployment.max_num_batched_tokens)
        .take_while(|tokens| *tokens >= SMALLEST_STEP_TOKENS)
        .find(|tokens| {
            fits(model, hardware, &Deployment { max_num_batched_tokens: *tokens, ..deployment.clone() }, options)
        });
    let requests = || {
        powers_below(deployment.max_num_seqs).find(|requests| {
            fits(model, hardware, &Deployment { max_num_seqs: *requests, ..deployment.clone() }, options)
        })
    };
    let tokens = tokens.map(|tokens| format!("max_num_batched_tokens = {tokens} would do"));
    tokens.or_else(|| requests().map(|requests| format!("max_num_seqs = {requests} would do")))
}

/// vLLM's default block, where a larger one leaves room for too few.
fn smaller_blocks(
    model: &Model,
    hardware: &Hardware,
    deployment: &Deployment,
    options: MemoryOptions,
) -> Option<String> {
    let Deployment { block_size, .. } = Deployment::default();
    let enough = deployment.block_size > block_size
        && fits(model, hardware, &Deployment { block_size, ..deployment.clone() }, options);
    enough.then(|| format!("block_size = {block_size} would do"))
}

fn more_gpus(model: &Model, hardware: &Hardware, deployment: &Deployment, options: MemoryOptions) -> String {
    let now = deployment.tensor_parallel_size;
    let sizes = || (0..=LARGEST_TENSOR_PARALLEL.ilog2()).map(|power| 1 << power);
    let enough = |tensor_parallel_size: u32, pipeline_parallel_size: u32| {
        let larger = Deployment { tensor_parallel_size, pipeline_parallel_size, ..deployment.clone() };
        fits(model, hardware, &larger, options)
    };
    let stages = deployment.pipeline_parallel_size;
    if let Some(size) = sizes().filter(|size| *size > now).find(|size| enough(*size, stages)) {
        return format!("tensor_parallel_size = {size} would do");
    }
    let alone = format!(
        "no tensor_parallel_size up to {LARGEST_TENSOR_PARALLEL} that the model can be split by would do alone"
    );
    let mut both: Vec<(u32, u32)> = STAGES
        .into_iter()
        .filter(|more| *more > stages)
        .flat_map(|more| sizes().filter(|size| *size >= now).map(move |size| (size, more)))
        .collect();
    both.sort_by_key(|(size, stages)| size * stages);
    match both.into_iter().find(|(size, stages)| enough(*size, *stages)) {
        Some((size, stages)) => {
            format!("{alone}; tensor_parallel_size = {size} with pipeline_parallel_size = {stages} would")
        }
        None => format!("{alone}; a quantised checkpoint, a larger GPU or a shorter max_model_len might"),
    }
}
