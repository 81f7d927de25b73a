//! Builds the error for a deployment that does not fit in GPU memory: the shortfall, and single-argument changes that fix it.

use std::fmt::Display;

use super::{KvCapacity, MemoryOptions};
use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::hardware::Hardware;
use crate::model::Model;
use crate::units::GIB;

/// Sizes that are tried for tensor and pipeline parallelism.
const PARALLEL_SIZES: [u32; 6] = [2, 4, 8, 16, 32, 64];
/// Highest utilization that is proposed, %. Above it, engines run out of memory for CUDA graphs and others that they do not
/// count.
const MAX_UTILIZATION_PCT: u32 = 95;
/// Fewest tokens of a step that are proposed.
const MIN_STEP_TOKENS: u32 = 512;

/// The deployment that is to be changed.
pub(super) struct Remedy<'a> {
    pub(super) model: &'a Model,
    pub(super) hardware: &'a Hardware,
    pub(super) deployment: &'a Deployment,
    pub(super) options: MemoryOptions,
}

impl Remedy<'_> {
    /// Refuses a capacity without room for one request of `max_model_len` beside the block that the engine keeps for itself.
    pub(super) fn check(&self, capacity: &KvCapacity) -> Result<()> {
        if has_room(capacity) {
            return Ok(());
        }
        let now = self.deployment;
        let mut problems = vec![shortfall(capacity)];
        let tokens = capacity.usable_tokens();
        if tokens > 0 {
            problems.push(format!("max_model_len can be at most {tokens}"));
        }
        let first_pct = (capacity.gpu_memory_utilization * 100.0).floor() as u32 + 1;
        let utilizations = (first_pct..=MAX_UTILIZATION_PCT).map(|pct| f64::from(pct) / 100.0);
        let mut changes = vec![self.first("gpu_memory_utilization", utilizations, |deployment, share| {
            deployment.gpu_memory_utilization = share;
        })];
        // Smaller steps help if the profiling run takes more than it leaves.
        if capacity.activation_bytes > capacity.kv_cache_bytes {
            let step_tokens = halves(now.max_num_batched_tokens).take_while(|tokens| *tokens >= MIN_STEP_TOKENS);
            let fewer_tokens = self.first("max_num_batched_tokens", step_tokens, |deployment, tokens| {
                deployment.max_num_batched_tokens = tokens;
            });
            changes.push(fewer_tokens.or_else(|| {
                self.first("max_num_seqs", halves(now.max_num_seqs), |deployment, seqs| deployment.max_num_seqs = seqs)
            }));
        }
        let default_block = Some(Deployment::default().block_size).filter(|size| *size < now.block_size);
        changes.push(self.first("block_size", default_block, |deployment, size| deployment.block_size = size));
        let larger = |now: u32| PARALLEL_SIZES.into_iter().filter(move |size| *size > now);
        let more_ranks = self.first("tensor_parallel_size", larger(now.tensor_parallel_size), |deployment, size| {
            deployment.tensor_parallel_size = size;
        });
        let more_stages = || {
            self.first("pipeline_parallel_size", larger(now.pipeline_parallel_size), |deployment, stages| {
                deployment.pipeline_parallel_size = stages;
            })
        };
        changes.push(more_ranks.or_else(more_stages));
        let changes: Vec<String> = changes.into_iter().flatten().collect();
        if changes.is_empty() {
            problems.push("no single argument would do: take a quantised checkpoint or a larger GPU".to_owned());
        }
        problems.extend(changes);
        Err(Error::invalid(format!("{} on {}", self.model.name(), self.hardware.name()), problems))
    }

    /// Returns the first of `values` with which the deployment fits.
    fn first<T: Copy + Display>(
        &self,
        argument: &str,
        values: impl IntoIterator<Item = T>,
        change: impl Fn(&mut Deployment, T),
    ) -> Option<String> {
        let fits = |value: &T| {
            let mut changed = self.deployment.clone();
            change(&mut changed, *value);
            KvCapacity::estimate(self.model, self.hardware, &changed, self.options).is_ok_and(|found| has_room(&found))
        };
        values.into_iter().find(fits).map(|value| format!("{argument} = {value} would do"))
    }
}

/// The powers of two below `now`, the largest first.
fn halves(now: u32) -> impl Iterator<Item = u32> {
    (0..u32::BITS).rev().map(|power| 1 << power).filter(move |size| *size < now)
}

fn has_room(capacity: &KvCapacity) -> bool {
    needed_blocks(capacity) <= u64::from(capacity.num_gpu_blocks)
}

/// Blocks of one request of `max_model_len`, and the engine's own.
fn needed_blocks(capacity: &KvCapacity) -> u64 {
    capacity.max_model_len.div_ceil(u64::from(capacity.block_size.max(1))).saturating_add(1)
}

fn shortfall(capacity: &KvCapacity) -> String {
    let usable = capacity.device_memory_bytes * capacity.gpu_memory_utilization;
    let of = format!(
        "gpu_memory_utilization = {:?} of {:.1} GiB",
        capacity.gpu_memory_utilization,
        capacity.device_memory_bytes / GIB
    );
    let weights = capacity.weight_bytes;
    if weights > usable {
        let excess = gib(weights - usable);
        return format!(
            "the weights do not fit: they take {} of each GPU, {excess} more than {of} leaves",
            gib(weights)
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
