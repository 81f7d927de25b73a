//! One request of a workload. What its prompt says matters only as far as others say the same.

use std::sync::Arc;

/// A piece of a prompt that other prompts may start with as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Equal ids are equal tokens, offset by offset.
    pub id: u64,
    /// Its length in tokens.
    pub num_tokens: u32,
}

/// The beginning of a prompt, piece by piece, shared between requests that have the same one.
pub type Content = Arc<[Segment]>;

/// A request as a client sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadRequest {
    /// When it is sent, ns from the start of the workload.
    pub arrival_ns: u64,
    /// Tokens of the prompt, at least 1.
    pub num_prompt_tokens: u32,
    /// Tokens that it generates, at least 1.
    pub num_output_tokens: u32,
    /// vLLM's priority: lower ones first where the policy is `priority`.
    pub priority: i32,
    /// Stage of the load, from 0.
    pub stage: u32,
    /// What the prompt begins with, where others may begin alike; tokens beyond it are the request's own.
    pub content: Option<Content>,
}

impl WorkloadRequest {
    /// A request whose prompt nobody shares, at priority 0 in stage 0.
    pub fn new(arrival_ns: u64, num_prompt_tokens: u32, num_output_tokens: u32) -> Self {
        WorkloadRequest { arrival_ns, num_prompt_tokens, num_output_tokens, priority: 0, stage: 0, content: None }
    }
}
