//! Calibration of batched products.

use ridgepoint::dtype::MatmulFormat;
use ridgepoint::physics::projection::GemmShape;
use ridgepoint::unstable::efficiency::family::{BATCHED_GEMM, BatchedGemmKey, SeriesKey};
use ridgepoint::unstable::efficiency::kernel_model::Chip;

use super::super::family::{CalibratedFamily, NO_MODEL, Placed};
use super::super::source::RowSource;
use super::gemm;
use crate::measurements::{BatchedGemmCall, Timed};

const NOT_READ: &str = "predictions take the matrices of absorbed projections in 16 bits, as vLLM keeps them";

pub(in crate::calibrate) static FAMILY: CalibratedFamily =
    CalibratedFamily { shares_forest: false, ..CalibratedFamily::of(&BATCHED_GEMM) };

pub(super) fn features(shape: &GemmShape, chip: &Chip) -> Vec<f64> {
    let mut features = gemm::features(shape, chip);
    features.push(shape.copies.ln());
    features
}

pub(in crate::calibrate) fn place(row: &Timed<BatchedGemmCall>, _: &RowSource) -> Result<Placed, String> {
    let BatchedGemmCall { dtype, copies, m, n, k } = row.call;
    let format = match dtype.tabulated() {
        Some(format @ MatmulFormat::Bfloat16) => format,
        Some(MatmulFormat::Fp8) => return Err(NOT_READ.to_owned()),
        _ => return Err(NO_MODEL.to_owned()),
    };
    let key = SeriesKey::BatchedGemm(BatchedGemmKey { format, n, k });
    Ok(Placed::OnGrid(key, vec![copies as f64, m as f64]))
}
