//! The number of KV blocks of a server: vLLM's memory equation, with every term in bytes. Two constants are assumed; nothing
//! else is fitted. Uses `physics`, `model`, `hardware`, `deployment`.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

mod activation;
mod device;
mod remedy;
mod state;
#[cfg(test)]
mod tests;
mod windows;

pub use activation::{forward_bytes, sampling_bytes};
pub use device::{
    COLLECTIVES_OVERHEAD_BYTES, OVERHEAD_BYTES, OVERHEAD_SPREAD_BYTES, device_memory_bytes, overhead_bytes,
};

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::deployment::Deployment;
use crate::efficiency::engine_on;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::hardware::Hardware;
use crate::model::{Attention, LayerGroup, Model};
use crate::physics::Memory;
use crate::physics::pipeline::layers_per_stage;
use crate::physics::weight_offload::Offloaded;
use crate::units::GIB;
use state::StateBlocks;
use windows::WindowedPool;
pub use windows::blocks_of_windows;

/// The memory of one rank, term by term, and the KV blocks that it leaves.
///
/// With pipeline stages, the figures are those of the stage with the fewest blocks: the engine uses the minimum over all
/// ranks.
///
/// # Formula
/// `device·utilization − weights − tables − activations − overhead − windows = KV`, `⌊KV / (block_size·bytes per token)⌋` blocks. Under SGLang
/// `device·utilization − weights − tables − overhead − windows`, as its share keeps room for activations; under TensorRT-LLM
/// `(device − weights − tables − activations − overhead)·utilization − windows`.
///
/// # Source
/// vLLM 0.15, `determine_available_memory` (`v1/worker/gpu_worker.py`) and `get_kv_cache_configs` (`v1/core/kv_cache_utils.py`). SGLang 0.5.9,
/// `profile_max_num_token` (`model_executor/model_runner.py`). TensorRT-LLM 1.2, `KvCacheCreator` (`_torch/pyexecutor/_util.py`).
///
/// # Approximations
/// - Layers with sliding windows share one pool of blocks with the others, in groups of as many layers as the rarer kind has. A request
///   holds the blocks of its windows from the start.
/// - Layers with chunked attention cost every token, as in vLLM by default.
/// - A request of a hybrid model holds one block per group of layers with a state, as without prefix caching. With it
///   (`mamba_cache_mode = align`) vLLM holds a second one for moments.
/// - A vision or audio tower and its share of the profiling run do not count: multimodal models have fewer blocks.
///
/// ```
/// use ridgepoint::{Deployment, Engine, Hardware, Model};
/// use ridgepoint::kv_capacity::KvCapacity;
/// let model = Model::find("llama-2-7b")?;
/// let deployment = Deployment { max_num_seqs: 128, max_num_batched_tokens: 2048, ..Deployment::default() };
/// let capacity = KvCapacity::for_engine(&model, &Hardware::find("h100")?, &deployment, &Engine::fitted())?;
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
    /// Share of it that the engine may use; under SGLang `mem_fraction_static`, under TensorRT-LLM the share of what is free that KV blocks take.
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
    /// Blocks, rounded down: of models with sliding windows those of the tokens that the log of the engine's version names.
    pub num_gpu_blocks: u32,
    /// Blocks of the pool that requests share. Each holds the tokens of the layers without a sliding window.
    pub pool_blocks: u32,
    /// Further blocks of a request for each of its blocks of tokens within the sliding windows.
    #[serde(skip_serializing_if = "crate::units::is_zero")]
    pub window_share: f64,
    /// Most blocks of tokens that a request's sliding windows cover.
    #[serde(skip_serializing_if = "crate::units::is_zero")]
    pub window_blocks: u32,
    /// Longest context of a request.
    pub max_model_len: u64,
}

impl KvCapacity {
    /// Returns the KV capacity of a deployment under the newest vLLM with kernels of the GPU. Weights on the host are those of its `cpu_offload_gb`.
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
        let engine = &engine_on(engine, hardware);
        let memory = Memory::new(model, deployment)?;
        let split = layers_per_stage(model.num_layers(), u64::from(deployment.pipeline_parallel_size));
        let most_layers = split.iter().copied().max().unwrap_or(1).max(1) as f64;
        let device_memory_bytes = device_memory_bytes(hardware);
        let overhead_bytes = overhead_bytes(model, deployment, engine);
        let max_model_len = deployment.max_model_len.map_or(model.max_position_embeddings, u64::from);
        let states = StateBlocks::new(model, &memory, deployment);
        let position_table_bytes = position_table_bytes(model);
        let forward_bytes = forward_bytes(model, deployment, max_model_len);
        let weights = Offloaded::new(model, deployment).split(&memory.weight_bytes_per_stage);
        let of_stage = |(stage, (layers, (weight_bytes, offloaded_bytes))): (usize, (&u64, (f64, f64)))| {
            let sampling_bytes = if stage + 1 == split.len() { sampling_bytes(model, deployment, engine) } else { 0.0 };
            let utilization = deployment.gpu_memory_utilization;
            let held_bytes = weight_bytes + position_table_bytes + overhead_bytes;
            let profiled_bytes = forward_bytes.max(sampling_bytes);
            let (activation_bytes, without_windows) = match engine.name() {
                "sglang" => (0.0, device_memory_bytes * utilization - held_bytes),
                "trtllm" => (profiled_bytes, (device_memory_bytes - held_bytes - profiled_bytes) * utilization),
                _ => (
                    profiled_bytes,
                    device_memory_bytes * utilization
                        - weight_bytes
                        - position_table_bytes
                        - profiled_bytes
                        - overhead_bytes,
                ),
            };
            let share = *layers as f64 / most_layers;
            let block_size = deployment.block_size;
            let cache = match (states, WindowedPool::new(&memory.kv_cache)) {
                (Some(states), _) => CacheCost {
                    state_blocks: states.blocks_per_request,
                    ..CacheCost::plain(states.bytes_per_token * share, states.block_size)
                },
                (None, None) => CacheCost::plain(memory.kv_bytes_per_token() * share, block_size),
                (None, Some(pool)) => {
                    let bytes = without_windows / share;
                    CacheCost {
                        window_bytes: pool.step_bytes(deployment, max_model_len, bytes) * share,
                        window_share: pool.share(),
                        window_blocks: pool.blocks(block_size),
                        logged_tokens: Some(pool.logged_tokens(deployment, max_model_len, bytes, engine)),
                        ..CacheCost::plain(pool.full_bytes * share, block_size)
                    }
                }
            };
            let pool_blocks = cache.num_blocks(without_windows);
            let logged = cache.logged_tokens.map(|tokens| (tokens / f64::from(cache.block_size.max(1))).floor() as u32);
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
                overhead_bytes,
                window_bytes: cache.window_bytes,
                kv_cache_bytes: without_windows - cache.window_bytes,
                kv_bytes_per_token: cache.bytes_per_token,
                block_size: cache.block_size,
                state_blocks_per_request: cache.state_blocks,
                num_gpu_blocks: logged.unwrap_or(pool_blocks),
                pool_blocks,
                window_share: cache.window_share,
                window_blocks: cache.window_blocks,
                max_model_len,
            }
        };
        let capacities = split.iter().zip(weights).enumerate().map(of_stage);
        // Ranks without blocks are ordered by their shortfall.
        let fewest = capacities.min_by(|one, other| {
            let by_blocks = one.pool_blocks.cmp(&other.pool_blocks);
            by_blocks.then(one.kv_cache_bytes.total_cmp(&other.kv_cache_bytes))
        });
        fewest.ok_or_else(|| Error::invalid(model.name.clone(), vec!["has no layers, so no KV cache".into()]))
    }

    /// Returns the tokens that the blocks hold for one request, without its states and the block that the engine keeps for itself.
    pub fn usable_tokens(&self) -> u64 {
        let kept =
            self.state_blocks_per_request.saturating_add(self.blocks_of_windows(self.window_blocks)).saturating_add(1);
        u64::from(self.pool_blocks.saturating_sub(kept)) * u64::from(self.block_size)
    }

    /// Returns the blocks of the pool where the engine logs so many tokens: in the proportion of its own blocks to the tokens of its log.
    pub fn blocks_of_logged(&self, tokens: u32) -> u32 {
        let blocks = tokens / self.block_size.max(1);
        if self.num_gpu_blocks == 0 {
            return blocks;
        }
        (f64::from(blocks) * f64::from(self.pool_blocks) / f64::from(self.num_gpu_blocks)).round() as u32
    }

    /// Returns the blocks that a request with so many blocks of tokens holds for its sliding windows.
    pub fn blocks_of_windows(&self, token_blocks: u32) -> u32 {
        blocks_of_windows(self.window_share, self.window_blocks, token_blocks)
    }

    /// Returns a remark where the room beyond one request of `max_model_len` is less than the memory of servers spreads by.
    pub fn barely_fits(&self) -> Option<String> {
        let spare_tokens = self.usable_tokens().saturating_sub(self.max_model_len);
        let spare_bytes = spare_tokens as f64 * self.kv_bytes_per_token;
        (spare_bytes < OVERHEAD_SPREAD_BYTES).then(|| {
            format!(
                "it barely fits: {:.2} GiB are left beside one request of max_model_len = {}, and the memory of servers alike differs by {:.1} \
                 GiB, so such a server might not start",
                spare_bytes / GIB,
                self.max_model_len,
                OVERHEAD_SPREAD_BYTES / GIB
            )
        })
    }

    /// Returns the bytes of one block.
    pub fn block_bytes(&self) -> f64 {
        f64::from(self.block_size) * self.kv_bytes_per_token
    }

    /// Returns the terms with their signs. Their sum is [`kv_cache_bytes`](Self::kv_cache_bytes).
    pub fn equation(&self) -> Vec<(&'static str, f64)> {
        let taken = [
            ("weights", -self.weight_bytes),
            ("position tables", -self.position_table_bytes),
            ("activations of the profiling run", -self.activation_bytes),
            ("kernels, workspaces, graphs, rounding", -self.overhead_bytes),
            ("attention windows", -self.window_bytes),
        ];
        let left = self.device_memory_bytes + taken.iter().map(|(_, bytes)| bytes).sum::<f64>();
        let kept_free = [
            ("device memory", self.device_memory_bytes),
            ("kept free by gpu_memory_utilization", self.kv_cache_bytes - left),
        ];
        kept_free.into_iter().chain(taken).collect()
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
        let tokens = |blocks: u32| u64::from(blocks) * u64::from(self.block_size);
        let (size, bytes, blocks) = (self.block_size, self.kv_bytes_per_token, self.pool_blocks);
        write!(f, "/ ({size} tokens x {bytes:.0} bytes) = {blocks} blocks, {} tokens", tokens(blocks))?;
        if self.window_blocks > 0 {
            let most = self.blocks_of_windows(self.window_blocks);
            let logged = tokens(self.num_gpu_blocks);
            write!(f, "; a request's windows take up to {most} blocks, and the engine logs {logged} tokens")?;
        }
        match self.state_blocks_per_request {
            0 => Ok(()),
            blocks => write!(f, "; a request's states take {blocks} blocks"),
        }
    }
}

/// The blocks that a rank's memory is divided into.
struct CacheCost {
    window_bytes: f64,
    bytes_per_token: f64,
    block_size: u32,
    state_blocks: u32,
    window_share: f64,
    window_blocks: u32,
    /// Tokens that the engine's log names; `None` for those of the blocks.
    logged_tokens: Option<f64>,
}

impl CacheCost {
    /// Returns the cost of a token in all layers that are cached, in blocks of `block_size` tokens.
    fn plain(bytes_per_token: f64, block_size: u32) -> Self {
        CacheCost {
            window_bytes: 0.0,
            bytes_per_token,
            block_size,
            state_blocks: 0,
            window_share: 0.0,
            window_blocks: 0,
            logged_tokens: None,
        }
    }

    fn num_blocks(&self, available_bytes: f64) -> u32 {
        // The conversion saturates below zero and above u32::MAX.
        ((available_bytes - self.window_bytes) / (self.bytes_per_token * f64::from(self.block_size))).floor() as u32
    }
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
