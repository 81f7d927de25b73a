//! Counts of KV events.

use serde::Serialize;

/// Counts of one event in one medium.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EventCount {
    /// Name of the event, such as `BlockStored`.
    pub event: String,
    /// Where its blocks are, such as `GPU`; `None` where the event does not say.
    pub medium: Option<String>,
    /// Events.
    pub count: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Their tokens.
    pub tokens: u64,
}

/// What a file of KV events holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct KvEvents {
    /// The file, which the report names.
    pub file: String,
    /// Batches of events.
    pub batches: u64,
    /// Batches that are missing, by the numbers of the others.
    pub lost_batches: u64,
    /// Time from the first batch to the last, s.
    pub duration_s: f64,
    /// Events by name and medium.
    pub events: Vec<EventCount>,
    /// Stored blocks whose parent was not stored before: the file begins late, or the chain is broken.
    pub unknown_parents: u64,
    /// Blocks that were stored with another parent than before: chains that disagree.
    pub other_parents: u64,
    /// Batches that are earlier than the one before: the clock was set back, or there are two.
    pub batches_back_in_time: u64,
    /// Blocks that the GPU stored while the CPU held them: they were loaded, unless a load failed.
    pub blocks_back_from_cpu: u64,
    /// Sizes of a block, tokens.
    pub block_sizes: Vec<u64>,
}
