//! Chooses the series of batched products: the absorbed projections of latent attention.

use super::super::batched_gemm::BatchedGemmModel;
use super::super::curve::{GemmCurve, batched_distance};
use super::super::family::BATCHED_GEMM;
use super::super::keys::BatchedGemmKey;
use super::super::tables::if_any;
use super::FamilyCurve;
use super::choice::Choice;
use crate::dtype::{MatmulFormat, WeightFormat};
use crate::error::Result;
use crate::physics::projection::GemmShape;

impl Choice<'_> {
    /// Products of `copies` heads in one call. Engines keep their matrices in 16 bits. Where no GPU has a table of batched products, one
    /// product with the outputs of all heads is the fallback.
    pub(super) fn batched(&mut self, n: u64, k: u64, copies: u64, weights: WeightFormat) -> Result<FamilyCurve> {
        let wanted = BatchedGemmKey { format: MatmulFormat::Bfloat16, n, k };
        let found = if_any(self.tables.nearest(&BATCHED_GEMM, |key| batched_distance(key, &wanted), 1, &[]))?;
        let Some(found) = found.and_then(|found| found.into_iter().next()) else {
            return self.gemm((copies * n) as f64, k as f64, weights);
        };
        self.note_fallback(&found);
        let key = found.key;
        if key != wanted {
            self.note(format_args!("batched products of {k} × {n} were not measured; fallback: {} × {}", key.k, key.n));
        }
        let shape = BatchedGemmModel::shape(&wanted, &[copies as f64, 1.0]);
        let shape = GemmShape { weight_bytes: weights.bytes_per_weight(), ..shape };
        let curve = GemmCurve::batched(&found.series, shape, self.chip, found.at_best(key == wanted));
        Ok(FamilyCurve::Gemm(Box::new(curve)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::super::tables::Tables;
    use super::super::{EfficiencyMode, OperatorTime, Timer};
    use super::*;
    use crate::hardware::Hardware;
    use crate::physics::fixtures::{deepseek_v3, named, run};
    use crate::physics::{Operator, StepPlan};
    use crate::{Deployment, Engine, Request};

    /// A made-up table of an H100: 16 heads of 512 outputs at half the roofline's speed, whatever the tokens.
    const HALF: &str = r#"# operator = "batched_gemm"
# hardware = "h100_sxm"
# unit = "efficiency: per mille of the roofline bound"
# command = "none"
# [coefficients.bfloat16]
# COEFFICIENTS
# [series."bfloat16/n512/k128"]
# source = "made up"
# rows = 2
# id = 1
# lines = 1
# cross_validated_median_ape_pct = 1.0
# cross_validated_mape_pct = 1.0
# knots = [1.0, 64.0]
series,copies,efficiency
1,16,500 500
"#;

    fn absorbed() -> [Operator; 2] {
        let plan = StepPlan::new(&deepseek_v3(), &Deployment::tensor_parallel(8)).expect("a plan");
        let operators = run(&plan, &[Request::decode(99)]);
        ["q_absorb", "v_up"].map(|name| *named(&operators, name))
    }

    fn timed(operator: &Operator, tables: &Tables) -> (OperatorTime, String) {
        let hardware = Hardware::find("h100").expect("built in");
        let timer = Timer::new(operator, &hardware, tables, EfficiencyMode::Tables).expect("a timer");
        (timer.time(operator), timer.notes.concat())
    }

    #[test]
    fn absorbed_projections_take_the_time_of_batched_products() {
        let coefficients = BatchedGemmModel::COEFFICIENTS
            .iter()
            .map(|(name, value)| format!("{name} = {value:?}"))
            .collect::<Vec<_>>();
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("bench_data/h100_sxm");
        fs::create_dir_all(&folder).expect("a folder");
        let table = HALF.replace("COEFFICIENTS", &coefficients.join("\n# "));
        fs::write(folder.join("batched_gemm.csv"), table).expect("written");
        let hardware = Hardware::find("h100").expect("built in");
        let tables = Tables::new(&hardware, &Engine::default(), Some(dir.path()));
        let [q_absorb, v_up] = absorbed();
        // 16 heads of 128 · 512 weights, 128 inputs and 512 outputs: 2,117,632 bytes at 3.35 TB/s take 0.632 µs.
        let (time, note) = timed(&q_absorb, &tables);
        assert!((time.time_us - 2.0 * 0.632_129).abs() < 1e-4, "{time:?}");
        assert_eq!(note, "");
        // No table holds products of 512 inputs and 128 outputs.
        let (_, note) = timed(&v_up, &tables);
        assert!(note.contains("batched products of 512 × 128 were not measured; fallback: 128 × 512"), "{note}");
    }
}
