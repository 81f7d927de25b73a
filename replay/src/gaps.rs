//! Histograms of the gaps between tokens, one per stage.

use hdrhistogram::Histogram;
use ridgepoint::{Error, Result};

/// Significant digits of a gap in the histogram.
const GAP_DIGITS: u8 = 3;

/// Merges equal consecutive gaps, such as those of one step's decodes, into one histogram entry.
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

/// Records `count` equal gaps of a stage.
pub(super) fn record_gaps(gaps: &mut [Histogram<u64>], stage: u32, gap_ns: u64, count: u64) {
    if let Some(histogram) = gaps.get_mut(stage as usize) {
        // The histogram resizes itself, so that no gap is out of its range.
        let _ = histogram.record_n(gap_ns, count);
    }
}

/// Creates an empty histogram of gaps in ns.
pub(super) fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new(GAP_DIGITS).map_err(|error| {
        Error::invalid("replay", vec![format!("no room for a histogram of the gaps between tokens: {error}")])
    })
}
