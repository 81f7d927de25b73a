//! The properties of a kernel family that only calibration needs, as plain data, and the place of a row.

use ridgepoint::unstable::efficiency::family::{KernelFamily, SeriesKey};

use super::attention_call::AttentionCall;
use super::families::{allreduce, attention, batched_gemm, gemm, linear_attention, moe, nccl};

/// Why a row of a number format is left out that no table has.
pub(super) const NO_MODEL: &str = "no kernel model for this number format";

/// The place of a measured call.
#[derive(Debug)]
pub enum Placed {
    /// A series of the table and a point on its grid.
    OnGrid(SeriesKey, Vec<f64>),
    /// A call that no table holds and a check scores, and the series that predicts it.
    OffTable(AttentionCall),
}

/// A kernel family that can be calibrated.
#[derive(Debug)]
pub struct CalibratedFamily {
    /// Its operator and the layout of its tables.
    pub family: &'static KernelFamily,
    /// Whether all labels are learnt by one forest of trees, not each by its own.
    pub(super) shares_forest: bool,
    /// Quantile of the absolute residuals at which trees clip residuals before they choose a split.
    pub(super) pull_limit: f64,
    /// Share of the neighbours' mean difference from the trees that moves an estimate; the neighbours are noisy, too.
    pub(super) neighbour_share: f64,
    /// Efficiency above which a row is too fast to be true; timings scatter, and short kernels find operands in the L2 cache.
    pub(super) max_efficiency: f64,
    /// Whether a value of the last axis gets a column in the table.
    pub(super) keep_knot: fn(&SeriesKey, f64) -> bool,
    /// Whether predictions read a series where there are all of these. Tables leave out others, whose rows the trees learn from all
    /// the same.
    pub(super) is_read: fn(&SeriesKey, &[&SeriesKey]) -> bool,
    /// Whether a label counts in the operator's total.
    pub(super) in_total: fn(&str) -> bool,
}

impl CalibratedFamily {
    /// A family with the properties of most.
    pub(super) const fn of(family: &'static KernelFamily) -> Self {
        CalibratedFamily {
            family,
            shares_forest: true,
            pull_limit: 0.9,
            neighbour_share: 0.5,
            max_efficiency: 1.1,
            keep_knot: |_, _| true,
            is_read: |_, _| true,
            in_total: |_| true,
        }
    }
}

/// All families, in the order of reports.
pub static CALIBRATED: [&CalibratedFamily; 8] = [
    &gemm::FAMILY,
    &batched_gemm::FAMILY,
    &attention::PREFILL_FAMILY,
    &attention::DECODE_FAMILY,
    &moe::FAMILY,
    &allreduce::FAMILY,
    &nccl::FAMILY,
    &linear_attention::FAMILY,
];

/// Logarithms of sizes and work.
pub(super) fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| v.max(1e-9).ln()).collect()
}
