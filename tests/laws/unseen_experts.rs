//! Unmeasured expert layers: each measured layer of the shipped tables is predicted from the others. Only the kernel model's
//! coefficients have seen it.

use ridgepoint::Provenance;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::unstable::efficiency::Tables;
use ridgepoint::unstable::efficiency::curve::{MoeCurve, expert_layer_distance, fallback_weight};
use ridgepoint::unstable::efficiency::family::{MOE, MoeKey, Routing};
use ridgepoint::unstable::efficiency::kernel_model::{Chip, MoeModel};
use ridgepoint::{DType, Engine, Hardware};

/// Fallback layers for an unmeasured one, as in a prediction.
const STAND_INS: usize = 3;
/// Largest median error of a layer predicted from others, percent.
const MAX_MEDIAN_ERROR_PCT: f64 = 8.0;

#[test]
fn a_layer_is_predicted_from_others_within_a_few_percent() {
    for (gpu, kind, dtype) in [
        ("h100_sxm", MatmulFormat::Bfloat16, DType::Bfloat16),
        ("h100_sxm", MatmulFormat::Fp8, DType::Fp8),
        ("h100_sxm", MatmulFormat::Fp8Block, DType::Fp8),
        ("h100_sxm", MatmulFormat::Int4WeightOnly, DType::Bfloat16),
        ("h200_sxm", MatmulFormat::Bfloat16, DType::Bfloat16),
        ("a100_sxm", MatmulFormat::Bfloat16, DType::Bfloat16),
    ] {
        let hardware = Hardware::find(gpu).expect("built in");
        let chip = Chip::new(&hardware, dtype).expect("has the unit");
        let tables = Tables::new(&hardware, &Engine::fitted(), None);
        let of_kind = |k: &MoeKey| if is_wanted(k, kind) { 0.0 } else { f64::INFINITY };
        let all = tables.nearest(&MOE, of_kind, usize::MAX, &[]).expect("measured layers");
        // Without the layers of `bench_data/exclusions.toml`.
        assert!(all.len() >= 7, "{gpu}: {} layers", all.len());
        let mut errors = Vec::new();
        for own in &all {
            let (own_key, own) = (&own.key, &own.series);
            for (tp, ep) in [(1.0, 1.0), (4.0, 1.0), (1.0, 4.0)] {
                for tokens in [1.0, 8.0, 32.0, 64.0, 128.0, 512.0, 1024.0, 4096.0] {
                    let point = [tp, ep, tokens];
                    let Some(residual) = own.grid.cell_at(&point).and_then(|cell| own.grid.measured(cell)) else {
                        continue;
                    };
                    let shape = MoeModel::shape(own_key, &point);
                    let measured_us = MoeModel::time_us(&own.coefficients, &shape, &chip) * residual.exp();
                    let mut others: Vec<_> = all
                        .iter()
                        .filter(|other| other.key != *own_key)
                        .map(|other| (other, expert_layer_distance(&other.key, &MoeModel::shape(own_key, &[1.0; 3]))))
                        .collect();
                    others.sort_by(|a, b| a.1.total_cmp(&b.1));
                    let stand_ins: Vec<_> = others
                        .iter()
                        .take(STAND_INS)
                        .map(|(of, d)| (&of.key, &*of.series, fallback_weight(*d), Provenance::Clamped))
                        .collect();
                    let predicted_us = MoeCurve::new(&stand_ins, shape, tp, ep, chip).time(tokens).0;
                    errors.push(100.0 * (predicted_us / measured_us - 1.0).abs());
                }
            }
        }
        errors.sort_by(f64::total_cmp);
        let median = errors[errors.len() / 2];
        println!("{gpu} {}: {} rows, median error {median:.1} %", kind, errors.len());
        assert!(median <= MAX_MEDIAN_ERROR_PCT, "{gpu} {}: median error {median:.1} %", kind);
    }
}

fn is_wanted(key: &MoeKey, format: MatmulFormat) -> bool {
    key.format == format && key.routing == Routing::PowerLaw(1.01)
}
