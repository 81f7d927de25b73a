//! The host's time for prefix caching: hashing, looking up, and keeping the table of cached blocks.

use ridgepoint::units::{US_PER_MS, ns_to_us, real};
use serde::Serialize;

use super::WatchedReplay;
use super::hits::{Hits, is_scheduled};
use crate::block_lives::BlockStats;
use crate::record::Outcome;

/// What operations on one block take on one core of a server CPU, µs.
///
/// # Source
/// [`hash_us`](Self::hash_us): `hash_block_tokens` of vLLM 0.32.0 with sha256. The others: the classes of vLLM 0.19.0
/// (`FullAttentionManager.find_longest_cache_hit` and `BlockPool`), timed by `tests/fixtures/vllm_schedules/time_prefix_cache.py` on an AMD
/// EPYC with Python 3.11: medians of at least 200 runs over 512 blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PrefixCachePrices {
    /// To hash the tokens of a full block of 16, 32 and 128 tokens. Other sizes lie on the line through the two nearest.
    pub hash_us: [f64; 3],
    /// To find a hash in the table of cached blocks.
    pub lookup_hit_us: f64,
    /// To look for a hash in vain.
    pub lookup_miss_us: f64,
    /// To add a reference to a block that was found, and to take it out of the free queue.
    pub touch_us: f64,
    /// To enter a full block into the table of cached blocks.
    pub insert_us: f64,
    /// To take an evicted block out of this table.
    pub evict_us: f64,
}

/// Tokens of the blocks that [`PrefixCachePrices::hash_us`] prices.
const HASHED_TOKENS: [f64; 3] = [16.0, 32.0, 128.0];

impl Default for PrefixCachePrices {
    fn default() -> Self {
        PrefixCachePrices {
            hash_us: [1.0, 1.2, 4.3],
            lookup_hit_us: 0.64,
            lookup_miss_us: 0.38,
            touch_us: 0.13,
            insert_us: 0.49,
            evict_us: 0.15,
        }
    }
}

impl PrefixCachePrices {
    /// To hash a full block of `block_size` tokens, µs.
    ///
    /// ```
    /// use ridgepoint_replay::PrefixCachePrices;
    ///
    /// // Between 32 and 128 tokens: 1.2 + (64 − 32) / (128 − 32) × (4.3 − 1.2).
    /// let hash_us = PrefixCachePrices::default().hash_block_us(64);
    /// assert!((hash_us - 2.2333).abs() < 1e-4, "{hash_us}");
    /// ```
    pub fn hash_block_us(&self, block_size: u32) -> f64 {
        let ([small, middle, large], [small_us, middle_us, large_us]) = (HASHED_TOKENS, self.hash_us);
        let tokens = f64::from(block_size);
        let (from, to, from_us, to_us) = match tokens < middle {
            true => (small, middle, small_us, middle_us),
            false => (middle, large, middle_us, large_us),
        };
        (from_us + (tokens - from) / (to - from) * (to_us - from_us)).max(0.0)
    }

    /// A remark if no block of about this size was timed.
    pub fn extrapolated(&self, block_size: u32) -> Option<String> {
        let [small, _, large] = HASHED_TOKENS;
        let is_outside = !(small..=large).contains(&f64::from(block_size));
        is_outside.then(|| {
            format!("block_size = {block_size}: hashing was timed for blocks of {small} to {large} tokens, and its price is extrapolated")
        })
    }
}

/// The host's time for prefix caching in a replay. JSON keys are stable.
///
/// The replay does not wait for it: the latency model's delays of the host contain what a real server took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostCost {
    /// The prices.
    pub prices: PrefixCachePrices,
    /// Blocks that were hashed: the full ones of prompts and outputs.
    pub hashed_blocks: u64,
    /// Blocks that were entered into the table of cached blocks. Those computed again after a preemption are left out.
    pub inserted_blocks: u64,
    /// Time for hashing, ms.
    pub hash_ms: f64,
    /// Time for looking up hashes, ms.
    pub lookup_ms: f64,
    /// Time for taking what was found, ms.
    pub touch_ms: f64,
    /// Time for entering blocks into the table, and for taking them out, ms.
    pub table_ms: f64,
    /// The sum, ms.
    pub total_ms: f64,
    /// The sum by request that was scheduled, µs.
    pub per_request_us: f64,
    /// Share of the time until the last request ended.
    pub run_share: Option<f64>,
}

impl HostCost {
    pub(super) fn of(of: &WatchedReplay<'_>, blocks: &BlockStats, hits: &Hits) -> Self {
        let (prices, block_size) = (of.prices, u64::from(of.engine.block_size.max(1)));
        let (mut hashed_blocks, mut full_blocks) = (0, 0);
        for record in of.replay.records.iter().filter(|record| is_scheduled(record)) {
            let num_output_tokens = if record.outcome == Outcome::Finished { record.num_output_tokens } else { 0 };
            let num_tokens = u64::from(record.num_prompt_tokens) + u64::from(num_output_tokens);
            hashed_blocks += num_tokens / block_size;
            // The last token is sampled and never computed.
            full_blocks += num_tokens.saturating_sub(u64::from(num_output_tokens > 0)) / block_size;
        }
        let inserted_blocks = full_blocks.saturating_sub(hits.gpu_hit_tokens / block_size);
        let ms = |count: u64, price_us: f64| real(count) * price_us / US_PER_MS;
        let hash_ms = ms(hashed_blocks, prices.hash_block_us(of.engine.block_size));
        let lookup_ms = ms(blocks.lookup_hits, prices.lookup_hit_us) + ms(blocks.lookup_misses, prices.lookup_miss_us);
        let touch_ms = ms(blocks.hits, prices.touch_us);
        let table_ms = ms(inserted_blocks, prices.insert_us) + ms(blocks.evicted, prices.evict_us);
        let total_ms = hash_ms + lookup_ms + touch_ms + table_ms;
        let run_us = ns_to_us(of.replay.counters.end_ns);
        HostCost {
            prices,
            hashed_blocks,
            inserted_blocks,
            hash_ms,
            lookup_ms,
            touch_ms,
            table_ms,
            total_ms,
            per_request_us: total_ms * US_PER_MS / real(hits.requests.max(1)),
            run_share: (run_us > 0.0).then(|| total_ms * US_PER_MS / run_us),
        }
    }
}
