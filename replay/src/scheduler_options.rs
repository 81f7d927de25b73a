//! The engine arguments that only the scheduler uses.

use ridgepoint::arguments;
use ridgepoint::arguments::{Engines, Kind, Section, ServedOn};
use ridgepoint::input::NumberRange;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Order of waiting requests, and choice of the request to preempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SchedulingPolicy {
    /// First come, first served. The request that was scheduled last is preempted.
    #[default]
    Fcfs,
    /// Lowest [`priority`](crate::workload::WorkloadRequest::priority) value first, ties by arrival. The highest is preempted.
    Priority,
}

arguments! {
    /// Arguments of the scheduler, under vLLM's names and with vLLM's defaults.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct SchedulerOptions,
    /// The rows of [`SchedulerOptions`].
    SCHEDULER_ARGUMENTS of Section::Scheduler;

    enable_prefix_caching: bool = true, "Reuse KV blocks of equal prompt prefixes",
        Kind::Switch, default("true");
    enable_chunked_prefill: bool = true, "Split prompts over several steps; without it a prompt that exceeds the rest of the token budget waits",
        Kind::Switch, engines(Engines::VLLM.and(Engines::TRTLLM)), default("true; false under TensorRT-LLM"), rule(whole_prompts);
    long_prefill_token_threshold: u32 = 0, "Most tokens of one prompt in a step; 0 sets no limit",
        Kind::Tokens(0, u32::MAX as u64), default("0");
    #[serde(default, skip_serializing_if = "ridgepoint::units::is_zero")]
    watermark: f64 = 0.0, "Share of the KV blocks that the admission of a waiting request leaves free while others run",
        Kind::Number(NumberRange::between(0.0, 1.0_f64.next_down(), "")), must_be("a share of the blocks, at least 0 and below 1"), value("SHARE"), default("0");
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    scheduler_reserve_full_isl: bool = false, "Admit a prompt only if the free KV blocks hold all of it, not only its first chunk",
        Kind::Switch, default("false; vLLM sets it since 0.19");
    scheduling_policy: SchedulingPolicy = SchedulingPolicy::Fcfs, "Order of waiting requests: first come, first served, or lowest priority value first",
        Kind::Name(&["fcfs", "priority"]), value("POLICY"), default("fcfs");
    async_scheduling: bool = true, "Schedule the next step while one runs",
        Kind::Switch, default("true; false before vLLM 0.14"), rule(before_0_14);
    #[serde(default = "one", skip_serializing_if = "is_one")]
    api_server_count: u32 = 1, "Processes of the front end, each with an event loop that takes host.front_end_us for each of its requests",
        Kind::Whole(1, 1024), engines(Engines::VLLM.and(Engines::SGLANG)), default("1"), alias(&["tokenizer_worker_num"]);
    #[serde(default = "one", skip_serializing_if = "is_one")]
    stream_interval: u32 = 1, "Tokens that a client gets together: the first alone, then so many at once, and the rest at the end. ITL is the time between them",
        Kind::Whole(1, 65_536), engines(Engines::ALL), default("1");
}

/// One process of the front end; tokens one by one.
fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

/// Whether a step is scheduled while another runs, by default.
///
/// # Source
/// `SchedulerConfig.async_scheduling` (`vllm/config/scheduler.py`): false up to vLLM 0.13.0, chosen by the engine since 0.14.0. The
/// other engines overlap scheduling by default.
fn before_0_14(on: &ServedOn<'_>) -> Option<Value> {
    (on.engine.vllm_version() < (0, 14)).then_some(Value::Bool(false))
}

/// Whether prompts are split, by default.
///
/// # Source
/// TensorRT-LLM 1.2, `LlmArgs.enable_chunked_prefill` (`llmapi/llm_args.py`): false.
fn whole_prompts(on: &ServedOn<'_>) -> Option<Value> {
    on.engine.is_trtllm().then_some(Value::Bool(false))
}

impl SchedulerOptions {
    /// Returns the most of `tokens` prompt tokens that one step takes of a request.
    pub(super) fn chunk(&self, tokens: u32) -> u32 {
        match self.long_prefill_token_threshold {
            0 => tokens,
            threshold => tokens.min(threshold),
        }
    }
}
