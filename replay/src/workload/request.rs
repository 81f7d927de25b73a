//! One request of a workload. The contents of its tokens matter only for prefixes that it shares with other prompts.

use std::sync::Arc;

use ridgepoint::model::OwnSampling;

/// A piece of a text that prompts may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// Identity of the tokens: segments with equal ids have equal tokens at equal offsets.
    pub id: u64,
    /// Its length in tokens.
    pub num_tokens: u32,
}

/// The beginning of a text, piece by piece. Requests with the same beginning share it.
pub type Content = Arc<[Segment]>;

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadRequest {
    /// Send time, ns from the start of the workload.
    pub arrival_ns: u64,
    /// Tokens of the prompt, at least 1.
    pub num_prompt_tokens: u32,
    /// Generated tokens, at least 1.
    pub num_output_tokens: u32,
    /// vLLM's priority: with the policy `priority`, lower ones come first.
    pub priority: i32,
    /// Stage of the load, from 0.
    pub stage: u32,
    /// Turn of its session, from 0; 0 for a request of no session.
    pub turn: u32,
    /// The session that it continues, by number; `None` for a request of its own.
    pub session: Option<u32>,
    /// The beginning of the request's tokens that other prompts may share: of the prompt, then of the tokens that it generates, which the
    /// prompt of the session's next turn repeats. Tokens beyond it belong to this request alone.
    pub content: Option<Content>,
    /// Prompt tokens that a real engine found in its prefix cache, where a capture says so without the contents. The request finds
    /// as many when it is first scheduled, or as many as `content` finds if that is more.
    pub num_cached_tokens: u32,
    /// Sampling parameters that the request sets itself.
    pub sampling: OwnSampling,
}

impl WorkloadRequest {
    /// Returns a request of priority 0 in stage 0 whose prompt shares nothing and that sets no sampling parameters.
    pub fn new(arrival_ns: u64, num_prompt_tokens: u32, num_output_tokens: u32) -> Self {
        WorkloadRequest {
            arrival_ns,
            num_prompt_tokens,
            num_output_tokens,
            priority: 0,
            stage: 0,
            turn: 0,
            session: None,
            content: None,
            num_cached_tokens: 0,
            sampling: OwnSampling::default(),
        }
    }
}
