//! Computes the posterior of a fit: the Gaussian around its minimum (Laplace's approximation). Uses `problem`.

use nalgebra::{DMatrix, DVector};

use super::problem::{Parameter, Problem};
use ridgepoint::{Error, Result};

/// The data identify a parameter if they reduce its standard deviation below this share of the prior's.
pub const IDENTIFIED_SD_SHARE: f64 = 2.0 / 3.0;

/// Covariance of the parameters given rows and prior.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// Covariance, in the order of the parameters and in their units. A parameter at a bound is treated as if the bound did
    /// not exist, as its uncertainty affects the others. A fixed parameter has zeros.
    pub covariance: Vec<Vec<f64>>,
    /// Square roots of the diagonal; at most the prior's.
    pub sd: Vec<f64>,
    /// Whether the data identify each parameter: at least two rows have it, and its standard deviation is less than
    /// `IDENTIFIED_SD_SHARE` of the prior's.
    pub identified: Vec<bool>,
    /// Divisor of the rows' curvature, at least 1: above 1 if rows scatter more than their own standard deviations.
    pub overdispersion: f64,
    /// Number of parameters that the rows determine: the trace of posterior covariance × curvature of the rows.
    pub effective_parameters: f64,
}

/// The posterior of `problem` around `values`, its minimum.
///
/// # Formula
/// Covariance = (H/φ + P)⁻¹ with H the Gauss–Newton curvature of the rows, P = diag(1/prior_sd²) and φ the overdispersion.
/// χ² is Σ weight·w·r² over its mean for normal noise, w being Huber's weight, so that a few outliers do not inflate it; dof is
/// Σ weight less the parameters that the rows determine.
///
/// # Errors
/// `ErrorKind::Invalid` if the curvature overflows.
pub fn posterior(problem: &Problem, values: &[f64]) -> Result<Posterior> {
    let parameters = problem.parameters();
    let scales = DVector::from_iterator(parameters.len(), parameters.iter().map(Parameter::scale));
    let data = problem.data_curvature(values);
    let scaled = DMatrix::from_fn(parameters.len(), parameters.len(), |row, column| {
        data[(row, column)] * scales[row] * scales[column]
    });
    let (mut inverse, mut effective_parameters) = inverted(&scaled, 1.0)?;
    let mut overdispersion = 1.0;
    let (chi_square, rows) = problem.chi_square(values);
    let dof = rows - effective_parameters;
    // Without a degree of freedom the rows do not tell their own scatter.
    if dof > 0.0 && chi_square > dof {
        overdispersion = chi_square / dof;
        (inverse, effective_parameters) = inverted(&scaled, overdispersion)?;
    }
    let covariance = |row: usize, column: usize| inverse[(row, column)] * scales[row] * scales[column];
    let sd: Vec<f64> = (0..parameters.len()).map(|i| covariance(i, i).max(0.0).sqrt()).collect();
    let identified = |(index, parameter): (usize, &Parameter)| {
        let touched = |x: &[f64]| x.get(index).is_some_and(|x| *x != 0.0);
        let rows = problem.rows().iter().filter(|row| row.weight > 0.0 && touched(&row.x)).take(2).count();
        rows == 2 && parameter.scale() > 0.0 && sd[index] < IDENTIFIED_SD_SHARE * parameter.prior_sd
    };
    Ok(Posterior {
        identified: parameters.iter().enumerate().map(identified).collect(),
        covariance: (0..parameters.len())
            .map(|row| (0..parameters.len()).map(|column| covariance(row, column)).collect())
            .collect(),
        sd,
        overdispersion,
        effective_parameters,
    })
}

/// The inverse of 1 + `scaled`/φ, and the trace of it times `scaled`/φ.
fn inverted(scaled: &DMatrix<f64>, overdispersion: f64) -> Result<(DMatrix<f64>, f64)> {
    let size = scaled.nrows();
    let matrix = DMatrix::identity(size, size) + scaled / overdispersion;
    let inverse = matrix.cholesky().map(|cholesky| cholesky.inverse()).ok_or_else(|| {
        Error::invalid(
            "posterior",
            vec!["the curvature of the rows overflows: their columns are too large for their sd".to_owned()],
        )
    })?;
    let kept: f64 = (0..size).map(|i| inverse[(i, i)]).sum();
    Ok((inverse, size as f64 - kept))
}

#[cfg(test)]
#[path = "posterior_tests.rs"]
mod tests;
