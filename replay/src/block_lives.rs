//! The lives of KV blocks: how long their content lasts, how long it is idle before it is evicted, and how often it is found.
//!
//! Mirrors `KVCacheMetricsCollector` (vLLM 0.19.0, `vllm/v1/core/kv_cache_metrics.py`), with three differences. It follows every block
//! instead of a sample of one in a hundred, it keeps all gaps between the uses of a block instead of the last three, and it counts them
//! when they occur, so that blocks which are never evicted have gaps too.

use hdrhistogram::Histogram;
use ridgepoint::Result;
use ridgepoint::units::{NS_PER_MS, real_wide};
use serde::Serialize;

use super::distribution::Distribution;
use super::gaps::new_histogram;

/// Counts and durations of the KV blocks of a replay with prefix caching. JSON keys are stable.
///
/// A life begins when a block is allocated and ends when it is allocated again, as its content is evicted then. A use is the
/// allocation, or a hit: another request that finds the content.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockStats {
    /// Lives that began.
    pub allocated: u64,
    /// Lives that ended.
    pub evicted: u64,
    /// Lives that ended without a hit.
    pub evicted_without_hit: u64,
    /// Blocks whose life had not ended with the replay.
    pub resident: u64,
    /// Hits: blocks that a request found and took.
    pub hits: u64,
    /// Look-ups of requests. A request that waits is looked up each time the scheduler comes to it.
    pub lookups: u64,
    /// Hashes that look-ups found.
    pub lookup_hits: u64,
    /// Hashes that look-ups did not find. A look-up ends at the first of them.
    pub lookup_misses: u64,
    /// Time from the allocation to the eviction, ms; of lives that ended.
    pub lifetime_ms: Option<Distribution>,
    /// Time from the last use to the eviction, ms; of lives that ended.
    pub idle_ms: Option<Distribution>,
    /// Time between two hits of a life, ms.
    pub reuse_gap_ms: Option<Distribution>,
}

/// Durations with three significant digits and an exact mean.
#[derive(Debug)]
struct Durations {
    histogram: Histogram<u64>,
    sum_ns: u128,
}

impl Durations {
    fn new() -> Result<Self> {
        Ok(Durations { histogram: new_histogram()?, sum_ns: 0 })
    }

    fn add(&mut self, ns: u64) {
        self.sum_ns += u128::from(ns);
        // The histogram resizes itself, so that no duration is out of its range.
        let _ = self.histogram.record(ns);
    }

    fn distribution(&self) -> Option<Distribution> {
        let mean_ms = real_wide(self.sum_ns) / self.histogram.len().max(1) as f64 / NS_PER_MS as f64;
        Distribution::of_ns_histograms([&self.histogram], mean_ms)
    }
}

/// The life of a block that goes on.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    is_begun: bool,
    was_hit: bool,
    born_ns: u64,
    last_use_ns: u64,
}

/// Follows the blocks of a pool.
#[derive(Debug)]
pub(super) struct BlockLives {
    /// Time of the scheduler's iteration.
    pub(super) now_ns: u64,
    lives: Vec<Life>,
    counted: BlockStats,
    lifetimes: Durations,
    idle: Durations,
    reuse_gaps: Durations,
}

impl BlockLives {
    pub(super) fn new(num_blocks: u32) -> Result<Self> {
        Ok(BlockLives {
            now_ns: 0,
            lives: vec![Life::default(); num_blocks as usize],
            counted: BlockStats::default(),
            lifetimes: Durations::new()?,
            idle: Durations::new()?,
            reuse_gaps: Durations::new()?,
        })
    }

    /// Notes that a block is allocated, which ends the life that it had.
    pub(super) fn allocated(&mut self, block: u32) {
        let now_ns = self.now_ns;
        let Some(life) = self.lives.get_mut(block as usize) else { return };
        let before =
            std::mem::replace(life, Life { is_begun: true, was_hit: false, born_ns: now_ns, last_use_ns: now_ns });
        self.counted.allocated += 1;
        if before.is_begun {
            self.counted.evicted += 1;
            self.counted.evicted_without_hit += u64::from(!before.was_hit);
            self.lifetimes.add(now_ns - before.born_ns);
            self.idle.add(now_ns - before.last_use_ns);
        }
    }

    /// Notes that a request found a block and took it.
    pub(super) fn hit(&mut self, block: u32) {
        let now_ns = self.now_ns;
        let Some(life) = self.lives.get_mut(block as usize) else { return };
        if life.was_hit {
            self.reuse_gaps.add(now_ns - life.last_use_ns);
        }
        (life.was_hit, life.last_use_ns) = (true, now_ns);
        self.counted.hits += 1;
    }

    /// Notes a look-up of a request that may find `most` blocks and found `found`.
    pub(super) fn looked_up(&mut self, found: u32, most: u32) {
        self.counted.lookups += 1;
        self.counted.lookup_hits += u64::from(found);
        self.counted.lookup_misses += u64::from(found < most);
    }

    /// What was counted up to now.
    pub(super) fn stats(&self) -> BlockStats {
        BlockStats {
            resident: self.lives.iter().filter(|life| life.is_begun).count() as u64,
            lifetime_ms: self.lifetimes.distribution(),
            idle_ms: self.idle.distribution(),
            reuse_gap_ms: self.reuse_gaps.distribution(),
            ..self.counted
        }
    }
}
