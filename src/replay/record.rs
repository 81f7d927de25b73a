//! What a replay leaves behind: one record per request, the gaps between tokens, and counts of the engine's work.

use hdrhistogram::Histogram;
use serde::Serialize;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its client has every token.
    Finished,
    /// Refused: prompt and output are longer than `max_model_len`.
    Rejected,
    /// Still waiting or running when the replay was stopped.
    Unfinished,
}

/// One request's way through the engine. Times are ns from the start of the workload and those of an unfinished request
/// that did not come are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RequestRecord {
    /// Stage of the load.
    pub stage: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Tokens of the prompt.
    pub num_prompt_tokens: u32,
    /// Tokens that it generates.
    pub num_output_tokens: u32,
    /// Prompt tokens found in the cache when it was first scheduled, and those found after a preemption that had not been
    /// computed before it.
    pub num_cached_tokens: u32,
    /// Times that it was preempted.
    pub num_preemptions: u32,
    /// When its client sent it.
    pub arrival_ns: u64,
    /// When the engine first scheduled it.
    pub scheduled_ns: u64,
    /// When its client had the first token.
    pub first_token_ns: u64,
    /// When its client had the last token, or was refused.
    pub finish_ns: u64,
}

impl RequestRecord {
    /// Time to first token, ms.
    pub fn ttft_ms(&self) -> f64 {
        self.first_token_ns.saturating_sub(self.arrival_ns) as f64 / 1e6
    }

    /// Time from sending to the last token, ms.
    pub fn e2e_ms(&self) -> f64 {
        self.finish_ns.saturating_sub(self.arrival_ns) as f64 / 1e6
    }

    /// Time per output token after the first, ms: (E2E − TTFT) / (output tokens − 1); `None` for a single token.
    ///
    /// # Source
    /// vLLM, `vllm/benchmarks/serve.py`.
    pub fn tpot_ms(&self) -> Option<f64> {
        let gaps = self.num_output_tokens.checked_sub(1).filter(|n| *n > 0)?;
        Some((self.e2e_ms() - self.ttft_ms()) / f64::from(gaps))
    }
}

/// Counts over a whole replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct EngineCounters {
    /// Steps with at least one request.
    pub steps: u64,
    /// Tokens scheduled in all of them.
    pub scheduled_tokens: u64,
    /// Those of them that are prompt tokens, or tokens computed again after a preemption.
    pub prefill_tokens: u64,
    /// Those of them that were computed before and lost in a preemption.
    pub recomputed_tokens: u64,
    /// Prompt tokens found in the cache, hits after a preemption included.
    pub cached_tokens: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Most requests in the running queue.
    pub max_running: u32,
    /// Most requests in the waiting queue.
    pub max_waiting: u32,
    /// Most KV blocks that requests held at once.
    pub max_blocks_in_use: u32,
    /// Time that the GPUs worked, ns.
    pub busy_ns: u64,
    /// When the last request was over for its client, ns.
    pub end_ns: u64,
}

/// Everything that a replay found.
#[derive(Debug, Clone)]
pub struct Replay {
    /// One per request, in order of arrival.
    pub records: Vec<RequestRecord>,
    /// Gaps between a request's tokens in ns, by stage; three significant digits.
    pub inter_token_ns: Vec<Histogram<u64>>,
    /// The engine's work.
    pub counters: EngineCounters,
}
