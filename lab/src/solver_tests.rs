//! Curves, bounds, outliers and errors of the solver.

use super::*;

const PRECISE: Options = Options { max_iterations: 300, tolerance: 1e-12 };

/// `a·exp(−b·x)` through points of a = 5, b = 0.3, in units of a hundredth.
fn decay(values: &[f64]) -> Result<Vec<f64>> {
    let at = |values: &[f64], x: f64| values[0] * (-values[1] * x).exp();
    Ok((0..20).map(f64::from).map(|x| (at(values, x) - at(&[5.0, 0.3], x)) / 0.01).collect())
}

fn weak<F>(residuals: F, means: [f64; 2], bounds: [(f64, f64); 2]) -> NumericFit<F> {
    let parameter = |(prior, bounds)| Parameter { name: "p", unit: "1", prior, prior_sd: 10.0, bounds };
    NumericFit { residuals, parameters: means.into_iter().zip(bounds).map(parameter).collect(), difference: 1e-7 }
}

const FREE: [(f64, f64); 2] = [(f64::NEG_INFINITY, f64::INFINITY); 2];

#[test]
fn a_curve_is_found_from_its_residuals() {
    let problem = weak(decay, [1.0, 1.0], FREE);
    let solution = minimise(&problem, &[1.0, 1.0], PRECISE).unwrap();
    assert!((solution.values[0] - 5.0).abs() < 1e-3 && (solution.values[1] - 0.3).abs() < 1e-3, "{solution:?}");
    assert!(solution.converged && solution.cost_after < solution.cost_before, "{solution:?}");
}

#[test]
fn an_outlier_hardly_moves_the_curve() {
    let residuals = |values: &[f64]| {
        decay(values).map(|mut all| {
            all[7] += 1e4;
            all
        })
    };
    let problem = weak(residuals, [5.0, 0.3], FREE);
    let solution = minimise(&problem, &[1.0, 1.0], PRECISE).unwrap();
    assert!((solution.values[0] - 5.0).abs() < 0.05 && (solution.values[1] - 0.3).abs() < 0.01, "{solution:?}");
}

#[test]
fn bounds_hold_and_a_fixed_parameter_stays() {
    let problem = weak(decay, [1.0, 1.0], [(0.0, 4.0), (0.5, 0.5)]);
    let solution = minimise(&problem, &[9.0, 1.0], PRECISE).unwrap();
    assert!(solution.values[0] <= 4.0 && (solution.values[1] - 0.5).abs() < 1e-300, "{solution:?}");
    assert!(problem.parameters[1].is_at_bound(solution.values[1]) && solution.converged, "{solution:?}");
}

#[test]
fn the_first_error_of_the_model_is_returned_as_it_is() {
    let failing = |values: &[f64]| if values[0] > 2.0 { Err(Error::empty_step()) } else { decay(values) };
    let problem = weak(failing, [1.0, 1.0], FREE);
    let found = minimise(&problem, &[1.0, 0.3], PRECISE);
    assert_eq!(found.unwrap_err().kind(), ridgepoint::ErrorKind::EmptyStep);
}

#[test]
fn a_start_of_another_length_is_refused() {
    let problem = weak(decay, [1.0, 1.0], FREE);
    for start in [&[1.0][..], &[1.0, f64::NAN]] {
        let message = minimise(&problem, start, PRECISE).unwrap_err().to_string();
        assert!(message.contains("must be 2 finite numbers"), "{message}");
    }
}
