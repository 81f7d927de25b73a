//! What is minimised: rows that are linear in the parameters, judged by a robust loss of their log error, and a Gaussian
//! prior. Cost, gradient and Gauss–Newton curvature, for argmin's solvers too. Uses `huber`, `validate`.

use argmin::core::{CostFunction, Gradient, Hessian};
use nalgebra::DMatrix;

use super::validate;
use crate::huber;
use ridgepoint::Result;

/// Share of the measured value below which the logarithm of a prediction is continued by its tangent, so that the cost of a
/// prediction of zero or less is finite and still says which way is up.
const LOG_FLOOR: f64 = 1e-3;

/// What is fitted: a number with its unit, what is believed of it before, and the least and greatest value allowed.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Name in reports and errors.
    pub name: String,
    /// Unit, in words.
    pub unit: String,
    /// Mean of the prior.
    pub prior: f64,
    /// Standard deviation of the prior, above 0.
    pub prior_sd: f64,
    /// Least value allowed; may be −∞. Where it equals `upper` the parameter is fixed.
    pub lower: f64,
    /// Greatest value allowed; may be ∞.
    pub upper: f64,
}

impl Parameter {
    /// Size of a typical change: the prior's standard deviation, 0 where the parameter is fixed.
    pub(super) fn scale(&self) -> f64 {
        if self.lower < self.upper { self.prior_sd } else { 0.0 }
    }
}

/// A measurement and what predicts it: `predicted = offset + x·θ`.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Part of the prediction that no parameter changes, in the unit of `measured`.
    pub offset: f64,
    /// What each parameter is multiplied by.
    pub x: Vec<f64>,
    /// What was measured, above 0.
    pub measured: f64,
    /// Standard deviation of ln(measured / predicted) that is expected, above 0.
    pub sd: f64,
    /// How many independent rows it counts as, at least 0.
    pub weight: f64,
    /// Which rows belong together: a run, a target. Not used in the cost.
    pub group: usize,
}

impl Row {
    /// `offset + x·θ`.
    pub fn predicted(&self, values: &[f64]) -> f64 {
        self.offset + self.x.iter().zip(values).map(|(x, value)| x * value).sum::<f64>()
    }

    /// ln(predicted / measured) / sd, and its derivative by `predicted`.
    fn residual(&self, values: &[f64]) -> (f64, f64) {
        let (predicted, floor) = (self.predicted(values), LOG_FLOOR * self.measured);
        if predicted >= floor {
            ((predicted / self.measured).ln() / self.sd, 1.0 / (predicted * self.sd))
        } else {
            ((LOG_FLOOR.ln() + (predicted - floor) / floor) / self.sd, 1.0 / (floor * self.sd))
        }
    }
}

/// A checked set of parameters and rows.
#[derive(Debug, Clone)]
pub struct Problem {
    parameters: Vec<Parameter>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Problem {
    /// Checks `parameters` and the `rows` of `origin`, the data's name in errors.
    ///
    /// # Errors
    /// `ErrorKind::Invalid`(ridgepoint::Error::Invalid) with everything that can't be fitted, rows being counted from 1: fewer than
    /// two rows, a number that is NaN or infinite, a measured value or standard deviation of 0 or less, a negative weight, a row
    /// with another number of columns than there are parameters, bounds without a value between them, a prior outside them.
    pub fn new(origin: &str, parameters: Vec<Parameter>, rows: Vec<Row>) -> Result<Problem> {
        validate::check(origin, &parameters, &rows)?;
        let notes = validate::notes(&parameters, &rows);
        Ok(Problem { parameters, rows, notes })
    }

    /// The parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// What a reader of the fit should know of its rows: that all are the same, that no row has some parameter.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The priors' means: where a fit starts.
    pub fn priors(&self) -> Vec<f64> {
        self.parameters.iter().map(|parameter| parameter.prior).collect()
    }

    /// `Σ weight·huber(ln(predicted / measured) / sd) + ½·Σ ((θ − prior) / prior_sd)²`, finite for any values; values that are
    /// missing count as absent terms.
    ///
    /// # Formula
    /// Huber's loss with [`HUBER_DELTA`](super::HUBER_DELTA); below a thousandth of `measured` the logarithm is continued by its
    /// tangent.
    ///
    /// ```
    /// use crate::fit::{Parameter, Problem, Row};
    ///
    /// let factor = Parameter {
    ///     name: "factor".to_owned(), unit: "1".to_owned(), prior: 1.0, prior_sd: 0.5, lower: 0.3, upper: 3.0,
    /// };
    /// let row = |measured| Row { offset: 0.0, x: vec![100.0], measured, sd: 0.1, weight: 1.0, group: 0 };
    /// let problem = Problem::new("example", vec![factor], vec![row(150.0), row(150.0)])?;
    /// // At 1.5 the rows are met and the prior costs (0.5 / 0.5)² / 2; at 1 each row is off by ln(1.5) / 0.1 = 4.05.
    /// assert_eq!(problem.cost(&[1.5]), 0.5);
    /// assert!((problem.cost(&[1.0]) - 2.0 * 1.5 * (4.0547 - 0.75)).abs() < 1e-3);
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn cost(&self, values: &[f64]) -> f64 {
        let rows: f64 = self.rows.iter().map(|row| row.weight * huber::loss(row.residual(values).0)).sum();
        let prior: f64 =
            self.parameters.iter().zip(values).map(|(of, value)| 0.5 * off_prior(of, *value).powi(2)).sum();
        let cost = rows + prior;
        if cost.is_nan() { f64::MAX } else { cost.min(f64::MAX) }
    }

    /// Derivative of [`Problem::cost`] by each parameter.
    pub fn gradient(&self, values: &[f64]) -> Vec<f64> {
        let mut gradient: Vec<f64> =
            self.parameters.iter().zip(values).map(|(of, value)| off_prior(of, *value) / of.prior_sd).collect();
        for row in &self.rows {
            let (residual, derivative) = row.residual(values);
            let slope = row.weight * huber::slope(residual) * derivative;
            for (sum, x) in gradient.iter_mut().zip(&row.x) {
                *sum += slope * x;
            }
        }
        gradient
    }

    /// Gauss–Newton approximation of the second derivatives of the rows' part of [`Problem::cost`]; a row beyond Huber's δ
    /// counts as little as its pull does (iteratively reweighted least squares).
    pub fn data_curvature(&self, values: &[f64]) -> DMatrix<f64> {
        let count = self.parameters.len();
        let mut curvature = DMatrix::zeros(count, count);
        for row in &self.rows {
            let (residual, derivative) = row.residual(values);
            let weight = row.weight * huber::weight(residual) * derivative * derivative;
            for (i, x) in row.x.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                let scaled = weight * x;
                for (j, other) in row.x.iter().enumerate().take(i + 1) {
                    curvature[(i, j)] += scaled * other;
                }
            }
        }
        curvature.fill_upper_triangle_with_lower_triangle();
        curvature
    }

    /// [`Problem::data_curvature`] and the prior's, 1 / prior_sd².
    pub fn curvature(&self, values: &[f64]) -> DMatrix<f64> {
        let mut curvature = self.data_curvature(values);
        for (i, parameter) in self.parameters.iter().enumerate() {
            curvature[(i, i)] += parameter.prior_sd.powi(-2);
        }
        curvature
    }

    /// Robust χ² of the rows and how many rows they count as: Σ weight·w·r² over what it is for normal noise of the rows' own
    /// standard deviations, and Σ weight.
    pub(super) fn chi_square(&self, values: &[f64]) -> (f64, f64) {
        let square = |row: &Row| {
            let residual = row.residual(values).0;
            row.weight * huber::weight(residual) * residual * residual
        };
        let sum: f64 = self.rows.iter().map(square).sum();
        (sum / huber::MEAN_WEIGHTED_SQUARE, self.rows.iter().map(|row| row.weight).sum())
    }
}

fn off_prior(parameter: &Parameter, value: f64) -> f64 {
    (value - parameter.prior) / parameter.prior_sd
}

impl CostFunction for &Problem {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, values: &Vec<f64>) -> std::result::Result<f64, argmin::core::Error> {
        Ok(Problem::cost(self, values))
    }
}

impl Gradient for &Problem {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, values: &Vec<f64>) -> std::result::Result<Vec<f64>, argmin::core::Error> {
        Ok(Problem::gradient(self, values))
    }
}

impl Hessian for &Problem {
    type Param = Vec<f64>;
    type Hessian = DMatrix<f64>;

    fn hessian(&self, values: &Vec<f64>) -> std::result::Result<DMatrix<f64>, argmin::core::Error> {
        Ok(Problem::curvature(self, values))
    }
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
