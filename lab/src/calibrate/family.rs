//! The properties of a kernel family that only calibration needs: places of rows, features of the trees, labels of the report,
//! columns of the table.

use ridgepoint::unstable::efficiency::family::Family;
use ridgepoint::unstable::efficiency::kernel_model::Chip;

use super::attention_call::AttentionCall;
use super::source::Source;
use crate::measurements::{Measured, Timed};

/// Why a row of a number format is left out that no table has.
pub(super) const NO_MODEL: &str = "no kernel model for this number format";

/// The place of a measured call.
#[derive(Debug)]
pub enum Placed<F: Family> {
    /// A series of the table and a point on its grid.
    OnGrid(F::Key, Vec<f64>),
    /// A call that no table holds and a check scores.
    OffTable(AttentionCall),
}

/// A kernel family that can be calibrated.
pub trait Calibrated: Measured + Send + Sync {
    /// Whether all labels are learnt by one forest of trees, not each by its own.
    const SHARES_FOREST: bool = true;

    /// Quantile of the absolute residuals at which trees clip residuals before they choose a split.
    const PULL_LIMIT: f64 = 0.9;

    /// Share of the neighbours' mean difference from the trees that moves an estimate; the neighbours are noisy, too.
    const NEIGHBOUR_SHARE: f64 = 0.5;

    /// Efficiency above which a row is too fast to be true; timings scatter, and short kernels find operands in the L2 cache.
    const MAX_EFFICIENCY: f64 = 1.1;

    /// Label that errors are grouped by: the number format, or the launch mode.
    fn label(key: &Self::Key) -> String {
        key.to_string()
    }

    /// Places a measured call; an error is the reason why no table or check takes it.
    ///
    /// # Errors
    /// The reason; reports count the rows that are left out by reason.
    fn place(row: &Timed<Self::Call>, source: &Source) -> Result<Placed<Self>, String>;

    /// Features of a call for the trees: sizes, work, and the padding of tiles and waves. Sizes and work are logarithms, so that
    /// a threshold is a ratio.
    fn features(key: &Self::Key, shape: &Self::Shape, chip: &Chip) -> Vec<f64>;

    /// Returns whether a value of the last axis gets a column in the table.
    fn keep_knot(_: &Self::Key, _: f64) -> bool {
        true
    }

    /// Returns whether predictions read a series where there are `all` of these. Tables leave out others, whose rows the trees learn from all
    /// the same.
    fn is_read(_: &Self::Key, _all: &[&Self::Key]) -> bool {
        true
    }

    /// Returns whether a label counts in the operator's total.
    fn in_total(_: &str) -> bool {
        true
    }
}

/// Logarithms of sizes and work.
pub(super) fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| v.max(1e-9).ln()).collect()
}
