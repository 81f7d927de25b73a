//! The arguments of SGLang's scheduler.

use ridgepoint::arguments;
use ridgepoint::arguments::{Engines, Kind, Section, ServedOn};
use ridgepoint::input::NumberRange;
use ridgepoint::sglang_chunk;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Order of waiting requests under SGLang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SglangPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Longest cached prefix first. Of those whose first 32 tokens are not cached and equal, all but one come last. Beyond 128 requests
    /// the order stays.
    Lpm,
    /// In the order of a walk through the tree of cached prefixes, branches with most requests first.
    DfsWeight,
    /// Longest output first.
    Lof,
}

arguments! {
    /// Arguments of SGLang's scheduler, under SGLang's names and with its defaults.
    ///
    /// # Source
    /// `ServerArgs` (`python/sglang/srt/server_args.py`, 0.5.9) and `PrefillAdder` (`managers/schedule_policy.py`).
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub struct SglangOptions,
    /// The rows of [`SglangOptions`].
    SGLANG_SCHEDULER_ARGUMENTS of Section::Scheduler;

    chunked_prefill_size: i32 = 8192, "Most prompt tokens of a step of prompts; -1 computes each prompt whole",
        Kind::Own(chunk_size), must_be("a number of tokens of at least 1, or -1"), engines(Engines::SGLANG), value("TOKENS"), default("2048 to 16384 by the GPU's memory"), rule(chunk_of_memory);
    max_prefill_tokens: u32 = 16_384, "Prompt tokens beyond which a step admits no further request",
        Kind::Tokens(1, u32::MAX as u64), engines(Engines::SGLANG), default("16384");
    schedule_conservativeness: f64 = 1.0, "Factor on the share of output tokens that admission keeps KV cache for",
        Kind::Number(NumberRange::from_zero(1000.0, "")), engines(Engines::SGLANG), value("FACTOR"), default("1");
    scheduler_recv_interval: u32 = 1, "Rounds of decodes after which new requests are taken; a step of prompts counts for all of them",
        Kind::Whole(1, u32::MAX as u64), engines(Engines::SGLANG), default("1");
    #[serde(skip_serializing_if = "is_fcfs")]
    schedule_policy: SglangPolicy = SglangPolicy::Fcfs, "Order of waiting requests: first come, first served; longest cached prefix first; branches of the tree of prefixes with most requests first; longest output first",
        Kind::Name(&["fcfs", "lpm", "dfs-weight", "lof"]), must_be("fcfs, lpm, dfs-weight or lof: random, priority and routing-key are not modelled"), engines(Engines::SGLANG), value("POLICY"), default("fcfs");
    enable_mixed_chunk: bool = false, "Decodes join steps of prompts",
        Kind::Switch, engines(Engines::SGLANG);
    ignore_eos: bool = true, "Requests end at their length alone, as those of benchmarks do: without a prefix cache, admission follows each to its end",
        Kind::Switch, engines(Engines::SGLANG), default("true");
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_fcfs(policy: &SglangPolicy) -> bool {
    *policy == SglangPolicy::Fcfs
}

/// The default of `chunked_prefill_size`.
fn chunk_of_memory(on: &ServedOn<'_>) -> Option<Value> {
    on.engine.is_sglang().then(|| sglang_chunk(on.hardware).into())
}

fn chunk_size(value: &Value) -> Option<Value> {
    let text = value.as_str().and_then(|text| text.parse().ok());
    let tokens = value.as_i64().or(text)?;
    (tokens == -1 || (1..=i64::from(i32::MAX)).contains(&tokens)).then(|| tokens.into())
}

impl SglangOptions {
    /// Most prompt tokens of a step of prompts; `None` without chunks.
    pub(super) fn chunk(&self) -> Option<u32> {
        u32::try_from(self.chunked_prefill_size).ok().filter(|tokens| *tokens > 0)
    }

    /// Most prompt tokens that a step is made for.
    pub(super) fn most_prefill_tokens(&self) -> u32 {
        self.chunk().unwrap_or(self.max_prefill_tokens)
    }

    /// What is wrong with them, with pages of so many tokens.
    pub(super) fn problems(&self, page: u32) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(chunk) = self.chunk().filter(|chunk| *chunk < page) {
            problems.push(format!(
                "chunked_prefill_size = {chunk} is less than the page of {page} tokens: no prompt is ever cut to it"
            ));
        }
        if self.max_prefill_tokens == 0 {
            problems.push("max_prefill_tokens = 0 must be at least 1".to_owned());
        }
        problems
    }
}
