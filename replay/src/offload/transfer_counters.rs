//! Counters of the copies of one direction: between GPU and host, or between host and disk.

use serde::Serialize;

use crate::observe::TransferEvent;

/// The copies of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TransferCounters {
    /// Number of copies that ended.
    pub count: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Bytes in them, on each GPU.
    pub bytes: u64,
    /// Time from their submission to their end, ns; it includes the wait for the copies before them.
    pub time_ns: u64,
}

impl TransferCounters {
    /// Counts a copy of blocks of so many bytes.
    pub(super) fn add(&mut self, copy: &TransferEvent, block_bytes: u64) {
        self.count += 1;
        self.blocks += u64::from(copy.num_blocks);
        self.bytes += u64::from(copy.num_blocks).saturating_mul(block_bytes);
        self.time_ns += copy.end_ns - copy.ready_ns;
    }
}
