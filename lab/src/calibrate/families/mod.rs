//! What each kernel family needs to be calibrated: the place of its rows in a table, features of the trees, labels of the report.

use ridgepoint::unstable::efficiency::family::SeriesKey;
use ridgepoint::unstable::efficiency::kernel_model::{
    AllReduceModel, BatchedGemmModel, Chip, DecodeModel, ExchangeModel, GemmModel, MoeModel, PrefillModel, StateModel,
};

pub(super) mod allreduce;
pub(super) mod attention;
pub(super) mod batched_gemm;
pub(super) mod gemm;
pub(super) mod linear_attention;
pub(super) mod moe;
pub(super) mod nccl;

/// Features of a call for the trees: sizes, work, and the padding of tiles and waves. Sizes and work are logarithms, so that
/// a threshold is a ratio.
pub(super) fn features(key: &SeriesKey, point: &[f64], chip: &Chip) -> Vec<f64> {
    match key {
        SeriesKey::Gemm(key) => gemm::features(&GemmModel::shape(key, point), chip),
        SeriesKey::BatchedGemm(key) => batched_gemm::features(&BatchedGemmModel::shape(key, point), chip),
        SeriesKey::Prefill(key) => attention::features(key, &PrefillModel::shape(key, point), chip),
        SeriesKey::Decode(key) => attention::features(key, &DecodeModel::shape(key, point), chip),
        SeriesKey::Moe(key) => moe::features(key, &MoeModel::shape(key, point)),
        SeriesKey::AllReduce(key) => allreduce::features(key, &AllReduceModel::shape(key, point)),
        SeriesKey::Exchange(key) => nccl::features(&ExchangeModel::shape(key, point)),
        SeriesKey::State(key) => linear_attention::features(&StateModel::shape(key, point), chip),
    }
}

/// Label that errors are grouped by: the number format, the launch mode, or the kernel.
pub(super) fn label(key: &SeriesKey) -> String {
    match key {
        SeriesKey::BatchedGemm(key) => key.format.to_string(),
        SeriesKey::Prefill(key) | SeriesKey::Decode(key) => key.kv_dtype.to_string(),
        SeriesKey::Moe(key) => key.format.to_string(),
        SeriesKey::State(key) => format!("{} {}", key.recurrence.name(), key.kernel.name()),
        SeriesKey::Gemm(_) | SeriesKey::AllReduce(_) | SeriesKey::Exchange(_) => key.to_string(),
    }
}
