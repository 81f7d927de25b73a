//! The kernel model of batched GEMMs: one product of each head, as absorbed latent attention has before and after it.
#![expect(clippy::indexing_slicing, reason = "lengths are the family's constants; readers check files for them")]

use super::chip::Chip;
use super::gemm_model::GemmModel;
use super::keys::BatchedGemmKey;
use crate::physics::projection::GemmShape;

/// Batched GEMM: the model of dense ones, with the tiles and bytes of all products. cuBLAS reaches other efficiencies in them, so that
/// coefficients and tables are their own.
#[derive(Debug, Clone, Copy)]
pub struct BatchedGemmModel;

impl BatchedGemmModel {
    /// Coefficients: name and starting value of the fit. The first is the launch, µs.
    pub const COEFFICIENTS: &'static [(&'static str, f64)] = GemmModel::COEFFICIENTS;

    /// Modelled time, µs.
    pub fn time_us(c: &[f64], shape: &GemmShape, chip: &Chip) -> f64 {
        GemmModel::time_us(c, shape, chip)
    }

    /// The shape at a grid point of a series.
    pub fn shape(key: &BatchedGemmKey, point: &[f64]) -> GemmShape {
        let of_one = GemmModel::shape(&key.format, &[key.n as f64, key.k as f64, point[1]]);
        GemmShape { copies: point[0], ..of_one }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::MatmulFormat;
    use crate::physics::{Shape, Work};

    #[test]
    fn heads_take_waves_and_bytes_together() {
        let key = BatchedGemmKey { format: MatmulFormat::Bfloat16, n: 512, k: 128 };
        // Sixteen products of 32 × 128 by 128 × 512.
        let work = BatchedGemmModel::shape(&key, &[16.0, 32.0]).work();
        let bytes = 16.0 * 2.0 * (32.0 * 128.0 + 512.0 * 128.0 + 32.0 * 512.0);
        assert_eq!(work, Work { flops: 16.0 * 2.0 * 32.0 * 512.0 * 128.0, bytes });
        // One tile of 64 × 64 that counts: a head has 8 of them, and 100 SMs take 12.5 heads at once. Memory and launch are free.
        let chip = Chip { peak_flop_per_s: 1e14, hbm_bytes_per_s: 1e18, link_bytes_per_s: 1e12, sm_count: 100.0 };
        let mut c = vec![1e-9, 1e-9, 1.0, 100.0, 1.0, 1.0];
        c.resize(BatchedGemmModel::COEFFICIENTS.len(), 1e-9);
        let time = |heads: f64| BatchedGemmModel::time_us(&c, &BatchedGemmModel::shape(&key, &[heads, 64.0]), &chip);
        // A wave: 2 · 64 · 64 · 128 FLOPs at 10¹² FLOP/s of an SM.
        let wave_us = 1.048_576;
        assert!((time(12.0) / wave_us - 1.0).abs() < 1e-3, "{}", time(12.0));
        assert!((time(13.0) / (2.0 * wave_us) - 1.0).abs() < 1e-3, "{}", time(13.0));
    }
}
