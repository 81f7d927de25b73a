//! Layers with sliding windows: they share one pool of blocks with the others, and a request keeps few blocks of theirs.
#![expect(clippy::cast_possible_truncation, reason = "a number of blocks is bounded by 32 bits")]

use crate::deployment::Deployment;
use crate::engine::Engine;
use crate::model::Window;
use crate::physics::KvCacheBytes;

/// The first version whose log counts the tokens of requests of `max_model_len`, not those that every group of layers could keep.
const LOGS_REQUESTS_SINCE: (u32, u32) = (0, 21);

/// Returns the number of layers that share a block, for two kinds of so many layers: as many as the rarer kind has, or as the more frequent
/// one if that is less than half as many again. A group that is not full is padded.
///
/// # Source
/// vLLM, `_get_kv_cache_groups_uniform_page_size` (`vllm/v1/core/kv_cache_utils.py`).
pub(super) fn layers_of_a_group(one: f64, other: f64) -> f64 {
    let (fewer, more) = (one.min(other), one.max(other));
    if 2.0 * more < 3.0 * fewer { more } else { fewer }
}

/// Returns the blocks that a request with so many blocks of tokens holds for its sliding windows: `⌈share · min(n, window_blocks)⌉`.
pub fn blocks_of_windows(window_share: f64, window_blocks: u32, token_blocks: u32) -> u32 {
    (window_share * f64::from(token_blocks.min(window_blocks))).ceil() as u32
}

/// How layers with and without sliding windows share a pool.
///
/// # Formula
/// Layers are put into [groups](layers_of_a_group). A block holds `block_size` tokens of the groups without a window. A request holds [more](blocks_of_windows)
/// for its windows, and all requests of a step together a step's tokens.
///
/// # Source
/// vLLM, `SlidingWindowSpec.max_memory_usage_bytes` (`vllm/v1/kv_cache_interface.py`).
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowedPool {
    /// Bytes of a token in the groups without a window, padding included.
    pub full_bytes: f64,
    /// Bytes of a token in the groups with one, padding included.
    pub windowed_bytes: f64,
    /// Tokens of the longest window.
    window: u64,
}

impl WindowedPool {
    /// Returns `None` where all layers keep every token, or all have a window.
    pub fn new(kinds: &[KvCacheBytes]) -> Option<Self> {
        let (mut full, mut windowed, mut window) = ((0.0, 0.0), (0.0, 0.0), 0);
        for kind in kinds {
            let sum = match kind.window {
                Window::Sliding(tokens) => {
                    window = window.max(tokens);
                    &mut windowed
                }
                Window::Full | Window::Chunked(_) | Window::Picked(_) => &mut full,
            };
            *sum = (sum.0 + kind.layers, sum.1 + kind.bytes_per_token);
        }
        if full.0 <= 0.0 || windowed.0 <= 0.0 {
            return None;
        }
        let group = layers_of_a_group(full.0, windowed.0);
        let padded = |(layers, bytes): (f64, f64)| bytes * (layers / group - 1e-9).ceil() * group / layers;
        Some(WindowedPool { full_bytes: padded(full), windowed_bytes: padded(windowed), window })
    }

    /// Blocks' worth of windows for each block of tokens that is within them.
    pub fn share(&self) -> f64 {
        self.windowed_bytes / self.full_bytes
    }

    /// Most blocks of tokens that a request's windows cover: `⌈(w − 1)/b⌉ + 1`.
    pub fn blocks(&self, block_size: u32) -> u32 {
        (self.window.saturating_sub(1).div_ceil(u64::from(block_size.max(1))) + 1).min(u64::from(u32::MAX)) as u32
    }

    /// Bytes that a step's new tokens take in the windows before old ones are freed, at most half of what is there.
    pub fn step_bytes(&self, deployment: &Deployment, max_model_len: u64, available_bytes: f64) -> f64 {
        let tokens = u64::from(deployment.max_num_batched_tokens).min(max_model_len) as f64;
        (self.windowed_bytes * tokens).min(0.5 * available_bytes.max(0.0))
    }

    /// Tokens that the log of the engine's version names.
    pub fn logged_tokens(
        &self,
        deployment: &Deployment,
        max_model_len: u64,
        available_bytes: f64,
        engine: &Engine,
    ) -> f64 {
        if engine.vllm_version() < LOGS_REQUESTS_SINCE {
            return available_bytes / (self.full_bytes + self.windowed_bytes);
        }
        let block_size = u64::from(deployment.block_size.max(1));
        let kept = (self.window.saturating_sub(1) + u64::from(deployment.max_num_batched_tokens)).min(max_model_len);
        let kept = (kept.div_ceil(block_size) + 1) * block_size;
        let request_bytes = self.full_bytes * max_model_len as f64 + self.windowed_bytes * kept as f64;
        max_model_len as f64 * available_bytes / request_bytes
    }
}
