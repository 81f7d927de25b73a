//! Computes the posterior of a fit: the Gaussian around its minimum (Laplace's approximation). Uses `problem`.
#![expect(clippy::indexing_slicing, reason = "matrices are square, with a row for every parameter")]

use nalgebra::DMatrix;

use super::problem::Problem;
use crate::huber;
use crate::solver::{LeastSquares, slopes};
use ridgepoint::{Error, Result};

/// The data identify a parameter if they reduce its standard deviation below this share of the prior's.
pub const IDENTIFIED_SD_SHARE: f64 = 2.0 / 3.0;

/// Covariance of the parameters given rows and prior.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// Covariance, in the order of the parameters and in their units. A parameter at a bound is treated as if the bound did
    /// not exist, as its uncertainty affects the others. A fixed parameter has zeros.
    pub covariance: DMatrix<f64>,
    /// Whether the data identify each parameter: at least two rows have it, and its standard deviation is less than
    /// `IDENTIFIED_SD_SHARE` of the prior's.
    pub identified: Vec<bool>,
    /// Divisor of the rows' curvature, at least 1: above 1 if rows scatter more than their own standard deviations.
    pub overdispersion: f64,
}

impl Posterior {
    /// Standard deviation of a parameter; at most the prior's.
    pub fn sd(&self, index: usize) -> f64 {
        self.covariance[(index, index)].max(0.0).sqrt()
    }
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
    let parameters = &problem.parameters;
    let size = parameters.len();
    let scale = |index: usize| if parameters[index].is_fixed() { 0.0 } else { parameters[index].prior_sd };
    let data = slopes(problem, values)?.data_curvature;
    let scaled = DMatrix::from_fn(size, size, |row, column| data[(row, column)] * scale(row) * scale(column));
    let (mut inverse, effective_parameters) = inverted(&scaled, 1.0)?;
    let mut overdispersion = 1.0;
    let residuals = problem.rows.iter().zip(problem.residuals(values)?);
    let chi_square = huber::chi_square(residuals.map(|(row, residual)| (row.weight, residual)));
    let dof = problem.rows.iter().map(|row| row.weight).sum::<f64>() - effective_parameters;
    // Without a degree of freedom the rows do not determine their own scatter.
    if dof > 0.0 && chi_square > dof {
        overdispersion = chi_square / dof;
        inverse = inverted(&scaled, overdispersion)?.0;
    }
    let covariance = DMatrix::from_fn(size, size, |row, column| inverse[(row, column)] * scale(row) * scale(column));
    let mut found = Posterior { covariance, identified: Vec::new(), overdispersion };
    let identified = |index: usize| {
        let touched = |x: &[f64]| x.get(index).is_some_and(|x| *x != 0.0);
        let rows = problem.rows.iter().filter(|row| row.weight > 0.0 && touched(&row.x)).take(2).count();
        rows == 2 && scale(index) > 0.0 && found.sd(index) < IDENTIFIED_SD_SHARE * parameters[index].prior_sd
    };
    found.identified = (0..size).map(identified).collect();
    Ok(found)
}

/// The inverse of 1 + `scaled`/φ, and the trace of it times `scaled`/φ.
fn inverted(scaled: &DMatrix<f64>, overdispersion: f64) -> Result<(DMatrix<f64>, f64)> {
    let size = scaled.nrows();
    let matrix = DMatrix::identity(size, size) + scaled / overdispersion;
    let Some(cholesky) = matrix.cholesky() else {
        let problem = "the curvature of the rows overflows: their columns are too large for their sd";
        return Err(Error::invalid("posterior", vec![problem.to_owned()]));
    };
    let inverse = cholesky.inverse();
    let kept: f64 = (0..size).map(|i| inverse[(i, i)]).sum();
    Ok((inverse, size as f64 - kept))
}

#[cfg(test)]
#[path = "posterior_tests.rs"]
mod tests;
