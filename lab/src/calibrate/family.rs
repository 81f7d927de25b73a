//! What the calibration of a kernel family needs beyond its tables: features for the trees, labels for the report, columns
//! of the table. Uses `features`, `efficiency`.

#![allow(clippy::float_cmp)] // table coordinates are whole numbers

use super::features;
use ridgepoint::internals::efficiency::family::{AllReduceKind, AttentionKey, Family, GemmKind, MoeKey};
use ridgepoint::internals::efficiency::kernel_model::{
    AllReduceModel, Chip, DecodeModel, GemmModel, MoeModel, PrefillModel,
};

/// A kernel family that can be calibrated.
pub trait Calibrated: Family + Send + Sync {
    /// What errors are summed by: the number format, the launch mode.
    fn label(key: &Self::Key) -> String;

    /// What trees see of a call.
    fn features(key: &Self::Key, shape: &Self::Shape, chip: &Chip) -> Vec<f64>;

    /// Series that are learnt together.
    fn forest(key: &Self::Key) -> String;

    /// Whether a value of the last axis gets a column in the table.
    fn keep_knot(_: &Self::Key, _: f64) -> bool {
        true
    }

    /// Whether a label counts in the operator's total.
    fn in_total(_: &str) -> bool {
        true
    }
}

impl Calibrated for GemmModel {
    fn label(key: &GemmKind) -> String {
        key.name().to_owned()
    }

    fn features(key: &GemmKind, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        features::gemm(key, shape, chip)
    }

    fn forest(key: &GemmKind) -> String {
        key.name().to_owned()
    }

    /// Few tokens cost the same, and far past the first waves one more row matters little: such columns are left out, but
    /// where timings are so noisy that every one counts.
    fn keep_knot(key: &GemmKind, m: f64) -> bool {
        let flat = m < 16.0 && m.log2().fract() != 0.0;
        let one_row_more = m > 1200.0 && m % 256.0 == 1.0 && m != 2049.0;
        *key == GemmKind::Fp8Block || !(flat || one_row_more)
    }
}

impl Calibrated for PrefillModel {
    fn label(key: &AttentionKey) -> String {
        key.kv_dtype.to_string()
    }

    fn features(key: &AttentionKey, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        features::attention(key, shape, chip)
    }

    fn forest(_: &AttentionKey) -> String {
        "all".to_owned()
    }
}

impl Calibrated for DecodeModel {
    fn label(key: &AttentionKey) -> String {
        key.kv_dtype.to_string()
    }

    fn features(key: &AttentionKey, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        features::attention(key, shape, chip)
    }

    fn forest(_: &AttentionKey) -> String {
        "all".to_owned()
    }
}

impl Calibrated for MoeModel {
    fn label(key: &MoeKey) -> String {
        key.kind.name().to_owned()
    }

    fn features(key: &MoeKey, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        features::moe(key, shape, chip)
    }

    fn forest(key: &MoeKey) -> String {
        key.kind.name().to_owned()
    }
}

impl Calibrated for AllReduceModel {
    fn label(key: &AllReduceKind) -> String {
        ridgepoint::internals::efficiency::family::Key::name(key)
    }

    fn features(key: &AllReduceKind, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        features::all_reduce(key, shape, chip)
    }

    fn forest(_: &AllReduceKind) -> String {
        "all".to_owned()
    }

    /// Steps run inside graphs; eager rows are reported beside.
    fn in_total(label: &str) -> bool {
        label == "graph"
    }
}
