//! Gaps between tokens on their way into a stage's histogram. Uses `error`; buckets are `hdrhistogram`'s.

use hdrhistogram::Histogram;

use crate::error::{Error, Result};

/// Significant digits of the gaps between tokens.
const GAP_DIGITS: u8 = 3;

/// Gaps that follow each other and are equal, as those of one step's decodes are: one entry in the histogram.
#[derive(Debug, Default)]
pub(super) struct EqualGaps {
    stage: u32,
    gap_ns: u64,
    count: u64,
}

impl EqualGaps {
    pub(super) fn add(&mut self, stage: u32, gap_ns: u64, gaps: &mut [Histogram<u64>]) {
        if (stage, gap_ns) != (self.stage, self.gap_ns) {
            self.flush(gaps);
            (self.stage, self.gap_ns, self.count) = (stage, gap_ns, 0);
        }
        self.count += 1;
    }

    pub(super) fn flush(&self, gaps: &mut [Histogram<u64>]) {
        if self.count > 0 {
            record_gaps(gaps, self.stage, self.gap_ns, self.count);
        }
    }
}

/// `count` equal gaps of a stage.
pub(super) fn record_gaps(gaps: &mut [Histogram<u64>], stage: u32, gap_ns: u64, count: u64) {
    if let Some(histogram) = gaps.get_mut(stage as usize) {
        // It grows by itself, so that no gap is out of its range.
        let _ = histogram.record_n(gap_ns, count);
    }
}

/// An empty histogram of gaps in ns.
pub(super) fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new(GAP_DIGITS).map_err(|error| {
        Error::invalid("replay", vec![format!("no room for a histogram of the gaps between tokens: {error}")])
    })
}
