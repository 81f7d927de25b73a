//! The transfers of one file, before rates are fitted to them.

use std::collections::BTreeMap;

use super::faults::TransferFaults;
use crate::ingest::step::Run;
use crate::transfers::{CopySums, PairedTransfer};

/// The completed transfers of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectionLog {
    /// Completed transfers.
    pub count: u64,
    /// Those that failed.
    pub failed: u64,
    /// Blocks of all of them.
    pub blocks: u64,
}

/// The transfers of one file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TransferLog {
    /// Those with both events.
    pub transfers: Vec<PairedTransfer>,
    /// All completed ones, in the order of [`Direction::BOTH`](crate::transfers::Direction::BOTH).
    pub directions: [DirectionLog; 2],
    /// Events of transfers between other media, by their names.
    pub other_media: BTreeMap<String, u64>,
    /// Events without a usable time.
    pub faults: TransferFaults,
    /// Whether every batch has the number of its step.
    pub is_numbered: bool,
    /// What the file says of its run.
    pub(crate) run: Run,
}

/// Sums of copies that a server logs or counts, by direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CopyLog {
    /// Whether they are lines of a log; else totals of `/metrics`.
    pub is_log: bool,
    /// The sums of each interval, in the order of [`Direction::BOTH`](crate::transfers::Direction::BOTH).
    pub sums: [Vec<CopySums>; 2],
}
