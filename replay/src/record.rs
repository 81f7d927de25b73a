//! The result of a replay: one record per request, the gaps between tokens, and counters of the engine.

use hdrhistogram::Histogram;
use ridgepoint::Result;
use ridgepoint::units::ns_to_ms;
use serde::Serialize;

use super::gaps::new_histogram;
use super::offload::OffloadCounters;

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its client has every token.
    Finished,
    /// Rejected: prompt and output are longer than `max_model_len`.
    Rejected,
    /// Still waiting or running when the replay was stopped.
    #[default]
    Unfinished,
}

/// The timestamps and counts of one request. Times are ns from the start of the workload. Times that an unfinished request
/// did not reach are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RequestRecord {
    /// Stage of the load.
    pub stage: u32,
    /// Which turn of its session it is, from 0; 0 for a request of its own.
    pub turn: u32,
    /// End of the request.
    pub outcome: Outcome,
    /// Tokens of the prompt.
    pub num_prompt_tokens: u32,
    /// Number of tokens that it generates.
    pub num_output_tokens: u32,
    /// Prompt tokens found in the prefix cache when it was first scheduled, plus tokens found after a preemption that had
    /// not been computed before.
    pub num_cached_tokens: u32,
    /// Those of the cached tokens that were loaded from the host's tier.
    pub num_loaded_tokens: u32,
    /// Loaded tokens that the host first read from the disk for this request; a part of `num_loaded_tokens`.
    pub num_disk_tokens: u32,
    /// Number of preemptions.
    pub num_preemptions: u32,
    /// Time at which the client sent it.
    pub arrival_ns: u64,
    /// Time at which it entered the scheduler's waiting queue.
    pub queued_ns: u64,
    /// Time at which the engine first scheduled it.
    pub scheduled_ns: u64,
    /// Time that it waited for blocks from the host's tier: from the launch of each load until the engine went on with it, and before that
    /// for the disk.
    pub load_ns: u64,
    /// Time at which the client had the first token.
    pub first_token_ns: u64,
    /// Time at which the client had the last token, or the rejection.
    pub finish_ns: u64,
}

impl RequestRecord {
    /// Time to first token, ms; 0 for a request that had none.
    pub fn ttft_ms(&self) -> f64 {
        ns_to_ms(self.first_token_ns.saturating_sub(self.arrival_ns))
    }

    /// Time in the waiting queue before the request was first scheduled, ms; 0 if it never was.
    pub fn queue_wait_ms(&self) -> f64 {
        ns_to_ms(self.scheduled_ns.saturating_sub(self.queued_ns))
    }

    /// End-to-end latency: from sending to the last token, ms.
    pub fn e2e_ms(&self) -> f64 {
        ns_to_ms(self.finish_ns.saturating_sub(self.arrival_ns))
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

/// Counters over a whole replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EngineCounters {
    /// Steps with at least one request.
    pub steps: u64,
    /// Steps without requests, in which a data-parallel rank took part because another one had work.
    #[serde(skip_serializing_if = "ridgepoint::units::is_zero")]
    pub dummy_steps: u64,
    /// Tokens scheduled in all steps.
    pub scheduled_tokens: u64,
    /// Scheduled prompt tokens, and tokens computed again after a preemption.
    pub prefill_tokens: u64,
    /// Scheduled tokens that had been computed before and were lost in a preemption.
    pub recomputed_tokens: u64,
    /// Prompt tokens found in the prefix cache, including hits after a preemption.
    pub cached_tokens: u64,
    /// Number of preemptions.
    pub preemptions: u64,
    /// Decodes that verified drafts.
    #[serde(skip_serializing_if = "ridgepoint::units::is_zero")]
    pub verifications: u64,
    /// Drafts that they accepted.
    #[serde(skip_serializing_if = "ridgepoint::units::is_zero")]
    pub accepted_tokens: u64,
    /// Maximum length of the running queue.
    pub max_running: u32,
    /// Maximum length of the waiting queue.
    pub max_waiting: u32,
    /// Maximum number of KV blocks in use.
    pub max_blocks_in_use: u32,
    /// Time for which the GPUs were busy, ns.
    pub busy_ns: u64,
    /// Time at which the last request ended for its client, ns.
    pub end_ns: u64,
}

impl Replay {
    /// Adds the gaps between tokens and the counters of another engine.
    ///
    /// # Errors
    /// Those of a histogram that cannot be made.
    pub(super) fn add(&mut self, other: &Replay) -> Result<()> {
        while self.inter_token_ns.len() < other.inter_token_ns.len() {
            self.inter_token_ns.push(new_histogram()?);
        }
        for (all, of) in self.inter_token_ns.iter_mut().zip(&other.inter_token_ns) {
            let _ = all.add(of);
        }
        self.counters = self.counters.with(&other.counters);
        self.tokens_come_together |= other.tokens_come_together;
        Ok(())
    }
}

impl EngineCounters {
    /// The counters of two engines together: sums, the largest of maxima, and the later end.
    #[must_use]
    pub(super) fn with(mut self, other: &EngineCounters) -> Self {
        self.steps += other.steps;
        self.dummy_steps += other.dummy_steps;
        self.scheduled_tokens += other.scheduled_tokens;
        self.prefill_tokens += other.prefill_tokens;
        self.recomputed_tokens += other.recomputed_tokens;
        self.cached_tokens += other.cached_tokens;
        self.preemptions += other.preemptions;
        self.verifications += other.verifications;
        self.accepted_tokens += other.accepted_tokens;
        self.max_running = self.max_running.max(other.max_running);
        self.max_waiting = self.max_waiting.max(other.max_waiting);
        self.max_blocks_in_use = self.max_blocks_in_use.max(other.max_blocks_in_use);
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self
    }
}

/// The result of a replay.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// One per request, in order of arrival.
    pub records: Vec<RequestRecord>,
    /// Histograms of the gaps between a request's tokens in ns, by stage, with three significant digits.
    pub inter_token_ns: Vec<Histogram<u64>>,
    /// Counters of the engine.
    pub counters: EngineCounters,
    /// Whether clients may have got several tokens together, between which there is no gap.
    pub tokens_come_together: bool,
    /// Counters of the host's tier; `None` without one.
    pub offload: Option<OffloadCounters>,
}
