//! Fits a kernel model's coefficients to measured times: Levenberg–Marquardt on log errors with a robust weight, so that
//! 3 µs and 30 ms calls count alike and a glitch of the measurement counts little. Coefficients stay positive because
//! their logs are what is fitted. Uses `efficiency::kernel_model`.

use nalgebra::{DMatrix, DVector};

use ridgepoint::internals::efficiency::kernel_model::{Chip, KernelModel};

/// Log errors beyond this are treated as outliers whose pull no longer grows.
const ROBUST_SCALE: f64 = 0.1;
/// Rows used at most; more do not move a dozen coefficients.
const MAX_ROWS: usize = 6000;
const MAX_ITERATIONS: usize = 60;
/// Logs of coefficients may leave their start by at most this much (a factor of about 3000).
const MAX_LOG_SHIFT: f64 = 8.0;

/// A measured time of a shape.
#[derive(Debug, Clone, Copy)]
pub struct Observation<S> {
    /// What the kernel was given.
    pub shape: S,
    /// Measured time, µs.
    pub time_us: f64,
}

/// The coefficients that explain `observations` best.
pub fn fit_coefficients<M: KernelModel>(observations: &[Observation<M::Shape>], chip: &Chip) -> Vec<f64> {
    let stride = observations.len().div_ceil(MAX_ROWS).max(1);
    let rows: Vec<&Observation<M::Shape>> = observations.iter().step_by(stride).collect();
    let start: Vec<f64> = M::COEFFICIENTS.iter().map(|(_, v)| v.ln()).collect();
    let mut at = start.clone();
    if rows.is_empty() {
        return at.iter().map(|v| v.exp()).collect();
    }
    let mut residuals = residuals_of::<M>(&at, &rows, chip);
    let mut cost = robust_cost(&residuals);
    let mut damping = 1e-2;
    for _ in 0..MAX_ITERATIONS {
        let (hessian, gradient) = normal_equations::<M>(&at, &residuals, &rows, chip);
        let mut improved = false;
        for _ in 0..8 {
            let mut damped = hessian.clone();
            for i in 0..at.len() {
                damped[(i, i)] += damping * (hessian[(i, i)] + 1e-6 * rows.len() as f64);
            }
            let Some(step) = damped.cholesky().map(|c| c.solve(&gradient)) else {
                damping *= 10.0;
                continue;
            };
            let candidate: Vec<f64> = (0..at.len())
                .map(|i| (at[i] - step[i]).clamp(start[i] - MAX_LOG_SHIFT, start[i] + MAX_LOG_SHIFT))
                .collect();
            let new_residuals = residuals_of::<M>(&candidate, &rows, chip);
            let new_cost = robust_cost(&new_residuals);
            if new_cost < cost {
                improved = (cost - new_cost) > 1e-6 * cost;
                (at, residuals, cost) = (candidate, new_residuals, new_cost);
                damping = (damping * 0.3).max(1e-8);
                break;
            }
            damping *= 10.0;
        }
        if !improved {
            break;
        }
    }
    at.iter().map(|v| v.exp()).collect()
}

fn residuals_of<M: KernelModel>(logs: &[f64], rows: &[&Observation<M::Shape>], chip: &Chip) -> Vec<f64> {
    let coefficients: Vec<f64> = logs.iter().map(|v| v.exp()).collect();
    rows.iter().map(|row| (M::time_us(&coefficients, &row.shape, chip) / row.time_us).ln()).collect()
}

/// Soft-L1: quadratic near zero, linear far from it.
fn robust_cost(residuals: &[f64]) -> f64 {
    residuals.iter().map(|r| (1.0 + (r / ROBUST_SCALE).powi(2)).sqrt() - 1.0).sum()
}

fn normal_equations<M: KernelModel>(
    logs: &[f64],
    residuals: &[f64],
    rows: &[&Observation<M::Shape>],
    chip: &Chip,
) -> (DMatrix<f64>, DVector<f64>) {
    const STEP: f64 = 1e-4;
    let n = logs.len();
    let columns: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let mut moved = logs.to_vec();
            moved[i] += STEP;
            let shifted = residuals_of::<M>(&moved, rows, chip);
            shifted.iter().zip(residuals).map(|(a, b)| (a - b) / STEP).collect()
        })
        .collect();
    let weights: Vec<f64> = residuals.iter().map(|r| 1.0 / (1.0 + (r / ROBUST_SCALE).powi(2)).sqrt()).collect();
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).zip(&weights).map(|((x, y), w)| w * x * y).sum() };
    let hessian = DMatrix::from_fn(n, n, |i, j| dot(&columns[i], &columns[j]));
    let gradient = DVector::from_fn(n, |i, _| dot(&columns[i], residuals));
    (hessian, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::internals::efficiency::kernel_model::{AllReduceModel, AllReduceShape};

    #[test]
    fn known_coefficients_are_recovered_despite_an_outlier() {
        let chip = Chip { peak_flop_per_s: 1e15, hbm_bytes_per_s: 3e12, link_bytes_per_s: 450e9, sm_count: 132.0 };
        let truth = [5.0, 0.8, 2e6, 0.5];
        let mut rows: Vec<Observation<AllReduceShape>> = Vec::new();
        for gpus in [2.0, 4.0, 8.0] {
            for power in 8..30 {
                let shape = AllReduceShape { message_bytes: f64::from(1u32 << power), gpus };
                rows.push(Observation { shape, time_us: AllReduceModel::time_us(&truth, &shape, &chip) });
            }
        }
        rows[7].time_us *= 10.0;
        let fitted = fit_coefficients::<AllReduceModel>(&rows, &chip);
        for (row, i) in rows.iter().zip(0..) {
            if i != 7 {
                let error = AllReduceModel::time_us(&fitted, &row.shape, &chip) / row.time_us - 1.0;
                assert!(error.abs() < 0.02, "row {i}: {error}");
            }
        }
    }
}
