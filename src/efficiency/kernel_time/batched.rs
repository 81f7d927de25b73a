//! Chooses the series of batched products: the absorbed projections of latent attention.

use super::super::batched_gemm::BatchedGemmModel;
use super::super::curve::GemmCurve;
use super::super::family::Family;
use super::super::keys::BatchedGemmKey;
use super::super::tables::if_any;
use super::Curve;
use super::choice::Choice;
use crate::dtype::{MatmulFormat, WeightFormat};
use crate::error::Result;
use crate::physics::projection::GemmShape;

impl Choice<'_> {
    /// Products of `copies` heads in one call. Engines keep their matrices in 16 bits. Where no GPU has a table of batched products, one
    /// product with the outputs of all heads stands in.
    pub(super) fn batched(&mut self, n: u64, k: u64, copies: u64, weights: WeightFormat) -> Result<Curve> {
        let wanted = BatchedGemmKey { format: MatmulFormat::Bfloat16, n, k };
        let distance = |key: &BatchedGemmKey| match key.format == wanted.format {
            true => log_ratio(key.n, n) + log_ratio(key.k, k),
            false => f64::INFINITY,
        };
        let found = if_any(self.tables.nearest::<BatchedGemmModel>(distance, 1, &[]))?;
        let Some(found) = found.and_then(|found| found.into_iter().next()) else {
            return self.gemm((copies * n) as f64, k as f64, weights);
        };
        self.note_fallback(&found);
        let key = found.series.key;
        if key != wanted {
            self.note(format_args!("batched products of {k} × {n} were not measured, {} × {} stand in", key.k, key.n));
        }
        let shape = BatchedGemmModel::shape(&wanted, &[copies as f64, 1.0]);
        let shape = GemmShape { weight_bytes: weights.bytes_per_weight(), ..shape };
        let curve = GemmCurve::batched(&found.series, shape, self.chip, found.at_best(key == wanted));
        Ok(Curve::Gemm(Box::new(curve)))
    }
}

fn log_ratio(a: u64, b: u64) -> f64 {
    (a as f64 / b as f64).ln().abs()
}
