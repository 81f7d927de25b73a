//! What prefix caching saves against what it costs the host, and the hit rate at which both are equal.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of prompt lengths, which are u32")]

use ridgepoint::units::{US_PER_MS, real};
use serde::Serialize;

use super::WatchedReplay;
use super::hits::Hits;
use super::host_cost::HostCost;
use crate::prefill_time::prefill_time_us;
use crate::record::RequestRecord;

/// The balance of prefix caching on the GPU. JSON keys are stable.
///
/// A prompt of `price_prompt_tokens` is timed with and without a cached prefix of `price_cached_tokens`, in chunks mixed with the mean decodes
/// of the load's prefill steps. The difference by cached token is the saved time `s`. A hit token also changes the host's time, by
/// `v` = (look-up + touch − insertion) / block size. With `C` the host's time of this load, `A` the tokens asked for, and `H` the
/// tokens hit, the saved time equals the cost at a hit rate of (C − v·H) / (A·(s − v)).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PrefixCacheBalance {
    /// Prompt whose time prices a token: the mean prompt with hits, or the mean prompt if none has hits.
    pub price_prompt_tokens: u32,
    /// Its cached prefix: the mean of prompts with hits, or half the prompt if none has hits.
    pub price_cached_tokens: u32,
    /// Mean number of decodes in steps with prefill chunks.
    pub mean_decodes_beside: f64,
    /// Prefill time that a hit token saves, µs.
    pub saved_us_per_token: f64,
    /// The host's time that a hit token adds, µs; negative if an insertion takes longer than a look-up and a touch.
    pub cost_us_per_hit_token: f64,
    /// Prefill time that the GPU's hits of this load saved, ms.
    pub saved_ms: f64,
    /// The host's time for prefix caching, ms.
    pub cost_ms: f64,
    /// Saved time less cost, ms.
    pub net_ms: f64,
    /// Share of the prompt tokens that were hits on the GPU.
    pub hit_rate: f64,
    /// Hit rate from which the saved time exceeds the cost; `None` if a hit token saves no more than it costs. A value
    /// above 1 means that no hit rate pays.
    pub break_even_hit_rate: Option<f64>,
}

impl PrefixCacheBalance {
    /// The balance of a replay; `None` if no request was scheduled.
    pub(super) fn of(of: &WatchedReplay<'_>, host: &HostCost, hits: &Hits) -> Option<Self> {
        let hit_rate = hits.gpu_hit_share()?;
        let (prompt, cached) = priced_prompt(&of.replay.records, hits)?;
        let decodes = of.watch.decodes_with_chunks();
        let budget = of.engine.max_num_batched_tokens.saturating_sub(u32::try_from(decodes.len()).unwrap_or(0));
        let time_us =
            |from| prefill_time_us(of.latency, &decodes, from..prompt, of.engine.scheduler.chunk(budget).max(1));
        let saved_us_per_token = ((time_us(0) - time_us(cached)) / f64::from(cached)).max(0.0);
        let prices = &host.prices;
        let block_size = f64::from(of.engine.block_size.max(1));
        let cost_us_per_hit_token = (prices.lookup_hit_us + prices.touch_us - prices.insert_us) / block_size;
        let hit_tokens = real(hits.gpu_hit_tokens);
        let (saved_ms, cost_ms) = (saved_us_per_token * hit_tokens / US_PER_MS, host.total_ms);
        let gain_us = saved_us_per_token - cost_us_per_hit_token;
        let fixed_us = cost_ms * US_PER_MS - cost_us_per_hit_token * hit_tokens;
        Some(PrefixCacheBalance {
            price_prompt_tokens: prompt,
            price_cached_tokens: cached,
            mean_decodes_beside: of.watch.mean_decodes(),
            saved_us_per_token,
            cost_us_per_hit_token,
            saved_ms,
            cost_ms,
            net_ms: saved_ms - cost_ms,
            hit_rate,
            break_even_hit_rate: (gain_us > 0.0).then(|| fixed_us.max(0.0) / (real(hits.asked_tokens) * gain_us)),
        })
    }
}

/// The prompt whose time prices a token, and its cached prefix; `None` if it has a single token.
fn priced_prompt(records: &[RequestRecord], hits: &Hits) -> Option<(u32, u32)> {
    let mut with_hits = Hits::default();
    let gpu_hits = |record: &&RequestRecord| record.num_cached_tokens > record.num_loaded_tokens;
    if hits.gpu_hit_tokens > 0 {
        with_hits = Hits::of(records.iter().filter(gpu_hits));
    }
    let mean = |tokens: u64, requests: u64| (real(tokens) / real(requests.max(1))).round() as u32;
    let (prompt, cached) = match with_hits.requests {
        0 => {
            let prompt = mean(hits.asked_tokens, hits.requests);
            (prompt, prompt / 2)
        }
        requests => (mean(with_hits.asked_tokens, requests), mean(with_hits.gpu_hit_tokens, requests)),
    };
    let cached = cached.min(prompt.saturating_sub(1));
    (cached > 0).then_some((prompt, cached))
}
