//! Blocks of hybrid models: layers with a state and layers with attention share one pool, so a block holds a state.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use super::windows::layers_of_a_group;
use crate::deployment::Deployment;
use crate::model::{Attention, Model};
use crate::physics::Memory;

/// Tokens that a block of a kernel holds at least (vLLM, `FlashAttentionBackend.get_supported_kernel_block_sizes`).
const KERNEL_BLOCK_TOKENS: u32 = 16;

/// How the layers of a hybrid model share blocks.
///
/// # Source
/// vLLM, `Platform._align_hybrid_block_size` (`vllm/platforms/interface.py`) and `_get_kv_cache_groups_uniform_page_size`
/// (`vllm/v1/core/kv_cache_utils.py`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StateBlocks {
    /// Tokens of a block: the fewest whose keys and values, in one layer, take as much as a state.
    pub block_size: u32,
    /// Bytes of a token in the attention groups, layers that pad a group included.
    pub bytes_per_token: f64,
    /// Blocks that a request holds for its states, whatever its length.
    pub blocks_per_request: u32,
}

impl StateBlocks {
    /// Returns `None` for a model without states.
    ///
    /// # Formula
    /// A block has `a·⌈s / (a·c)⌉` tokens for a state of `s` bytes and `c` bytes of cache per token in one layer, `a` being
    /// `block_size`. Groups have as many layers as the rarer kind; as the more frequent one, if that is less than half as many again.
    /// A request holds a block for each group with a state.
    pub fn new(model: &Model, memory: &Memory, deployment: &Deployment) -> Option<Self> {
        let state = memory.state?;
        let layers = |is_kind: fn(&Attention) -> bool| -> u64 {
            model.layers.iter().filter(|group| is_kind(&group.attention)).map(|group| group.count).sum()
        };
        let with_state = layers(|attention| matches!(attention, Attention::State(_)));
        let with_attention = layers(|attention| matches!(attention, Attention::Gqa(_) | Attention::Mla(_)));
        let cached_layers: f64 = memory.kv_cache.iter().map(|kind| kind.layers).sum();
        let token_bytes = memory.kv_bytes_per_token() / cached_layers;
        let step = deployment.block_size.max(KERNEL_BLOCK_TOKENS);
        let block_size = (state.bytes_per_layer / (f64::from(step) * token_bytes)).ceil() as u32;
        let group = layers_of_a_group(with_state.max(1) as f64, with_attention.max(1) as f64) as u64;
        let (state_groups, attention_groups) = (with_state.div_ceil(group), with_attention.div_ceil(group).max(1));
        let padded_layers = (attention_groups * group) as f64 / with_attention.max(1) as f64;
        Some(StateBlocks {
            block_size: step.saturating_mul(block_size.max(1)),
            bytes_per_token: memory.kv_bytes_per_token() * padded_layers,
            blocks_per_request: u32::try_from(state_groups.div_ceil(attention_groups)).unwrap_or(u32::MAX),
        })
    }
}
