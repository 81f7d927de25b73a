//! Calibration of batched products.

use ridgepoint::dtype::MatmulFormat;
use ridgepoint::unstable::efficiency::family::BatchedGemmKey;
use ridgepoint::unstable::efficiency::kernel_model::{BatchedGemmModel, Chip};

use super::super::family::{Calibrated, NO_MODEL, Placed};
use super::super::source::Source;
use super::gemm::features_of;
use crate::measurements::{BatchedGemmCall, Timed};

const NOT_READ: &str = "predictions take the matrices of absorbed projections in 16 bits, as vLLM keeps them";

impl Calibrated for BatchedGemmModel {
    const SHARES_FOREST: bool = false;

    fn label(key: &BatchedGemmKey) -> String {
        key.format.to_string()
    }

    fn features(_: &BatchedGemmKey, shape: &Self::Shape, chip: &Chip) -> Vec<f64> {
        let mut features = features_of(shape, chip);
        features.push(shape.copies.ln());
        features
    }

    fn place(row: &Timed<BatchedGemmCall>, _: &Source) -> Result<Placed<Self>, String> {
        let BatchedGemmCall { dtype, copies, m, n, k } = row.call;
        let format = match dtype.tabulated() {
            Some(format @ MatmulFormat::Bfloat16) => format,
            Some(MatmulFormat::Fp8) => return Err(NOT_READ.to_owned()),
            _ => return Err(NO_MODEL.to_owned()),
        };
        Ok(Placed::OnGrid(BatchedGemmKey { format, n, k }, vec![copies as f64, m as f64]))
    }
}
