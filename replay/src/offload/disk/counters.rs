//! Counters of the disk tier over a whole replay.

use ridgepoint::units::ns_to_ms;
use serde::Serialize;

use super::super::transfer_counters::TransferCounters;

/// Copies between host and disk, and hits on the disk. The bytes of its copies are those of all GPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskCounters {
    /// Tokens of the host's `hit_tokens` that the host had read from the disk for their request.
    pub hit_tokens: u64,
    /// Tokens of the host's `preempted_hit_tokens` that the host had read from the disk for their request.
    pub preempted_hit_tokens: u64,
    /// Copies to the disk.
    pub writes: TransferCounters,
    /// Copies to the host.
    pub reads: TransferCounters,
    /// Blocks that the disk had and the host had no room for, so that they were computed.
    pub refused_reads: u64,
    /// Blocks that the disk gave up for others; 0 without a limit.
    pub evicted_blocks: u64,
    /// Maximum number of blocks that the disk held.
    pub max_blocks_in_use: u64,
    /// Number of times that a request waited for the disk: for the answer to a look-up, or for a read.
    pub waits: u64,
    /// Time of these waits, ns.
    pub wait_ns: u64,
}

impl DiskCounters {
    /// Mean wait of a request for the disk, ms.
    pub fn mean_wait_ms(&self) -> Option<f64> {
        (self.waits > 0).then(|| ns_to_ms(self.wait_ns) / self.waits as f64)
    }
}
