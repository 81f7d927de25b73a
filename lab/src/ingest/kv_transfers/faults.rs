//! Counts of the events of transfers without a usable time, by fault.

use serde::Serialize;

/// Events of transfers without a usable time. JSON keys are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TransferFaults {
    /// Begun and not completed in the file.
    pub without_end: u64,
    /// Completed and not begun in the file.
    pub without_begin: u64,
    /// Completed without success.
    pub failed: u64,
    /// Begun or completed again under the same id.
    pub doubled_ids: u64,
    /// Of no blocks.
    pub without_blocks: u64,
    /// Of other blocks, or another direction, at the end than at the beginning.
    pub contradictory: u64,
    /// Completed before they began: two clocks in one file, or one that was set back.
    pub end_before_begin: u64,
    /// Completed in an earlier step than they began in.
    pub steps_backwards: u64,
    /// Start and end fall in the same step: too short for the file's resolution.
    pub within_a_step: u64,
    /// Without a time stamp.
    pub without_time: u64,
    /// Without an id, a source or a destination.
    pub incomplete: u64,
    /// Between media that are not GPU and CPU.
    pub other_media: u64,
}

impl TransferFaults {
    /// The counts in words, without those that are 0.
    pub fn descriptions(&self) -> Vec<(u64, &'static str)> {
        let counts = [
            (self.without_end, "without an end"),
            (self.without_begin, "without a beginning"),
            (self.failed, "failed"),
            (self.doubled_ids, "under an id that is used twice"),
            (self.without_blocks, "of no blocks"),
            (self.contradictory, "whose two events contradict each other"),
            (self.end_before_begin, "that end before they begin (two clocks?)"),
            (self.steps_backwards, "that end in an earlier step than they begin in"),
            (self.within_a_step, "that begin and end at the same time"),
            (self.without_time, "without a time"),
            (self.incomplete, "without an id or a medium"),
            (self.other_media, "between media that are not GPU and CPU"),
        ];
        counts.into_iter().filter(|(count, _)| *count > 0).collect()
    }
}
