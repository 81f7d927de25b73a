//! Builds the error for a deployment that does not fit in GPU memory: the shortfall, and single-argument changes that fix it.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "suggestions shrink from 32 bits")]

use super::KvCapacity;
use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::units::GIB;

/// Highest utilization that is proposed, %. Above this, engines run out of memory for CUDA graphs and other untracked allocations.
const MAX_UTILIZATION_PCT: u32 = 95;
/// Fewest tokens of a step that are proposed.
const MIN_STEP_TOKENS: u32 = 512;

/// Refuses a capacity without room for one request of `max_model_len` and the block that the engine reserves.
/// `estimate` evaluates a changed deployment.
pub(super) fn check(
    origin: String,
    now: &Deployment,
    capacity: &KvCapacity,
    estimate: impl Fn(&Deployment) -> Result<KvCapacity>,
) -> Result<()> {
    if has_room(capacity) {
        return Ok(());
    }
    let mut problems = vec![shortfall(capacity)];
    let tokens = capacity.usable_tokens();
    if tokens > 0 {
        problems.push(format!("max_model_len can be at most {tokens}"));
    }
    let first_pct = (capacity.gpu_memory_utilization * 100.0).floor() as u32 + 1;
    let shares = (first_pct..=MAX_UTILIZATION_PCT).map(|pct| f64::from(pct) / 100.0).collect();
    // Smaller steps help if the profiling run takes more than it leaves.
    let is_large_step = capacity.activation_bytes > capacity.kv_cache_bytes;
    let step = |now: u32| if is_large_step { now } else { 0 };
    let default_block = Some(Deployment::default().block_size).filter(|tokens| *tokens < now.block_size);
    let known = problems.len();
    let mut suggest = |argument: &str, values: Vec<f64>, change: fn(&mut Deployment, f64)| {
        let fits = |value: &f64| {
            let mut changed = now.clone();
            change(&mut changed, *value);
            estimate(&changed).is_ok_and(|found| has_room(&found))
        };
        problems.extend(values.into_iter().find(fits).map(|value| format!("{argument} = {value} would do")));
    };
    suggest("gpu_memory_utilization", shares, |changed, share| changed.gpu_memory_utilization = share);
    let tokens = halves(step(now.max_num_batched_tokens), MIN_STEP_TOKENS);
    suggest("max_num_batched_tokens", tokens, |changed, tokens| changed.max_num_batched_tokens = tokens as u32);
    suggest("max_num_seqs", halves(step(now.max_num_seqs), 1), |changed, seqs| changed.max_num_seqs = seqs as u32);
    let block = default_block.map(f64::from).into_iter().collect();
    suggest("block_size", block, |changed, tokens| changed.block_size = tokens as u32);
    let ranks = parallel_sizes(now.tensor_parallel_size);
    suggest("tensor_parallel_size", ranks, |changed, ranks| changed.tensor_parallel_size = ranks as u32);
    let stages = parallel_sizes(now.pipeline_parallel_size);
    suggest("pipeline_parallel_size", stages, |changed, stages| changed.pipeline_parallel_size = stages as u32);
    if problems.len() == known {
        problems.push("no single argument would do: take a quantised checkpoint or a larger GPU".to_owned());
    }
    Err(Error::invalid(origin, problems))
}

/// The powers of two from `least` to below `now`, the largest first.
fn halves(now: u32, least: u32) -> Vec<f64> {
    (0..u32::BITS).rev().map(|power| 1 << power).filter(|size| (least..now).contains(size)).map(f64::from).collect()
}

fn parallel_sizes(now: u32) -> Vec<f64> {
    [2, 4, 8, 16, 32, 64].into_iter().filter(|size| *size > now).map(f64::from).collect()
}

fn has_room(capacity: &KvCapacity) -> bool {
    needed_blocks(capacity) <= u64::from(capacity.pool_blocks)
}

/// Blocks of one request of `max_model_len`, those of its states and windows, and the engine's own.
fn needed_blocks(capacity: &KvCapacity) -> u64 {
    let tokens = capacity.max_model_len.div_ceil(u64::from(capacity.block_size.max(1)));
    let windows = capacity.blocks_of_windows(u32::try_from(tokens).unwrap_or(u32::MAX));
    tokens
        .saturating_add(u64::from(capacity.state_blocks_per_request))
        .saturating_add(u64::from(windows))
        .saturating_add(1)
}

fn shortfall(capacity: &KvCapacity) -> String {
    let gib = |bytes: f64| format!("{:.*} GiB", if bytes < 0.1 * GIB { 3 } else { 1 }, bytes / GIB);
    let usable = capacity.device_memory_bytes * capacity.gpu_memory_utilization;
    let (share, device) = (capacity.gpu_memory_utilization, gib(capacity.device_memory_bytes));
    let weights = gib(capacity.weight_bytes);
    if capacity.weight_bytes > usable {
        let excess = gib(capacity.weight_bytes - usable);
        return format!(
            "the weights do not fit: they take {weights} of each GPU, {excess} more than gpu_memory_utilization = {share:?} of {device} leaves"
        );
    }
    if capacity.kv_cache_bytes <= 0.0 {
        return format!(
            "no room for a KV cache: weights ({weights}), activations ({}) and the rest ({}) take {} more than \
             gpu_memory_utilization = {share:?} of {device} leaves",
            gib(capacity.activation_bytes),
            gib(capacity.position_table_bytes + capacity.overhead_bytes),
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
