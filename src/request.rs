//! What the scheduler put into a step: one entry per request.

use serde::{Deserialize, Serialize};

/// One request's share of a step, in vLLM's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Tokens already in the KV cache before this step: the KV length (also called `progress_index`).
    #[serde(alias = "progress_index")]
    pub num_computed_tokens: u32,
    /// Tokens processed in this step: 1 for a decode, the chunk for a prefill (also called `num_new_tokens`).
    #[serde(alias = "num_new_tokens")]
    pub num_scheduled_tokens: u32,
    /// Whether the step ends with a token sampled for this request: true for a decode and for a prompt's last chunk,
    /// false for the chunks before it.
    #[serde(default = "samples_by_default")]
    pub samples: bool,
}

fn samples_by_default() -> bool {
    true
}

impl Request {
    /// A decode: one new token after `num_computed_tokens` in the cache.
    pub fn decode(num_computed_tokens: u32) -> Self {
        Request { num_computed_tokens, num_scheduled_tokens: 1, samples: true }
    }

    /// A prompt's last (or only) chunk of `num_scheduled_tokens`, after `num_computed_tokens` in the cache.
    pub fn prefill(num_scheduled_tokens: u32, num_computed_tokens: u32) -> Self {
        Request { num_computed_tokens, num_scheduled_tokens, samples: true }
    }

    /// True for one scheduled token on top of a cache: what decode kernels run.
    pub fn is_decode(&self) -> bool {
        self.num_scheduled_tokens == 1 && self.num_computed_tokens > 0
    }
}
