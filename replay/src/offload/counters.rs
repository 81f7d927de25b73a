//! Counters of the host's tier over a whole replay.

use ridgepoint::units::ns_to_ms;
use serde::Serialize;

use super::disk::DiskCounters;
use super::transfer_counters::TransferCounters;

/// Copies between GPU and host, and hits on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OffloadCounters {
    /// Tokens of admitted requests that the GPU's prefix cache did not hold, so that the host was asked. As in vLLM's
    /// `external_prefix_cache_queries` (`BaseCacheStats` in `vllm/v1/metrics/stats.py`), requests that were preempted are not among them.
    pub asked_tokens: u64,
    /// Tokens of these that were loaded from the host, vLLM's `external_prefix_cache_hits`.
    pub hit_tokens: u64,
    /// Tokens looked up on the host by requests that resume after a preemption.
    pub preempted_asked_tokens: u64,
    /// Tokens of these that were loaded from the host.
    pub preempted_hit_tokens: u64,
    /// Copies to the host.
    pub stores: TransferCounters,
    /// Copies to the GPU.
    pub loads: TransferCounters,
    /// Blocks that the host gave up for others.
    pub evicted_blocks: u64,
    /// Blocks that were not stored because all others were read or written; they are offered again.
    pub refused_blocks: u64,
    /// Maximum number of blocks that the host held.
    pub max_blocks_in_use: u32,
    /// Time that requests waited for their loads, ns.
    pub load_wait_ns: u64,
    /// Counters of the disk tier; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskCounters>,
}

impl OffloadCounters {
    /// Tokens that were loaded from the host and used.
    pub fn loaded_tokens(&self) -> u64 {
        self.hit_tokens + self.preempted_hit_tokens
    }

    /// Returns the share of the looked-up tokens that were loaded; `None` if none was looked up.
    pub fn hit_share(&self) -> Option<f64> {
        (self.asked_tokens > 0).then(|| self.hit_tokens as f64 / self.asked_tokens as f64)
    }

    /// Returns the share of the same tokens that the host had read from a disk; `None` without a disk, or if none was looked up.
    pub fn disk_hit_share(&self) -> Option<f64> {
        let disk = self.disk?;
        (self.asked_tokens > 0).then(|| disk.hit_tokens as f64 / self.asked_tokens as f64)
    }

    /// Mean wait of a request that loads, ms.
    pub fn mean_load_wait_ms(&self) -> Option<f64> {
        (self.loads.count > 0).then(|| ns_to_ms(self.load_wait_ns) / self.loads.count as f64)
    }

    /// Counts a request that runs: the tokens that it asked the host for, and those that it loaded.
    pub(super) fn admit(&mut self, was_preempted: bool, asked: u32, hit: u32) {
        let (of_asked, of_hit) = match was_preempted {
            true => (&mut self.preempted_asked_tokens, &mut self.preempted_hit_tokens),
            false => (&mut self.asked_tokens, &mut self.hit_tokens),
        };
        *of_asked += u64::from(asked);
        *of_hit += u64::from(hit);
    }
}
