//! The properties of a kernel family that only calibration needs: features of the trees, labels of the report, columns of
//! the table.

#![allow(clippy::float_cmp)] // table coordinates are whole numbers

use super::features;
use ridgepoint::internals::efficiency::family::{AllReduceKind, AttentionKey, Family, GemmKind, MoeKey};
use ridgepoint::internals::efficiency::kernel_model::{
    AllReduceModel, Chip, DecodeModel, GemmModel, MoeModel, PrefillModel,
};

/// A kernel family that can be calibrated.
pub trait Calibrated: Family + Send + Sync {
    /// Label that errors are grouped by: the number format, or the launch mode.
    fn label(key: &Self::Key) -> String;

    /// Features of a call for the trees.
    fn features(key: &Self::Key, shape: &Self::Shape, chip: &Chip) -> Vec<f64>;

    /// Name of the forest; series with the same name are learnt together.
    fn forest(key: &Self::Key) -> String;

    /// Returns whether a value of the last axis gets a column in the table.
    fn keep_knot(_: &Self::Key, _: f64) -> bool {
        true
    }

    /// Returns whether a label counts in the operator's total.
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

    /// Leaves out columns that repeat their neighbours: few tokens cost the same, and past the first waves one more row
    /// matters little. The noisy block format keeps all.
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

    /// Steps run inside graphs, so eager rows do not count.
    fn in_total(label: &str) -> bool {
        label == "graph"
    }
}
