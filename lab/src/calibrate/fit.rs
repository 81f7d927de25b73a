//! Fits the coefficients of a kernel model to measured times. Errors are logarithmic, so calls of 3 µs and of 30 ms count
//! alike, and Huber's loss limits the pull of outliers. The logarithms of the coefficients are fitted, so the coefficients
//! stay positive.

use ridgepoint::Result;
use ridgepoint::unstable::efficiency::family::CallShape;
use ridgepoint::unstable::efficiency::kernel_model::Chip;

use crate::huber::HUBER_DELTA;
use crate::solver::{NumericFit, Options, Parameter, minimise};

/// Log errors beyond this are outliers, whose pull no longer grows.
const OUTLIER_LOG_ERROR: f64 = 0.083;
/// Rows used at most; more do not move a dozen coefficients.
const MAX_ROWS: usize = 6000;
/// Standard deviation of a coefficient's logarithm around the starting value: wide, so that a few dozen rows outweigh it.
const LOG_SD: f64 = 5.0;
/// Largest shift of a coefficient's logarithm: a factor of about 3000.
const MAX_LOG_SHIFT: f64 = 8.0;
/// Step of the differences, as a share of [`LOG_SD`].
const DIFFERENCE: f64 = 2e-5;
const OPTIONS: Options = Options { max_iterations: 60, tolerance: 1e-6 };

/// Returns the coefficients of least robust log error for measured shapes and their times, µs; without any, the starting
/// values, `starts`.
///
/// # Errors
/// Those of [`minimise`], which cannot occur for finite starting values.
pub fn fit_coefficients(
    starts: &[(&'static str, f64)],
    measured: &[(CallShape, f64)],
    chip: &Chip,
) -> Result<Vec<f64>> {
    let stride = measured.len().div_ceil(MAX_ROWS).max(1);
    let rows: Vec<&(CallShape, f64)> = measured.iter().step_by(stride).collect();
    let exponentials = |logs: &[f64]| logs.iter().map(|log| log.exp()).collect::<Vec<f64>>();
    let residuals = |logs: &[f64]| {
        let coefficients = exponentials(logs);
        let log_error = |(shape, time_us): &&(CallShape, f64)| (shape.time_us(&coefficients, chip) / time_us).ln();
        Ok(rows.iter().map(|row| log_error(row) * HUBER_DELTA / OUTLIER_LOG_ERROR).collect())
    };
    let parameter = |(name, value): &(&'static str, f64)| {
        let prior = value.ln();
        let bounds = (prior - MAX_LOG_SHIFT, prior + MAX_LOG_SHIFT);
        Parameter { name, unit: "logarithm", prior, prior_sd: LOG_SD, bounds }
    };
    let parameters: Vec<Parameter> = starts.iter().map(parameter).collect();
    let start: Vec<f64> = parameters.iter().map(|of| of.prior).collect();
    let solution = minimise(&NumericFit { residuals, parameters, difference: DIFFERENCE }, &start, OPTIONS)?;
    Ok(exponentials(&solution.values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::physics::communication::ExchangeShape;
    use ridgepoint::unstable::efficiency::kernel_model::AllReduceModel;

    #[test]
    fn known_coefficients_are_recovered_despite_an_outlier() {
        let chip = Chip { peak_flop_per_s: 1e15, hbm_bytes_per_s: 3e12, link_bytes_per_s: 450e9, sm_count: 132.0 };
        let truth = [5.0, 0.8, 2e6, 0.5];
        let mut rows: Vec<(CallShape, f64)> = Vec::new();
        for gpus in [2.0, 4.0, 8.0] {
            for power in 8..30 {
                let shape = ExchangeShape::all_reduce(f64::from(1u32 << power), gpus);
                rows.push((CallShape::Exchange(shape), AllReduceModel::time_us(&truth, &shape, &chip)));
            }
        }
        rows[7].1 *= 10.0;
        let fitted = fit_coefficients(AllReduceModel::COEFFICIENTS, &rows, &chip).unwrap();
        for ((shape, time_us), i) in rows.iter().zip(0..) {
            if i != 7 {
                let error = shape.time_us(&fitted, &chip) / time_us - 1.0;
                assert!(error.abs() < 0.02, "row {i}: {error}");
            }
        }
    }
}
