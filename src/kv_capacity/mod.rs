//! The number of KV blocks of a server: vLLM's memory equation, with every term in bytes. Two constants are assumed; nothing
//! else is fitted. Uses `physics`, `model`, `hardware`, `deployment`.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

mod activation;
mod device;
mod remedy;
mod state;
#[cfg(test)]
mod tests;

pub use activation::{forward_bytes, sampling_bytes};
pub use device::{OVERHEAD_BYTES, device_memory_bytes};

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::deployment::Deployment;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::hardware::Hardware;
use crate::model::{Attention, LayerGroup, Model, Window};
use crate::physics::pipeline::layers_per_stage;
use crate::physics::weight_offload::Offloaded;
use crate::physics::{KvCacheBytes, Memory};
use crate::units::GIB;
use state::StateBlocks;

/// The memory of one rank, term by term, and the KV blocks that it leaves.
///
/// With pipeline stages, the figures are those of the stage with the fewest blocks: the engine uses the minimum over all
/// ranks.
///
/// # Formula
/// `device·utilization − weights − tables − activations − overhead − windows = KV`, `⌊KV / (block_size·bytes per token)⌋` blocks.
///
/// # Source
/// vLLM 0.15, `determine_available_memory` (`v1/worker/gpu_worker.py`) and `get_kv_cache_configs` (`v1/core/kv_cache_utils.py`).
///
/// # Approximations
/// - In vLLM, layers with a sliding window share one pool of blocks with the others. Here they cost the smaller of two upper
///   bounds: `max_num_seqs` full windows up front ([`window_bytes`](Self::window_bytes)), or every token of a block like any
///   other layer. With the former, blocks are those of the layers with full attention.
/// - Layers with chunked attention cost every token, as in vLLM by default.
/// - A request of a hybrid model holds one block per group of layers with a state, as without prefix caching. With it
///   (`mamba_cache_mode = align`) vLLM holds a second one for moments.
/// - A vision or audio tower and its share of the profiling run do not count: multimodal models have fewer blocks.
///
/// ```
/// use ridgepoint::{Deployment, Hardware, Model};
/// use ridgepoint::kv_capacity::KvCapacity;
/// let model = Model::find("llama-2-7b")?;
/// let deployment = Deployment { max_num_seqs: 128, max_num_batched_tokens: 2048, ..Deployment::default() };
/// let capacity = KvCapacity::new(&model, &Hardware::find("h100")?, &deployment)?;
/// // A server on such a GPU reports 7463.
/// assert_eq!(capacity.num_gpu_blocks, 7417);
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvCapacity {
    /// Pipeline stage of the figures, from 0.
    pub stage: usize,
    /// Device memory that CUDA reports.
    pub device_memory_bytes: f64,
    /// Share of it that the engine may use.
    pub gpu_memory_utilization: f64,
    /// Weights on the GPU.
    pub weight_bytes: f64,
    /// Weights that `cpu_offload_gb` keeps on the host: whole parameters, so that they may be more than asked for.
    pub offloaded_bytes: f64,
    /// Sines and cosines of the rotary embedding: `max_position_embeddings` rows for any `max_model_len`.
    pub position_table_bytes: f64,
    /// Peak of a forward pass of `max_num_batched_tokens`.
    pub forward_bytes: f64,
    /// Peak of sampling for `max_num_seqs` requests; 0 unless the stage is the last.
    pub sampling_bytes: f64,
    /// Peak of the profiling run: the larger of the two, because one follows the other.
    pub activation_bytes: f64,
    /// Memory of a rank besides weights, activations and KV cache (assumed): loaded kernels, workspaces of cuBLAS, buffers.
    pub overhead_bytes: f64,
    /// Up-front cost of sliding windows.
    pub window_bytes: f64,
    /// Memory left for KV blocks; negative only from [`KvCapacity::estimate`].
    pub kv_cache_bytes: f64,
    /// KV bytes of a token in the layers that blocks pay for.
    pub kv_bytes_per_token: f64,
    /// Tokens of a block; in a hybrid model at least as many as take the memory of a layer's state.
    pub block_size: u32,
    /// Blocks of a request in addition to those of its tokens, for the states of a hybrid model.
    #[serde(skip_serializing_if = "crate::units::is_zero")]
    pub state_blocks_per_request: u32,
    /// Blocks, rounded down.
    pub num_gpu_blocks: u32,
    /// Longest context of a request.
    pub max_model_len: u64,
}

impl KvCapacity {
    /// Returns the KV capacity of a deployment under vLLM 0.15. Weights on the host are those of its `cpu_offload_gb`.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if the deployment does not fit the model, if the weights do not fit the GPU, or if the KV cache has
    /// no room for one request of `max_model_len`. The latter two report the shortfall and single-argument changes that fix
    /// it.
    pub fn new(model: &Model, hardware: &Hardware, deployment: &Deployment) -> Result<Self> {
        Self::for_engine(model, hardware, deployment, &Engine::default())
    }

    /// [`KvCapacity::new`] under a version of an engine, which decides what sampling takes.
    ///
    /// # Errors
    /// Those of [`KvCapacity::new`].
    pub fn for_engine(model: &Model, hardware: &Hardware, deployment: &Deployment, engine: &Engine) -> Result<Self> {
        let capacity = Self::estimate(model, hardware, deployment, engine)?;
        let origin = format!("{} on {}", model.name, hardware.name);
        remedy::check(origin, deployment, &capacity, |changed| Self::estimate(model, hardware, changed, engine))?;
        Ok(capacity)
    }

    /// Evaluates the equation alone. A deployment that does not fit has a negative KV cache and no blocks.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if the deployment does not fit the model.
    pub fn estimate(model: &Model, hardware: &Hardware, deployment: &Deployment, engine: &Engine) -> Result<Self> {
        let memory = Memory::new(model, deployment)?;
        let split = layers_per_stage(model.num_layers(), u64::from(deployment.pipeline_parallel_size));
        let most_layers = split.iter().copied().max().unwrap_or(1).max(1) as f64;
        let device_memory_bytes = device_memory_bytes(hardware);
        let max_model_len = deployment.max_model_len.map_or(model.max_position_embeddings, u64::from);
        let states = StateBlocks::new(model, &memory, deployment);
        let position_table_bytes = position_table_bytes(model);
        let forward_bytes = forward_bytes(model, deployment, max_model_len);
        let weights = Offloaded::new(model, deployment).split(&memory.weight_bytes_per_stage);
        let of_stage = |(stage, (layers, (weight_bytes, offloaded_bytes))): (usize, (&u64, (f64, f64)))| {
            let sampling_bytes = if stage + 1 == split.len() { sampling_bytes(model, deployment, engine) } else { 0.0 };
            let activation_bytes = forward_bytes.max(sampling_bytes);
            let without_windows = device_memory_bytes * deployment.gpu_memory_utilization
                - weight_bytes
                - position_table_bytes
                - activation_bytes
                - OVERHEAD_BYTES;
            let kinds = memory.kv_cache.iter().map(|kind| {
                let bytes_per_token = kind.bytes_per_token * *layers as f64 / most_layers;
                KvCacheBytes { bytes_per_token, ..*kind }
            });
            let share = *layers as f64 / most_layers;
            let cache = match states {
                Some(states) => CacheCost::hybrid(states, share),
                None => CacheCost::of(&kinds.collect::<Vec<_>>(), without_windows, deployment, max_model_len),
            };
            KvCapacity {
                stage,
                device_memory_bytes,
                gpu_memory_utilization: deployment.gpu_memory_utilization,
                weight_bytes,
                offloaded_bytes,
                position_table_bytes,
                forward_bytes,
                sampling_bytes,
                activation_bytes,
                overhead_bytes: OVERHEAD_BYTES,
                window_bytes: cache.window_bytes,
                kv_cache_bytes: without_windows - cache.window_bytes,
                kv_bytes_per_token: cache.bytes_per_token,
                block_size: cache.block_size,
                state_blocks_per_request: cache.state_blocks,
                num_gpu_blocks: cache.num_blocks(without_windows),
                max_model_len,
            }
        };
        let capacities = split.iter().zip(weights).enumerate().map(of_stage);
        // Ranks without blocks are ordered by their shortfall.
        let fewest = capacities.min_by(|one, other| {
            let by_blocks = one.num_gpu_blocks.cmp(&other.num_gpu_blocks);
            by_blocks.then(one.kv_cache_bytes.total_cmp(&other.kv_cache_bytes))
        });
        fewest.ok_or_else(|| Error::invalid(model.name.clone(), vec!["has no layers, so no KV cache".into()]))
    }

    /// Returns the tokens that the blocks hold for one request, without its states and the block that the engine keeps for itself.
    pub fn usable_tokens(&self) -> u64 {
        let kept = self.state_blocks_per_request.saturating_add(1);
        u64::from(self.num_gpu_blocks.saturating_sub(kept)) * u64::from(self.block_size)
    }

    /// Returns the bytes of one block.
    pub fn block_bytes(&self) -> f64 {
        f64::from(self.block_size) * self.kv_bytes_per_token
    }

    /// Returns the terms with their signs. Their sum is [`kv_cache_bytes`](Self::kv_cache_bytes).
    pub fn equation(&self) -> Vec<(&'static str, f64)> {
        let withheld = self.device_memory_bytes * (1.0 - self.gpu_memory_utilization);
        vec![
            ("device memory", self.device_memory_bytes),
            ("kept free by gpu_memory_utilization", -withheld),
            ("weights", -self.weight_bytes),
            ("position tables", -self.position_table_bytes),
            ("activations of the profiling run", -self.activation_bytes),
            ("kernels, workspaces, rounding", -self.overhead_bytes),
            ("attention windows", -self.window_bytes),
        ]
    }
}

/// A line per term in GiB, then the division into blocks.
impl fmt::Display for KvCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, bytes) in self.equation() {
            if bytes != 0.0 {
                writeln!(f, "{name:<40} {:>9.2} GiB", bytes / GIB)?;
            }
        }
        writeln!(f, "{:<40} {:>9.2} GiB", "= KV cache", self.kv_cache_bytes / GIB)?;
        write!(
            f,
            "/ ({} tokens x {:.0} bytes) = {} blocks, {} tokens",
            self.block_size,
            self.kv_bytes_per_token,
            self.num_gpu_blocks,
            u64::from(self.num_gpu_blocks) * u64::from(self.block_size)
        )?;
        match self.state_blocks_per_request {
            0 => Ok(()),
            blocks => write!(f, "; a request's states take {blocks} blocks"),
        }
    }
}

/// The cost of the KV cache of a rank.
#[derive(Clone, Copy)]
struct CacheCost {
    window_bytes: f64,
    bytes_per_token: f64,
    block_size: u32,
    state_blocks: u32,
}

impl CacheCost {
    /// Returns the cost of a stage with this share of the layers of the one that has most.
    fn hybrid(states: StateBlocks, share: f64) -> Self {
        CacheCost {
            window_bytes: 0.0,
            bytes_per_token: states.bytes_per_token * share,
            block_size: states.block_size,
            state_blocks: states.blocks_per_request,
        }
    }

    /// Returns the way to pay for windows that leaves more blocks.
    fn of(kinds: &[KvCacheBytes], available_bytes: f64, deployment: &Deployment, max_model_len: u64) -> Self {
        let nothing =
            CacheCost { window_bytes: 0.0, bytes_per_token: 0.0, block_size: deployment.block_size, state_blocks: 0 };
        let every_token = CacheCost { bytes_per_token: kinds.iter().map(|kind| kind.bytes_per_token).sum(), ..nothing };
        let (mut up_front, mut least_bytes) = (nothing, 0.0);
        for kind in kinds {
            match kind.window {
                Window::Sliding(window) => {
                    let bytes = |num_requests: u32| {
                        kind.bytes_per_token * window_tokens(window, num_requests, deployment, max_model_len) as f64
                    };
                    up_front.window_bytes += bytes(deployment.max_num_seqs);
                    least_bytes += bytes(1);
                }
                Window::Full | Window::Chunked(_) | Window::Picked(_) => {
                    up_front.bytes_per_token += kind.bytes_per_token
                }
            }
        }
        // A request of max_model_len leaves room for few others, so max_num_seqs windows must not refuse it.
        let one_block = u64::from(deployment.block_size);
        let longest = max_model_len.div_ceil(one_block.max(1)).saturating_add(2).saturating_mul(one_block);
        let beside_one = available_bytes - longest as f64 * up_front.bytes_per_token;
        up_front.window_bytes = up_front.window_bytes.min(beside_one.max(least_bytes));
        let num_blocks = |cache: CacheCost| cache.num_blocks(available_bytes);
        let is_better = up_front.bytes_per_token > 0.0 && num_blocks(up_front) > num_blocks(every_token);
        if is_better { up_front } else { every_token }
    }

    fn num_blocks(self, available_bytes: f64) -> u32 {
        // The conversion saturates below zero and above u32::MAX.
        ((available_bytes - self.window_bytes) / (self.bytes_per_token * f64::from(self.block_size))).floor() as u32
    }
}

/// Returns the most tokens that the sliding windows of so many running requests hold.
///
/// A window of `w` tokens touches `⌈(w − 1)/b⌉ + 1` blocks. A step's new tokens need blocks before old ones are freed.
fn window_tokens(window: u64, num_requests: u32, deployment: &Deployment, max_model_len: u64) -> u64 {
    let block_size = u64::from(deployment.block_size.max(1));
    let blocks = window.saturating_sub(1).div_ceil(block_size).saturating_add(1);
    let held = blocks.min(max_model_len.div_ceil(block_size)).saturating_mul(block_size);
    held.saturating_mul(u64::from(num_requests)).saturating_add(u64::from(deployment.max_num_batched_tokens))
}

/// Returns the bytes of one table of sines and cosines per rotary width, in the model's dtype. Every rank has them.
fn position_table_bytes(model: &Model) -> f64 {
    let width = |group: &LayerGroup| match &group.attention {
        Attention::Gqa(gqa) => Some(gqa.rotary_dim),
        Attention::Mla(mla) => Some(mla.qk_rope_head_dim),
        Attention::State(_) | Attention::None => None,
    };
    let widths: BTreeSet<u64> = model.layers.iter().filter_map(width).collect();
    widths.into_iter().sum::<u64>() as f64 * model.max_position_embeddings as f64 * model.dtype.bytes()
}
